"""`POST /-/upstreams/{name}/reconnect`: connect a server elsewhere anew, whatever counted against it."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from tabrelay.calls.principal import Principal
from tabrelay.errors import UnknownServer


class ReconnectRoutes:
    """The gate wants `manage` for it, which the relay's own page has."""

    def __init__(self, reconnect: Callable[[str], None]) -> None:
        """`reconnect` raises UnknownServer."""
        self._reconnect = reconnect

    def add_routes(self, app: FastAPI) -> None:
        @app.post("/-/upstreams/{name}/reconnect")
        async def again(request: Request, name: str) -> JSONResponse:
            principal: Principal = request.state.principal
            try:
                if not principal.may_see(name):
                    raise UnknownServer("No server has that name.")
                self._reconnect(name)
            except UnknownServer as error:
                return JSONResponse({"error": "unknown_server", "message": error.message}, 404)
            return JSONResponse({"name": name})
