"""Running calls of many callers on one connection to a server that knows only one client: our request ids → callers.

A server message names its call by our id or token, or names none. Without a name it is attributed only if exactly one
caller can have caused it; otherwise it is dropped, because a wrong guess would disclose one caller's data to another.
Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tabrelay.calls.calls import Notice, Pending
from tabrelay.translation import messages
from tabserver.wire import jsonrpc

# The handler of a cancelled call may still send messages. For this long, messages that name no call are not attributed.
LINGER_S: Final = 30.0
# Cancelled calls that are tracked by id. Of further ones only the latest end of that time is kept.
MAX_LINGERING: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class TrackedCall:
    """A running call, and the progress token of its caller."""

    pending: Pending
    token: object

    @property
    def channel(self) -> str:
        return self.pending.call.channel

    @property
    def may_send(self) -> bool:
        """May the server ask or log something during this call?"""
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
        """By our id or token. In Python `True == 1`, and `true` is not a valid id."""
        return self._running.get(id) if jsonrpc.is_request_id(id) else None

    def take(self, id: jsonrpc.RequestId) -> TrackedCall | None:
        """The call was answered: no further message of it is expected."""
        self._lingering.pop(id, None)
        return self._running.pop(id, None)

    def drop(self, id: jsonrpc.RequestId, now: float) -> TrackedCall | None:
        """The call was cancelled: the server may still send messages of it for LINGER_S."""
        running = self._running.pop(id, None)
        if running is not None and running.may_send:
            self._lingering[id] = now + LINGER_S
            if len(self._lingering) > MAX_LINGERING:
                self._others_linger_until = self._lingering.pop(next(iter(self._lingering)))
        return running

    def id_of(self, pending: Pending) -> jsonrpc.RequestId | None:
        return next((id for id, running in self._running.items() if running.pending is pending), None)

    def find(self, channel: str, id: object) -> Pending | None:
        """The running call of a caller, by the caller's own id."""
        for running in self._running.values():
            if running.channel == channel and running.pending.call.id == id:
                return running.pending
        return None

    def of(self, channel: str) -> list[Pending]:
        return [running.pending for running in self._running.values() if running.channel == channel]

    def senders(self) -> list[TrackedCall]:
        return [running for running in self._running.values() if running.may_send]

    def only_sender(self, now: float, among: list[TrackedCall] | None = None) -> TrackedCall | None:
        """The call of a message that names none, if only one caller can have caused it."""
        self._drop_lingering(now)
        able = [running for running in self.senders() if among is None or running in among]
        if self._lingering or self._others_linger_until > now or len({running.channel for running in able}) != 1:
            return None
        return able[-1]

    def is_quiet(self, now: float) -> bool:
        """Can no call have caused a message that names none?"""
        self._drop_lingering(now)
        return not self.senders() and not self._lingering and self._others_linger_until <= now

    def _drop_lingering(self, now: float) -> None:
        self._lingering = {id: until for id, until in self._lingering.items() if until > now}

    def clear(self) -> list[Pending]:
        """The connection is gone. Returns the calls without an answer."""
        lost = [running.pending for running in self._running.values()]
        self._running.clear()
        self._lingering.clear()
        self._others_linger_until = 0.0
        return lost
