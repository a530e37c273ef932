"""Calls of many callers at a server that knows only one client: ids of our own, and whose a message of the server's is.

Such a server names the call that it speaks of by our id or token, or not at all. Then it can only be guessed whose call
it is, and a wrong guess would tell one caller of another: so there is an answer only where there is no choice. Pure: it
is told the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tabrelay.calls.calls import Notice, Pending
from tabrelay.translation import messages
from tabserver.wire import jsonrpc

# A handler that was cancelled may still speak. For this long, nothing that names no call is taken for another's.
LINGER_S: Final = 30.0
# Cancelled calls that are told apart. Of more, only the time is kept until which one of them may still speak.
MAX_LINGERING: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class TrackedCall:
    """A call under way, and the progress token of its caller."""

    pending: Pending
    token: object

    @property
    def channel(self) -> str:
        return self.pending.call.channel

    @property
    def may_send(self) -> bool:
        """Could the server ask or log something in the middle of it?"""
        return self.pending.call.method in messages.MAY_ASK

    def notify(self, method: str, params: dict[str, object]) -> None:
        text = messages.text(jsonrpc.notification(method, params))
        if text is not None:
            self.pending.notify(Notice(text))


class SharedCalls:
    """The calls on one connection, by our ids."""

    def __init__(self) -> None:
        self._running: dict[jsonrpc.RequestId, TrackedCall] = {}
        self._lingering: dict[jsonrpc.RequestId, float] = {}
        self._others_linger_until = 0.0

    def __len__(self) -> int:
        return len(self._running)

    def put(self, id: jsonrpc.RequestId, running: TrackedCall) -> None:
        self._running[id] = running

    def get(self, id: object) -> TrackedCall | None:
        """By our id or token. To Python `true` is the number 1, and it is nobody's id."""
        return self._running.get(id) if jsonrpc.is_request_id(id) else None

    def take(self, id: jsonrpc.RequestId) -> TrackedCall | None:
        """The call is answered: nothing more is expected of it."""
        self._lingering.pop(id, None)
        return self._running.pop(id, None)

    def drop(self, id: jsonrpc.RequestId, now: float) -> TrackedCall | None:
        """The call was cancelled: the server may still speak of it for a while."""
        running = self._running.pop(id, None)
        if running is not None and running.may_send:
            self._lingering[id] = now + LINGER_S
            if len(self._lingering) > MAX_LINGERING:
                self._others_linger_until = self._lingering.pop(next(iter(self._lingering)))
        return running

    def id_of(self, pending: Pending) -> jsonrpc.RequestId | None:
        return next((id for id, running in self._running.items() if running.pending is pending), None)

    def find(self, channel: str, id: object) -> Pending | None:
        """The call that a caller has under way under its own id."""
        for running in self._running.values():
            if running.channel == channel and running.pending.call.id == id:
                return running.pending
        return None

    def of(self, channel: str) -> list[Pending]:
        return [running.pending for running in self._running.values() if running.channel == channel]

    def senders(self) -> list[TrackedCall]:
        return [running for running in self._running.values() if running.may_send]

    def only_sender(self, now: float, among: list[TrackedCall] | None = None) -> TrackedCall | None:
        """Whose call a message that names none belongs to, if it can be only one caller's."""
        self._lingering = {id: until for id, until in self._lingering.items() if until > now}
        able = [running for running in self.senders() if among is None or running in among]
        if self._lingering or self._others_linger_until > now or len({running.channel for running in able}) != 1:
            return None
        return able[-1]

    def clear(self) -> list[Pending]:
        """The connection is gone; gives back the calls that had no answer."""
        lost = [running.pending for running in self._running.values()]
        self._running.clear()
        self._lingering.clear()
        self._others_linger_until = 0.0
        return lost
