"""Console routes that read: the live stream of captured calls, pages of rows, and the details of a call.

Opening the stream turns capture on. The gate has checked that the principal may manage the relay; a call of a server
that it may not see is answered like one that does not exist. What is captured and redacted is decided in
`observe.capture`. Nothing here changes a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from tabrelay.calls.principal import Principal
from tabrelay.http.exchange import Exchange
from tabrelay.http.json_body import SmallBody
from tabrelay.http.problems import problem_response
from tabrelay.observe.capture.call_capture import PER_BATCH, CallCapture, TooManyStreams
from tabrelay.observe.capture.captured_call import CapturedCall
from tabrelay.observe.capture.feed import FeedReader, encode
from tabrelay.observe.capture.rows import Row, detail_of

KEEPALIVE_S: Final = 15.0
STALL_S: Final = 30.0  # a console that reads nothing for this long is closed
MAX_LIMIT: Final = 500  # rows of one response
MAX_DETAILS: Final = 100  # calls of one response
NO_STORE: Final = {"Cache-Control": "no-store"}

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
        return ConsoleStream(self._capture, reader, self._first(missed))

    def _first(self, missed: list[CapturedCall]) -> Iterator[bytes]:
        """Events before those of the feed, each made when the one before it was read."""
        yield encode({"type": "hello", **self._hello()})
        for at in range(0, len(missed), PER_BATCH):
            yield encode({"type": "calls", "rows": [self._capture.row(call) for call in missed[at : at + PER_BATCH]]})

    def _seen(
        self, request: Request, is_wanted: Callable[[CapturedCall], bool], before: int | None = None
    ) -> Iterator[CapturedCall]:
        """The wanted calls, the newest first."""
        principal: Principal = request.state.principal
        for call in self._capture.ring.newest(before):
            if is_wanted(call) and principal.may_see(call.server):
                yield call

    async def _calls(
        self, request: Request, before: int | None = None, limit: int = 100, group: str | None = None
    ) -> Response:
        wanted = self._seen(request, lambda call: group is None or call.group == group, before)
        rows: list[Row] = []
        for call in list(islice(wanted, max(1, min(limit, MAX_LIMIT)))):
            rows.append(self._capture.row(call))
            if len(rows) % PER_BATCH == 0:
                await asyncio.sleep(0)
        return _json({"rows": rows})

    async def _call(self, request: Request, id: str) -> Response:
        found = await self._detail(request, id)
        if found is None:
            return _refusal(404, "unknown_call", "This call is not captured (any more).")
        return Response(found, media_type="application/json", headers=NO_STORE)

    async def _details(self, request: Request, body: SmallBody) -> Response:
        ids = body.get("ids")
        if not isinstance(ids, list) or len(ids) > MAX_DETAILS or not all(isinstance(id, str) for id in ids):
            return _refusal(400, "invalid_request", f'Expected {{"ids": [at most {MAX_DETAILS} texts]}}.')
        details = self._write_details(request, dict.fromkeys(ids))
        return StreamingResponse(details, media_type="application/json", headers=NO_STORE)

    async def _write_details(self, request: Request, ids: Iterable[str]) -> AsyncIterator[bytes]:
        """A JSON object in parts, so that one detail is in memory at a time."""
        before = b'{"details":['
        for id in ids:
            if (detail := await self._detail(request, id)) is not None:
                yield before + detail
                before = b","
        yield b"]}" if before == b"," else before + b"]}"

    async def _detail(self, request: Request, id: str) -> bytes | None:
        """As JSON."""
        principal: Principal = request.state.principal
        call = self._capture.ring.find(id)
        # defence: captured calls of a server that the principal may not see
        if call is None or not principal.may_see(call.server):
            return None
        # defence: loop time of details
        return await asyncio.to_thread(_encoded_detail, call, self._capture.row(call))


class ConsoleStream(Response):
    """The live stream of one console. It ends with the relay, or when its reader is gone or reads nothing."""

    def __init__(self, capture: CallCapture, reader: FeedReader, first: Iterator[bytes]) -> None:
        super().__init__()
        self._capture, self._reader, self._first = capture, reader, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, reader = Exchange(scope, receive, send), self._reader
        try:
            await exchange.start_stream()
            exchange.watch(reader.end)
            for known in self._first:
                await _written(exchange.event(known))
                await asyncio.sleep(0)
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


def _encoded_detail(call: CapturedCall, row: Row) -> bytes:
    return orjson.dumps(detail_of(call, row))


def _json(value: Row) -> Response:
    return Response(orjson.dumps(value), media_type="application/json", headers=NO_STORE)
