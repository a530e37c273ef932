"""Console route that injects faults into the link of a server's browsers: cut it, or delay what is sent over it.

Calls of all clients meet these faults. Without the setting `faults`, and for a server that the principal may not see,
every request is refused. How a link is cut or delayed is not decided here.
"""

from __future__ import annotations

from typing import Final, Protocol

from fastapi import FastAPI, Request, Response

from tabrelay.calls.principal import Principal
from tabrelay.http.json_body import SmallBody
from tabrelay.http.problems import problem_response

MAX_DELAY_MS: Final = 10_000
MAX_DELAYED_S: Final = 300.0


class InjectsFaults(Protocol):
    """Each returns whether a browser that offers the server is connected."""

    def cut(self, server: str) -> bool: ...

    def delay(self, server: str, delay_s: float, for_s: float) -> bool: ...


class FaultRoutes:
    """`POST /-/console/faults`."""

    def __init__(self, faults: InjectsFaults | None) -> None:
        """None: the relay offers none."""
        self._faults = faults

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/console/faults", self._inject, methods=["POST"])

    async def _inject(self, request: Request, body: SmallBody) -> Response:
        principal: Principal = request.state.principal
        if self._faults is None:
            text = "This relay injects no faults. Start it with --faults, on a loopback address."
            return problem_response(403, "faults_off", text)
        server, kind = body.get("server"), body.get("kind")
        ms, for_s = _number(body.get("ms", 0), MAX_DELAY_MS), _number(body.get("for_s", 0), MAX_DELAYED_S)
        if not isinstance(server, str) or kind not in ("cut", "delay") or ms is None or for_s is None:
            text = f"Expected server, and kind: cut, or delay with ms (to {MAX_DELAY_MS}) and for_s (to 300)."
            return problem_response(400, "invalid_request", text)
        # defence: faults of a server that the principal may not see
        if not principal.may_see(server):
            return _offline(server)
        is_connected = self._faults.cut(server) if kind == "cut" else self._faults.delay(server, ms / 1000, for_s)
        return Response(status_code=204) if is_connected else _offline(server)


def _number(value: object, most: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    # defence: how long a fault lasts
    return value if 0 <= value <= most else None


def _offline(server: str) -> Response:
    text = f'No browser that offers "{server[:64]}" is connected to this relay.'
    return problem_response(409, "server_offline", text)
