"""Admin routes below `/-/`: metrics, the call log, accepting tool drift, forgetting a name, reconnecting an upstream.

Each class adds one route and calls the function that it was constructed with. The gate has already checked the token:
metrics need a token that may read them, the other routes need `manage`. A server that the principal may not see is
answered like one that does not exist. No route here keeps state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tabrelay.calls.principal import Principal
from tabrelay.errors import UnknownServer
from tabrelay.http.json_body import SmallBody
from tabrelay.http.problems import problem_response
from tabrelay.observe.prometheus import CONTENT_TYPE

LOG_OFF: Final[dict[str, Any]] = {"is_on": False, "has_arguments": False, "mark": "", "calls": []}


class MetricsRoutes:
    """`GET /-/metrics`: the metrics in Prometheus text format."""

    def __init__(self, text: Callable[[], str] | None) -> None:
        """`text` returns all metrics; None if metrics are turned off."""
        self._text = text

    def add_routes(self, app: FastAPI) -> None:
        @app.api_route("/-/metrics", methods=["GET", "HEAD"])
        async def metrics() -> Response:
            if self._text is None:
                text = "Metrics are turned off: the relay was started with TABRELAY_METRICS=0."
                return problem_response(404, "not_found", text)
            return Response(self._text(), headers={"Content-Type": CONTENT_TYPE})


class LogRoutes:
    """`GET /-/calls`: the last calls, for the relay's page."""

    def __init__(self, recent: Callable[[str], dict[str, Any]] | None) -> None:
        """`recent` returns what happened since a mark; None if the call log is turned off."""
        self._recent = recent

    def add_routes(self, app: FastAPI) -> None:
        @app.get("/-/calls")
        async def calls(request: Request, since: str = "") -> JSONResponse:
            recent = LOG_OFF if self._recent is None else self._recent(since)
            principal: Principal = request.state.principal
            if recent["calls"] is not None:
                rows = [row for row in recent["calls"] if principal.may_see(row.get("server", ""))]
                recent = {**recent, "calls": rows}
            return JSONResponse(recent)


class DriftRoutes:
    """`GET /-/drift`: a server's changed tools, before and after. `POST /-/drift`: the user accepts them."""

    def __init__(self, accept: Callable[[str], None], changed: Callable[[str], dict[str, Any]]) -> None:
        """Both raise UnknownServer."""
        self._accept, self._changed = accept, changed

    def add_routes(self, app: FastAPI) -> None:
        @app.get("/-/drift")
        async def show(request: Request, server: str = "") -> JSONResponse:
            found: dict[str, Any] = {}
            refusal = _apply(lambda name: found.update(self._changed(name)), server, request)
            return refusal if refusal.status_code >= 400 else JSONResponse({"name": server, **found})

        @app.post("/-/drift")
        async def accept(request: Request, body: SmallBody) -> JSONResponse:
            return _apply(self._accept, str(body.get("accept", "")), request)


class ForgetRoutes:
    """`POST /-/forget`: the user removes a name that no page and no upstream has at this moment."""

    def __init__(self, forget: Callable[[str], str | None], is_declared: Callable[[str], bool]) -> None:
        """`forget` returns the reason if the name stays, or raises UnknownServer. `is_declared`: will the relay have
        the name again at its next start?"""
        self._forget = forget
        self._is_declared = is_declared

    def add_routes(self, app: FastAPI) -> None:
        @app.post("/-/forget")
        async def forget(request: Request, body: SmallBody) -> JSONResponse:
            name = str(body.get("name", ""))
            principal: Principal = request.state.principal
            try:
                if not principal.may_see(name):
                    raise UnknownServer("No server has that name.")
                reason = self._forget(name)
            except UnknownServer as error:
                return problem_response(404, "unknown_server", error.message)
            if reason is not None:
                return problem_response(409, "in_use", reason)
            return JSONResponse({"name": name, "is_declared": self._is_declared(name)})


class ReconnectRoutes:
    """`POST /-/upstreams/{name}/reconnect`: connect an upstream again, whatever its failures so far."""

    def __init__(self, reconnect: Callable[[str], None]) -> None:
        """`reconnect` raises UnknownServer."""
        self._reconnect = reconnect

    def add_routes(self, app: FastAPI) -> None:
        @app.post("/-/upstreams/{name}/reconnect")
        async def reconnect(request: Request, name: str) -> JSONResponse:
            return _apply(self._reconnect, name, request)


def _apply(action: Callable[[str], None], name: str, request: Request) -> JSONResponse:
    """Call `action` with the name of a server that the principal may see."""
    principal: Principal = request.state.principal
    try:
        if not principal.may_see(name):
            raise UnknownServer("No server has that name.")
        action(name)
    except UnknownServer as error:
        return problem_response(404, "unknown_server", error.message)
    return JSONResponse({"name": name})
