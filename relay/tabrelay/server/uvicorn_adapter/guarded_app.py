"""ASGI application behind uvicorn's own connection classes: connects each request with the guard of its connection.

uvicorn copies the state of the application into the scope of each request, and a guard adds itself to that state. So
the guard gets to know which client a request comes from and when its response is complete, by public interfaces only.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

GUARD: Final = "tabrelay.guard"  # key in the state of the application


class Guard(Protocol):
    """A connection, as the application needs it."""

    def watch(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """The functions that the application gets in place of uvicorn's."""


class GuardedApp:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: MutableMapping[str, Any] = scope.get("state") or {}
        guard: Guard | None = state.pop(GUARD, None) if scope["type"] != "lifespan" else None
        if guard is not None:
            receive, send = guard.watch(scope, receive, send)
        await self._app(scope, receive, send)
