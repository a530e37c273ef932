"""Which channels of the link are open, and the messages that wait until the link has room for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .wire.errors import BufferFull, MessageTooLarge
from .wire.frames import Kind
from .wire.jsonrpc import RequestId
from .wire.link import Link

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class _Unsent(Generic[P]):
    channel: str
    kind: Kind
    payload: P
    id: RequestId | None
    related: RequestId | None


class Channels(Generic[P]):
    """Sends on open channels only: what is said on one that is gone has no reader, or, worse, another one."""

    def __init__(self, link: Link[P], clock: Callable[[], float]) -> None:
        self._link, self._clock = link, clock
        self._open: dict[str, bool] = {}
        self._orphans: dict[str, None] = {}
        self._unsent: deque[_Unsent[P]] = deque()

    def opened(self, channel: str, *, is_single: bool) -> None:
        """`is_single`: opened by its only request, and gone with the answer."""
        self._open[channel] = is_single
        self._orphans.pop(channel, None)

    def closed(self, channel: str) -> None:
        self._open.pop(channel, None)
        self._orphans.pop(channel, None)

    def is_orphan(self, channel: str) -> bool:
        """Was it open in an earlier session, and may still be opened again?"""
        return channel in self._orphans

    def orphan(self) -> None:
        """The session is another one: nothing is open any more until the relay opens it again."""
        self._orphans |= dict.fromkeys(self._open)
        self._open = {}
        self._unsent.clear()

    def forget(self) -> list[str]:
        """Nobody will come back for the channels of earlier sessions. Returns them."""
        gone, self._orphans = self._orphans, {}
        return list(gone)

    def send(self, channel: str, kind: Kind, payload: P, id: RequestId | None, related: RequestId | None) -> None:
        """While the link has no room, an answer waits for it, and a notice about a running request is dropped."""
        if channel not in self._open:
            return
        unsent = _Unsent(channel, kind, payload, id, related)
        if (self._unsent or not self._try(unsent)) and (kind is not Kind.NOTE or related is None):
            self._unsent.append(unsent)

    def close(self, channel: str, why: str) -> None:
        """Say that our side is done with a channel."""
        if self._open.pop(channel, None) is not None:
            self._link.close(channel, why, self._clock())

    def flush(self) -> MessageTooLarge | None:
        """Send what waited, as far as there is room now. Returns the error of a message that can never go."""
        while self._unsent:
            unsent = self._unsent[0]
            try:
                if unsent.channel in self._open and not self._try(unsent):
                    return None
            except MessageTooLarge as error:
                self._unsent.popleft()
                return error
            self._unsent.popleft()
        return None

    def _try(self, unsent: _Unsent[P]) -> bool:
        now = self._clock()
        try:
            self._link.send(unsent.channel, unsent.kind, unsent.payload, now, id=unsent.id, related=unsent.related)
        except BufferFull:
            return False
        if unsent.kind is Kind.RES and self._open[unsent.channel]:
            del self._open[unsent.channel]
        return True
