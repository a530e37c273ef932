"""`GET /-/metrics`: the relay's figures for Prometheus. The gate wants a token that may read them."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from tabrelay.observe.prometheus import CONTENT_TYPE


class MetricsRoutes:
    def __init__(self, text: Callable[[], str] | None) -> None:
        """`text`: all of them; None when nothing is counted."""
        self._text = text

    def add_routes(self, app: FastAPI) -> None:
        @app.api_route("/-/metrics", methods=["GET", "HEAD"])
        async def metrics() -> Response:
            if self._text is None:
                text = "This relay counts nothing: it was started with TABRELAY_METRICS=0."
                return JSONResponse({"error": "not_found", "message": text}, 404)
            return Response(self._text(), headers={"Content-Type": CONTENT_TYPE})
