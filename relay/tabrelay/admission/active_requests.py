"""Who is inside: each request and WebSocket that was let in, until it ends or its token is revoked or over.

ASGI has no way to end a connection from outside. So a request stands between the application and `receive`: when it is
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

CHECK_INTERVAL_S: Final = 0.5  # what another process revoked is noticed after this at the latest
REVOKED: Final = "this token was revoked, or is over"
CredentialKey = tuple[str | None, float | None]  # of a principal: what it came in with, and until when that is good
_DISCONNECTED: Final[dict[str, Message]] = {
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
            return _DISCONNECTED[self._kind]
        task = self._waiting = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            return await self._receive()
        except asyncio.CancelledError:
            # As asyncio.timeout does: only a cancellation of ours is turned into something else.
            if self._is_ended() and task.uncancel() <= before:
                return _DISCONNECTED[self._kind]
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

    def __init__(self, is_admitted: Callable[[Principal], bool], interval_s: float = CHECK_INTERVAL_S) -> None:
        self._is_admitted = is_admitted
        self._interval_s = interval_s
        self._by_key: dict[CredentialKey, set[ActiveRequest]] = {}  # thousands of sockets may have come with one token
        self._timer: asyncio.TimerHandle | None = None

    def open(self, principal: Principal, kind: str, receive: Receive) -> ActiveRequest:
        request = ActiveRequest(principal, kind, receive)
        self._by_key.setdefault(_key(principal), set()).add(request)
        if self._timer is None:
            self._arm()
        return request

    def close(self, request: ActiveRequest) -> None:
        key = _key(request.principal)
        requests = self._by_key.get(key)
        if requests is not None:
            requests.discard(request)
            if not requests:
                del self._by_key[key]

    def end_revoked(self) -> None:
        """Send away whoever is no longer welcome."""
        for requests in list(self._by_key.values()):
            if not self._is_admitted(next(iter(requests)).principal):
                # defence: a revoked token's streams and sockets
                for request in list(requests):
                    request.end()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.end_revoked()
        if self._by_key:
            self._arm()


def _key(principal: Principal) -> CredentialKey:
    return principal.credential, principal.expires
