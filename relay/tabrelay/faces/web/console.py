"""Console routes that read: the live stream of captured calls, pages of rows, and the details of a call.

Opening the stream turns capture on. The gate has checked that the principal may manage the relay; a call of a server
that it may not see is answered like one that does not exist. What is captured and redacted is decided in
`observe.capture`. Nothing here changes a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tabrelay.calls.principal import Principal
from tabrelay.http.exchange import Exchange
from tabrelay.http.problems import problem_response
from tabrelay.observe.capture.call_capture import CallCapture, TooManyStreams
from tabrelay.observe.capture.captured_call import CapturedCall
from tabrelay.observe.capture.feed import FeedReader, encode
from tabrelay.observe.capture.rows import Row, detail_of

KEEPALIVE_S: Final = 15.0
STALL_S: Final = 30.0  # a console that reads nothing for this long is closed
MAX_LIMIT: Final = 500  # rows of one response
MAX_DETAILS: Final = 100  # calls of one response
PER_EVENT: Final = 100  # rows of one event, when a console reads what it has missed

Hello = Callable[[], Row]


class ConsoleRoutes:
    """`GET /-/console/events`, `GET /-/console/calls`, `GET /-/console/calls/{id}`, `POST /-/console/details`."""

    def __init__(self, capture: CallCapture, hello: Hello) -> None:
        """`hello`: what the first event of a stream says of the relay."""
        self._capture = capture
        self._hello = hello

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/console/events", self._events, methods=["GET"])
        app.add_api_route("/-/console/calls", self._calls, methods=["GET"])
        app.add_api_route("/-/console/calls/{id}", self._call, methods=["GET"])
        app.add_api_route("/-/console/details", self._details, methods=["POST"])

    async def _events(self, request: Request, since: int | None = None) -> Response:
        principal: Principal = request.state.principal
        try:
            reader = self._capture.open(principal.may_see)
        except TooManyStreams:
            return _refusal(429, "too_many", "So many consoles are open already. Close one.")
        missed = [] if since is None else list(self._seen(request, lambda call: call.seq > since))[::-1]
        first: list[Row] = [{"type": "hello", **self._hello()}]
        first += [{"type": "calls", "rows": missed[at : at + PER_EVENT]} for at in range(0, len(missed), PER_EVENT)]
        return ConsoleStream(self._capture, reader, [encode(event) for event in first])

    def _seen(self, request: Request, is_wanted: Callable[[CapturedCall], bool], before: int | None = None) -> Any:
        """Rows of the wanted calls, the newest first."""
        principal: Principal = request.state.principal
        for call in self._capture.ring.newest(before):
            if is_wanted(call) and principal.may_see(call.server):
                yield self._capture.row(call)

    async def _calls(
        self, request: Request, before: int | None = None, limit: int = 100, group: str | None = None
    ) -> JSONResponse:
        rows = self._seen(request, lambda call: group is None or call.group == group, before)
        return JSONResponse({"rows": list(islice(rows, max(1, min(limit, MAX_LIMIT))))})

    async def _call(self, request: Request, id: str) -> Response:
        found = await self._detail(request, id)
        return _refusal(404, "unknown_call", "This call is not captured (any more).") if found is None else _json(found)

    async def _details(self, request: Request, body: dict[str, Any]) -> Response:
        ids = body.get("ids")
        if not isinstance(ids, list) or len(ids) > MAX_DETAILS or not all(isinstance(id, str) for id in ids):
            return _refusal(400, "invalid_request", f'Expected {{"ids": [at most {MAX_DETAILS} texts]}}.')
        found = [detail for id in ids if (detail := await self._detail(request, id)) is not None]
        return _json({"details": found})

    async def _detail(self, request: Request, id: str) -> Row | None:
        principal: Principal = request.state.principal
        call = self._capture.ring.find(id)
        # defence: captured calls of a server that the principal may not see
        if call is None or not principal.may_see(call.server):
            return None
        return await asyncio.to_thread(detail_of, call, self._capture.row(call))


class ConsoleStream(Response):
    """The live stream of one console. It ends with the relay, or when its reader is gone or reads nothing."""

    def __init__(self, capture: CallCapture, reader: FeedReader, first: list[bytes]) -> None:
        super().__init__()
        self._capture, self._reader, self._first = capture, reader, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, reader = Exchange(scope, receive, send), self._reader
        try:
            await exchange.start_stream()
            exchange.watch(reader.end)
            for known in self._first:
                await _written(exchange.event(known))
            while not reader.is_over:
                event = await reader.next(KEEPALIVE_S)
                await _written(exchange.comment() if event is None else exchange.event(event))
            await exchange.end_stream()
        except TimeoutError:
            pass
        finally:
            exchange.unwatch()
            self._capture.close(reader)


async def _written(writing: Any) -> None:
    async with asyncio.timeout(STALL_S):
        await writing


def _refusal(status: int, reason: str, message: str) -> JSONResponse:
    return problem_response(status, reason, message)


def _json(value: Row) -> Response:
    return Response(orjson.dumps(value), media_type="application/json", headers={"Cache-Control": "no-store"})
