"""Open channels of the link, orphaned channels of earlier sessions, and messages that wait for room on the link.

Invariant: a message is sent only on an open channel. On a closed one it would have no reader, or the wrong one. What a
message means is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from ..wire.call_times import CallTimes
from ..wire.errors import BufferFull, MessageTooLarge
from ..wire.frames import Kind
from ..wire.jsonrpc import RequestId
from ..wire.link import Link

P = TypeVar("P")

MAX_NOTICES: Final = 1024  # waiting notifications; the relay may be down for days


class Channels(Generic[P]):
    """`unsent`: messages that wait for room on the link, in order."""

    def __init__(self, link: Link[P], clock: Callable[[], float]) -> None:
        self._link, self._clock = link, clock
        self._open: dict[str, bool] = {}
        self._orphans: dict[str, float] = {}
        self.unsent: deque[tuple[str, Kind, P, RequestId | None, RequestId | None, CallTimes | None]] = deque()

    def opened(self, channel: str, *, is_single: bool) -> None:
        """`is_single`: opened by its only request, and closed with its response."""
        self._open[channel] = is_single
        self._orphans.pop(channel, None)

    def __contains__(self, channel: str) -> bool:
        return channel in self._open

    def closed(self, channel: str) -> None:
        self._open.pop(channel, None)
        self._orphans.pop(channel, None)

    def is_orphan(self, channel: str) -> bool:
        """Was it open in an earlier session, and may the relay still open it again?"""
        return channel in self._orphans

    def orphan(self, until: float) -> None:
        """A new session began: no channel is open until the relay opens it again, which it may do until `until`.
        Orphans of earlier sessions keep their own time: a browser may move from relay to relay."""
        self._orphans = {**dict.fromkeys(self._open, until), **self._orphans}
        self._open = {}
        self.unsent.clear()

    def expire_orphans(self, now: float) -> list[str]:
        """L7: remove and return the channels of earlier sessions whose time is over."""
        gone = [channel for channel, until in self._orphans.items() if until <= now]
        for channel in gone:
            del self._orphans[channel]
        return gone

    @property
    def next_expiry(self) -> float | None:
        return min(self._orphans.values(), default=None)

    def send(
        self,
        channel: str,
        kind: Kind,
        payload: P,
        id: RequestId | None,
        related: RequestId | None,
        now: float,
        times: CallTimes | None = None,
    ) -> None:
        """L3: while the link has no room, a response waits for it, and so does a notification without a request. Raises
        BufferFull for other notifications, and MessageTooLarge."""
        waiting = (channel, kind, payload, id, related, times)
        if channel not in self._open or (not self.unsent and self._try_send(*waiting, now)):
            return
        self._link.check(payload)
        if kind is Kind.NOTE:
            notices = [each for each in self.unsent if each[1] is Kind.NOTE]
            if waiting in notices:
                return  # the same change is already announced, and not yet sent
            if related is not None or len(notices) >= MAX_NOTICES:
                raise BufferFull("the link has no room for a notice")
        self.unsent.append(waiting)

    def close(self, channel: str, why: str) -> None:
        """Close a channel from this end."""
        if self._open.pop(channel, None) is not None:
            self._link.close(channel, why, self._clock())

    def flush(self) -> MessageTooLarge | None:
        """Send waiting messages while there is room. Returns the error of a message that can never be sent."""
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
        self,
        channel: str,
        kind: Kind,
        payload: P,
        id: RequestId | None,
        related: RequestId | None,
        times: CallTimes | None,
        now: float,
    ) -> bool:
        try:
            report = "" if times is None else times.report()
            self._link.send(channel, kind, payload, now, id=id, related=related, times=report)
        except BufferFull:
            return False
        if kind is Kind.RES and self._open[channel]:
            del self._open[channel]
        return True
