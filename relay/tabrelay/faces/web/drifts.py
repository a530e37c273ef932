"""`POST /-/drift`: somebody looked at a server's changed tools, and finds them fine. The gate wants `manage`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from tabrelay.calls.principal import Principal
from tabrelay.errors import UnknownServer


class DriftRoutes:
    def __init__(self, accept: Callable[[str], None]) -> None:
        """`accept` raises UnknownServer."""
        self._accept = accept

    def add_routes(self, app: FastAPI) -> None:
        @app.post("/-/drift")
        async def accept(request: Request, body: dict[str, Any]) -> JSONResponse:
            name = str(body.get("accept", ""))
            principal: Principal = request.state.principal
            try:
                if not principal.may_see(name):
                    raise UnknownServer("No server has that name.")
                self._accept(name)
            except UnknownServer as error:
                return JSONResponse({"error": "unknown_server", "message": error.message}, 404)
            return JSONResponse({"name": name})
