"""Active requests: each admitted HTTP request and WebSocket, until it ends or its token is revoked or expires.

ASGI has no way to end a connection from outside. So an `ActiveRequest` wraps `receive`: when the request is ended, the
application receives a disconnect, which it must handle at any time, and the gate writes the rest of the response.

Does not read tokens: a callback of the gate decides whether a principal is still admitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Message, Receive

from tabrelay.calls.principal import Principal
from tabserver.wire.frames import CLOSE_UNAUTHORIZED

CHECK_INTERVAL_S: Final = 0.5  # a revocation by another process takes effect within this time
REVOKED: Final = "this token was revoked or has expired"
CredentialKey = tuple[str | None, float | None]  # of a principal: the digest of its credential, and when that expires
_DISCONNECTED: Final[dict[str, Message]] = {
    "http": {"type": "http.disconnect"},
    "websocket": {"type": "websocket.disconnect", "code": CLOSE_UNAUTHORIZED, "reason": REVOKED},
}


class ActiveRequest:
    """One admitted request. The application gets its `receive` instead of the server's."""

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
            # As in asyncio.timeout: only our own cancellation is converted.
            if self._is_ended() and task.uncancel() <= before:
                return _DISCONNECTED[self._kind]
            raise
        finally:
            self._waiting = None
            del task  # it references its CancelledError, and by that this frame

    def _is_ended(self) -> bool:
        return self.is_over

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            if self._waiting is not None:
                self._waiting.cancel()


class ActiveRequests:
    """All active requests. The timer runs only while there is one."""

    def __init__(self, is_admitted: Callable[[Principal], bool], interval_s: float = CHECK_INTERVAL_S) -> None:
        self._is_admitted = is_admitted
        self._interval_s = interval_s
        self._by_key: dict[CredentialKey, set[ActiveRequest]] = {}  # thousands of sockets may share one token
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
        """End all requests whose principal is no longer admitted."""
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
