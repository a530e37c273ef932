"""Path aliases: ASGI middleware that rewrites a configured path such as `/db` to the path of its server.

For pages of websocket-mcp, which connect to a path that need not be the name of the server. The gate sees the rewritten
path only, so admission depends on the server and not on the address that was used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.admission.routes import MCP
from tabrelay.config.specs import BrowserSpec, Spec


class PathAliases:
    """Outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, specs: Sequence[Spec], on_change: Callable[[Sequence[Spec]], Awaitable[None]]
    ) -> None:
        self._app = app
        self._on_change = on_change
        self._set(specs)
        # For a server with the fast path: its calls bypass this class (`uvicorn_adapter.configuration`).
        self.fast_path: object = None

    async def change(self, specs: Sequence[Spec]) -> None:
        """The configuration has these servers now."""
        self._set(specs)
        await self._on_change(specs)

    def _set(self, specs: Sequence[Spec]) -> None:
        named = [spec for spec in specs if isinstance(spec, BrowserSpec) and spec.path is not None]
        # Paths that the user wrote take precedence over derived ones.
        self._paths = {f"{spec.path}/{MCP}": f"/{spec.name}/{MCP}" for spec in named}
        self._paths |= {str(spec.path): f"/{spec.name}" for spec in named}

    def resolve(self, path: str) -> str:
        return self._paths.get(path, path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = self._paths.get(scope.get("path", ""))
        if path is not None:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)
