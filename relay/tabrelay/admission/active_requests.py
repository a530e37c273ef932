"""Who is inside: each request and WebSocket that was let in, until it ends or its token is revoked or over.

ASGI has no way to end a connection from outside. So a visit stands between the application and `receive`: when it is
over, the application hears that its client has left, which it must cope with at any time, and the gate says the rest to
the client. It does not know what a token is: whether somebody is still welcome is asked of whoever let them in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Message, Receive

from tabrelay.calls.principal import Principal
from tabserver.wire.frames import CLOSE_UNAUTHORIZED

LOOK_S: Final = 0.5  # what another process revoked is noticed after this at the latest
REVOKED: Final = "this token was revoked, or is over"
Key = tuple[str | None, float | None]  # of a principal: what it came in with, and until when that is good
_LEFT: Final[dict[str, Message]] = {
    "http": {"type": "http.disconnect"},
    "websocket": {"type": "websocket.disconnect", "code": CLOSE_UNAUTHORIZED, "reason": REVOKED},
}


class ActiveRequest:
    """One of them. `receive` is what the application is given."""

    __slots__ = ("_kind", "_receive", "_waiting", "is_over", "principal")

    def __init__(self, principal: Principal, kind: str, receive: Receive) -> None:
        self.principal = principal
        self.is_over = False
        self._kind = kind
        self._receive = receive
        self._waiting: asyncio.Task[Any] | None = None

    async def receive(self) -> Message:
        if self._is_ended():
            return _LEFT[self._kind]
        task = self._waiting = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            return await self._receive()
        except asyncio.CancelledError:
            # As asyncio.timeout does: only a cancellation of ours is turned into something else.
            if self._is_ended() and task.uncancel() <= before:
                return _LEFT[self._kind]
            raise
        finally:
            self._waiting = None
            del task  # it keeps how it was cancelled, and by that this frame

    def _is_ended(self) -> bool:
        return self.is_over

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            if self._waiting is not None:
                self._waiting.cancel()


class ActiveRequests:
    """Everybody inside. A timer runs only while somebody is."""

    def __init__(self, is_welcome: Callable[[Principal], bool], look_s: float = LOOK_S) -> None:
        self._is_welcome = is_welcome
        self._look_s = look_s
        self._inside: dict[Key, set[ActiveRequest]] = {}  # thousands of sockets may have come with one token
        self._timer: asyncio.TimerHandle | None = None

    def open(self, principal: Principal, kind: str, receive: Receive) -> ActiveRequest:
        visit = ActiveRequest(principal, kind, receive)
        self._inside.setdefault(_key(principal), set()).add(visit)
        if self._timer is None:
            self._arm()
        return visit

    def close(self, visit: ActiveRequest) -> None:
        key = _key(visit.principal)
        mates = self._inside.get(key)
        if mates is not None:
            mates.discard(visit)
            if not mates:
                del self._inside[key]

    def look(self) -> None:
        """Send away whoever is no longer welcome."""
        for mates in list(self._inside.values()):
            if not self._is_welcome(next(iter(mates)).principal):
                # defence: a revoked token's streams and sockets
                for visit in list(mates):
                    visit.end()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._look_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.look()
        if self._inside:
            self._arm()


def _key(principal: Principal) -> Key:
    return principal.credential, principal.expires
