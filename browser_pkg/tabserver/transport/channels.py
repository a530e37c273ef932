"""Which channels of the link are open, and the messages that wait until the link has room for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ..wire.errors import BufferFull, MessageTooLarge
from ..wire.frames import Kind
from ..wire.jsonrpc import RequestId
from ..wire.link import Link

P = TypeVar("P")

MAX_NOTICES: Final = 1024  # that wait; the relay may be away for days


class Channels(Generic[P]):
    """Sends on open channels only: what is said on one that is gone has no reader, or, worse, another one."""

    def __init__(self, link: Link[P], clock: Callable[[], float]) -> None:
        self._link, self._clock = link, clock
        self._open: dict[str, bool] = {}
        self._orphans: dict[str, float] = {}
        self.unsent: deque[tuple[str, Kind, P, RequestId | None, RequestId | None]] = deque()

    def opened(self, channel: str, *, is_single: bool) -> None:
        """`is_single`: opened by its only request, and gone with the answer."""
        self._open[channel] = is_single
        self._orphans.pop(channel, None)

    def __contains__(self, channel: str) -> bool:
        return channel in self._open

    def closed(self, channel: str) -> None:
        self._open.pop(channel, None)
        self._orphans.pop(channel, None)

    def is_orphan(self, channel: str) -> bool:
        """Was it open in an earlier session, and may still be opened again?"""
        return channel in self._orphans

    def orphan(self, until: float) -> None:
        """The session is another one: nothing is open any more until the relay opens it again, which it may do for so
        long. What came from a session before that keeps its own time: a browser may go from relay to relay."""
        self._orphans = {**dict.fromkeys(self._open, until), **self._orphans}
        self._open = {}
        self.unsent.clear()

    def expire_orphans(self, now: float) -> list[str]:
        """Nobody will come back for channels of earlier sessions whose time is over. Returns them."""
        gone = [channel for channel, until in self._orphans.items() if until <= now]
        for channel in gone:
            del self._orphans[channel]
        return gone

    @property
    def next_expiry(self) -> float | None:
        return min(self._orphans.values(), default=None)

    def send(
        self, channel: str, kind: Kind, payload: P, id: RequestId | None, related: RequestId | None, now: float
    ) -> None:
        """While the link has no room, an answer waits for it, and so does a notice about no request in particular.
        Raises BufferFull for other notices, and MessageTooLarge."""
        if channel not in self._open or (not self.unsent and self._try_send(channel, kind, payload, id, related, now)):
            return
        self._link.check(payload)
        waiting = (channel, kind, payload, id, related)
        if kind is Kind.NOTE:
            notices = [each for each in self.unsent if each[1] is Kind.NOTE]
            if waiting in notices:
                return  # it says that something changed, and nobody has heard it yet
            if related is not None or len(notices) >= MAX_NOTICES:
                raise BufferFull("the link has no room for a notice")
        self.unsent.append(waiting)

    def answer(self, channel: str, id: RequestId, payload: P, now: float) -> str | None:
        """Answer the only request of a channel at once: the header to write with it. None: it has to be sent."""
        if self.unsent or not self._open.get(channel):
            return None
        header = self._link.reply(channel, id, payload, now)
        if header is not None:
            del self._open[channel]
        return header

    def close(self, channel: str, why: str) -> None:
        """Say that our side is done with a channel."""
        if self._open.pop(channel, None) is not None:
            self._link.close(channel, why, self._clock())

    def flush(self) -> MessageTooLarge | None:
        """Send what waited, as far as there is room now. Returns the error of a message that can never go."""
        while self.unsent:
            unsent = self.unsent[0]
            try:
                if unsent[0] in self._open and not self._try_send(*unsent, self._clock()):
                    return None
            except MessageTooLarge as error:
                self.unsent.popleft()
                return error
            self.unsent.popleft()
        return None

    def _try_send(
        self, channel: str, kind: Kind, payload: P, id: RequestId | None, related: RequestId | None, now: float
    ) -> bool:
        try:
            self._link.send(channel, kind, payload, now, id=id, related=related)
        except BufferFull:
            return False
        if kind is Kind.RES and self._open[channel]:
            del self._open[channel]
        return True
