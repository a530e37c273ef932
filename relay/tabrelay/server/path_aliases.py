"""Path aliases: ASGI middleware that rewrites a configured path such as `/db` to the path of its server.

For pages of websocket-mcp, which connect to a path that need not be the name of the server. The gate sees the rewritten
path only, so admission depends on the server and not on the address that was used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.admission.routes import MCP
from tabrelay.config.specs import BrowserSpec, Spec


class AliasTable(dict[str, str]):
    """Path -> path of its server, in the present configuration."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        super().__init__()
        self.set(specs)

    def set(self, specs: Sequence[Spec]) -> None:
        self.clear()
        named = [spec for spec in specs if isinstance(spec, BrowserSpec) and spec.path is not None]
        # Paths that the user wrote take precedence over derived ones.
        self.update({f"{spec.path}/{MCP}": f"/{spec.name}/{MCP}" for spec in named})
        self.update({str(spec.path): f"/{spec.name}" for spec in named})


class PathAliases:
    """Outermost layer of the application."""

    def __init__(
        self,
        app: ASGIApp,
        table: AliasTable,
        on_change: Callable[[Sequence[Spec]], Awaitable[None]],
        fast_path: object = None,
    ) -> None:
        """`fast_path`: for a server that can use it; its calls bypass this class (`uvicorn_adapter.configuration`)."""
        self._app = app
        self._table = table
        self._on_change = on_change
        self.fast_path = fast_path

    async def change(self, specs: Sequence[Spec]) -> None:
        """The configuration has these servers now."""
        self._table.set(specs)
        await self._on_change(specs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = self._table.get(scope.get("path", ""))
        if path is not None:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)
