"""Console routes of breakpoints: set them, read what is held, and release, edit or refuse it.

Texts that are shown are redacted; what is edited keeps the hidden values of the original. A held message of a server
that the principal may not see is answered like one that does not exist. What is held is decided in `observe.capture`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tabrelay.calls.principal import Principal
from tabrelay.http.json_body import LargeBody, SmallBody
from tabrelay.http.problems import problem_response
from tabrelay.observe.call_log import shown_text
from tabrelay.observe.capture.breakpoints import (
    CALL,
    MAX_BREAKPOINTS,
    MAX_EDITABLE,
    BadBreakpoint,
    Breakpoint,
    HeldMessage,
    RefusedInConsole,
    ResultRefusedInConsole,
)
from tabrelay.observe.capture.call_capture import CallCapture
from tabrelay.observe.redaction import redacted

MAX_MESSAGE: Final = 300  # characters of the reason of a refusal
REFUSED: Final = "It was refused at a breakpoint."

Row = dict[str, Any]


class BreakpointRoutes:
    """`/-/console/breakpoints`, `/-/console/held/{id}`, `POST /-/console/release`."""

    def __init__(self, capture: CallCapture) -> None:
        self._capture, self._breakpoints = capture, capture.breakpoints

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/console/breakpoints", self._list, methods=["GET"])
        app.add_api_route("/-/console/breakpoints", self._use, methods=["PUT"])
        app.add_api_route("/-/console/held/{id}", self._show, methods=["GET"])
        app.add_api_route("/-/console/held/{id}", self._decide, methods=["POST"])
        app.add_api_route("/-/console/release", self._release, methods=["POST"])

    async def _list(self, request: Request) -> JSONResponse:
        principal: Principal = request.state.principal
        held = [_row(each) for each in self._breakpoints.held.values() if principal.may_see(each.call.server)]
        return JSONResponse({"breakpoints": [each.shown for each in self._breakpoints.wanted], "held": held})

    async def _use(self, request: Request, body: SmallBody) -> Response:
        principal: Principal = request.state.principal
        given = body.get("breakpoints")
        # defence: number of breakpoints
        if not isinstance(given, list) or len(given) > MAX_BREAKPOINTS:
            return problem_response(400, "invalid_request", f'Expected {{"breakpoints": [at most {MAX_BREAKPOINTS}]}}.')
        if not len(self._capture.feed):
            return problem_response(
                409, "not_capturing", "Calls are held only while a console is open. Open its stream first."
            )
        try:
            self._breakpoints.use(tuple(Breakpoint.read(each, principal.may_see) for each in given))
        except BadBreakpoint as error:
            return problem_response(400, "invalid_request", str(error))
        return await self._list(request)

    def _find(self, request: Request, id: str) -> HeldMessage | None:
        principal: Principal = request.state.principal
        held = self._breakpoints.held.get(id)
        # defence: held calls of a server that the principal may not see
        return held if held is not None and principal.may_see(held.call.server) else None

    async def _show(self, request: Request, id: str) -> Response:
        held = self._find(request, id)
        if held is None:
            return _unknown()
        shown = await asyncio.to_thread(_shown, held, _row(held))
        return Response(shown, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def _decide(self, request: Request, id: str, body: LargeBody) -> Response:
        held = self._find(request, id)
        if held is None:
            return _unknown()
        members = ["params"] if held.place == CALL else ["result", "error"]
        given = [name for name in members if name in body]
        if body.get("do") == "refuse":
            message = body.get("message")
            text = shown_text(message, MAX_MESSAGE) if isinstance(message, str) and message else REFUSED
            self._breakpoints.decide(held, (RefusedInConsole if held.place == CALL else ResultRefusedInConsole)(text))
        elif body.get("do") != "release" or len(given) > 1 or body.keys() - {"do", *members}:
            return problem_response(
                400, "invalid_request", f"Expected do: release or refuse, and at most one of {members}."
            )
        elif not given:
            self._breakpoints.decide(held, None)
        else:
            try:
                text = await asyncio.to_thread(held.edited, given[0], body[given[0]])
            except BadBreakpoint as error:
                return problem_response(400, "invalid_request", str(error))
            self._breakpoints.decide(held, text)
        return Response(status_code=204)

    async def _release(self, request: Request) -> Response:
        principal: Principal = request.state.principal
        self._breakpoints.release_all(principal.may_see)
        return Response(status_code=204)


def _row(held: HeldMessage) -> Row:
    call = held.call
    left_s = max(0.0, held.until - time.monotonic())
    return {
        "id": held.id,
        "call": call.id,
        "at": held.place,
        "since": round(held.since * 1000),
        "until": round((time.time() + left_s) * 1000),
        "server": call.server,
        "method": call.method,
        "name": shown_text(call.name) if call.name is not None else None,
    }


def _shown(held: HeldMessage, row: Row) -> bytes:
    """With its content, redacted, as JSON. Of a long message, only that it is too long."""
    text = held.text()
    # defence: long messages that are held
    if len(text) > MAX_EDITABLE:
        return orjson.dumps({**row, "truncated": True})
    message = redacted(orjson.loads(text))
    return orjson.dumps({**row, **{name: message[name] for name in ("params", "result", "error") if name in message}})


def _unknown() -> JSONResponse:
    return problem_response(404, "unknown_held", "Nothing is held under this id (any more).")
