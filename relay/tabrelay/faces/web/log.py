"""`GET /-/calls`: the last calls, for the relay's own page. The gate wants a token that may manage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from tabrelay.calls.principal import Principal

OFF: dict[str, Any] = {"is_on": False, "has_arguments": False, "mark": "", "calls": []}


class LogRoutes:
    def __init__(self, recent: Callable[[str], dict[str, Any]] | None) -> None:
        """`recent`: what happened since a mark; None when nothing is written down."""
        self._recent = recent

    def add_routes(self, app: FastAPI) -> None:
        @app.get("/-/calls")
        async def calls(request: Request, since: str = "") -> JSONResponse:
            recent = OFF if self._recent is None else self._recent(since)
            principal: Principal = request.state.principal
            if recent["calls"] is not None:
                rows = [row for row in recent["calls"] if principal.may_see(row.get("server", ""))]
                recent = {**recent, "calls": rows}
            return JSONResponse(recent)
