"""`POST /-/upstreams/{name}/reconnect`: connect a server elsewhere anew, whatever counted against it."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from tabrelay.errors import UnknownServer


class Reconnects:
    """The gate wants the token file's own token for it."""

    def __init__(self, reconnect: Callable[[str], None]) -> None:
        """`reconnect` raises UnknownServer."""
        self._reconnect = reconnect

    def add_routes(self, app: FastAPI) -> None:
        @app.post("/-/upstreams/{name}/reconnect")
        async def again(name: str) -> JSONResponse:
            try:
                self._reconnect(name)
            except UnknownServer as error:
                return JSONResponse({"error": "unknown_server", "message": error.message}, 404)
            return JSONResponse({"name": name})
