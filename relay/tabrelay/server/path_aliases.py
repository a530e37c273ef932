"""Second addresses of servers: a request for `/db` is one for the server that was given that path, before anything else
looks at it. For websocket-mcp's pages, which dial a path that need not be the name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.admission.routes import MCP
from tabrelay.config.specs import BrowserSpec, Spec


class PathAliases:
    """Stands outside the gate: who may come in is decided by the server's name, whatever address was used."""

    def __init__(
        self, app: ASGIApp, specs: Sequence[Spec], on_change: Callable[[Sequence[Spec]], Awaitable[None]]
    ) -> None:
        self._app = app
        self._on_change = on_change
        self._set(specs)
        # For servers that know it: calls that need not come through here (`lane`).
        self.fast_path: object = None

    async def change(self, specs: Sequence[Spec]) -> None:
        """From now on the configuration has these servers."""
        self._set(specs)
        await self._on_change(specs)

    def _set(self, specs: Sequence[Spec]) -> None:
        named = [spec for spec in specs if isinstance(spec, BrowserSpec) and spec.path is not None]
        # What the user wrote counts more than what follows from it.
        self._paths = {f"{spec.path}/{MCP}": f"/{spec.name}/{MCP}" for spec in named}
        self._paths |= {str(spec.path): f"/{spec.name}" for spec in named}

    def resolve(self, path: str) -> str:
        return self._paths.get(path, path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = self._paths.get(scope.get("path", ""))
        if path is not None:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)
