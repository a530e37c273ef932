"""One HTTP exchange on plain ASGI: request headers and body, and a response as JSON or as an event stream.

Bounds the request body, and writes large responses at the client's pace. Knows nothing of MCP eras.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final

import orjson

from tabrelay.errors import BadRequest, Busy, RelayError
from tabrelay.http.headers import RequestHeaders
from tabrelay.http.problems import help_headers
from tabrelay.payloads.sliced import Body, SlicedPayload
from tabrelay.system.patient_timer import PatientTimer
from tabserver.wire.jsonrpc import RequestId, error_message
from tabserver.wire.memory_budget import MemoryBudget

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON_TYPE: Final[Header] = (b"content-type", b"application/json")
SSE_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
EVENT_HEAD: Final = b"event: message\ndata: "
CHUNK: Final = 256 * 1024
# A client that reads nothing for this long counts as disconnected, even if its connection is open.
STALL_S: Final = 30.0
# Key in the ASGI scope of a request whose response is an event stream that has begun. Clients can't set it.
STREAMING: Final = "tabrelay.streaming"
RENEW_S: Final = 1.0  # a timer for each piece would take longer than writing it


class Exchange(RequestHeaders):
    """One request and its response. `is_gone` becomes true when the client has closed the connection."""

    __slots__ = ("_on_error", "_receive", "_send", "_streaming", "_watcher", "is_gone", "method", "scope")

    is_shared = False

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, on_error: Callable[[RelayError], None] | None = None
    ) -> None:
        """`on_error` is called with each error of the relay that becomes the response."""
        super().__init__(scope["headers"])
        self.scope = scope
        self._on_error = on_error
        self.method: str = scope["method"]
        self.is_gone = False
        self._receive = receive
        self._send = send
        self._streaming: bool = scope.get(STREAMING, False)
        self._watcher: asyncio.Task[None] | asyncio.TimerHandle | None = None

    # -- the request --------------------------------------------------------------------------------------------------

    async def body(self, limit: int, budget: MemoryBudget, check: Callable[[bytes], None] | None = None) -> bytes:
        """The whole body. Raises before its end if it is larger than `limit`, or if all bodies that are being read
        exceed `budget`. `check` is called with each piece of a body that arrives in pieces, and may raise an error."""
        announced = self.first.get(b"content-length")
        if announced is not None and announced.isascii() and announced.isdigit() and int(announced) > limit:
            raise too_large(limit)
        message = await self._receive()
        if not message.get("more_body", False):  # nearly all bodies
            return self._piece(message, limit)
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                chunk = self._piece(message, limit, size)
                if self.is_gone:
                    return b""
                if not budget.reserve(len(chunk)):
                    raise _no_room()
                size += len(chunk)
                chunks.append(chunk)
                if check is not None:
                    check(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
                message = await self._receive()
        finally:
            budget.release(size)

    def _piece(self, message: MutableMapping[str, Any], limit: int, before: int = 0) -> bytes:
        if message["type"] == "http.disconnect":
            self.is_gone = True
            return b""
        chunk: bytes = message.get("body", b"")
        if before + len(chunk) > limit:
            raise too_large(limit)
        return chunk

    def watch(self, on_gone: Callable[[], None], delay_s: float = 0.0) -> None:
        """Call `on_gone` when the client closes the connection. Takes a task, which starts after `delay_s`: most
        responses are complete by then."""
        if delay_s:
            self._watcher = asyncio.get_running_loop().call_later(delay_s, self.watch, on_gone)
            return

        async def wait() -> None:
            while True:
                if (await self._receive())["type"] == "http.disconnect":
                    self.is_gone = True
                    on_gone()
                    return

        self._watcher = asyncio.create_task(wait())

    def unwatch(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    # -- the response -------------------------------------------------------------------------------------------------

    async def reply(self, status: int, body: Body = b"", headers: Iterable[Header] = ()) -> None:
        """Send a complete response."""
        if self.is_gone:
            return
        length = (b"content-length", str(len(body)).encode())
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        if isinstance(body, SlicedPayload) or len(body) > CHUNK:
            await self._write_slowly(body, is_last=True)
        else:
            await self._send({"type": "http.response.body", "body": body})

    async def json(self, status: int, body: Body, headers: Iterable[Header] = ()) -> None:
        await self.reply(status, body, (JSON_TYPE, *headers))

    async def error(self, error: RelayError, id: RequestId | None, server: str | None) -> None:
        """The only place where an error of the relay becomes a response."""
        if self._on_error is not None:
            self._on_error(error)
        body = error_body(error, id, server)
        if self._streaming:
            await self.event(body)
        else:
            await self.reply(error.status, body, error_headers(error))

    @property
    def is_streaming(self) -> bool:
        return self._streaming

    async def start_stream(self, headers: Iterable[Header] = ()) -> None:
        """Start a response that is an event stream, with status 200."""
        self._streaming = True
        await self._send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})

    async def event(self, payload: Body, id: str | None = None, *, is_last: bool = False) -> None:
        """One message as one event, which may be the last of the stream. The payload must be one line; it is not
        checked here."""
        head = EVENT_HEAD if id is None else b"id: %b\n%b" % (id.encode(), EVENT_HEAD)
        if isinstance(payload, SlicedPayload) or len(payload) > CHUNK:
            # Not concatenated: no second copy in memory, for a client that may not read it.
            await self._chunk(head)
            await self._write_slowly(payload, is_last=False)
            await self._chunk(b"\n\n", is_last=is_last)
        else:
            await self._chunk(head + payload + b"\n\n", is_last=is_last)

    async def named_event(self, name: str, data: str) -> None:
        await self._chunk(f"event: {name}\ndata: {data}\n\n".encode())

    async def prime(self, id: str, retry_ms: int) -> None:
        """An event without a message: gives the client an id to resume from, and its reconnect delay."""
        await self._chunk(f"id: {id}\nretry: {retry_ms}\ndata: \n\n".encode())

    async def retry(self, retry_ms: int | None) -> None:
        if retry_ms is not None:
            await self._chunk(f"retry: {retry_ms}\n\n".encode())

    async def comment(self) -> None:
        """Keep-alive: prevents proxies and clients from closing an idle stream."""
        await self._chunk(b": ping\n\n")

    async def end_stream(self) -> None:
        if not self.is_gone:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunk(self, body: bytes, *, is_last: bool = False) -> None:
        if len(body) > CHUNK:
            await self._write_slowly(body, is_last=is_last)
        elif not self.is_gone:
            await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def _write_slowly(self, body: Body, *, is_last: bool) -> None:
        """Write a large body in pieces at the client's pace; give up after STALL_S without progress. Yields to the
        event loop after each piece."""
        left, loop, patience = len(body), asyncio.get_running_loop(), asyncio.timeout(None)
        renewed = loop.time()
        timer = PatientTimer(loop, STALL_S, lambda: patience.reschedule(loop.time()))
        try:
            async with patience:
                for piece in body if isinstance(body, SlicedPayload) else _cut(body):
                    if self.is_gone:
                        return
                    left -= len(piece)
                    more = not is_last or left > 0
                    await self._send({"type": "http.response.body", "body": piece, "more_body": more})
                    if loop.time() - renewed > RENEW_S:
                        renewed = loop.time()
                        timer.restart()
                    await asyncio.sleep(0)
        except TimeoutError:
            self.is_gone = True
        finally:
            timer.cancel()


def _cut(body: bytes) -> Iterator[bytes]:
    view = memoryview(body)
    return (bytes(view[start : start + CHUNK]) for start in range(0, len(body), CHUNK))


def error_body(error: RelayError, id: RequestId | None, server: str | None) -> bytes:
    return orjson.dumps(error_message(id, error.code, error.message, error.data(server)))


def error_headers(error: RelayError) -> tuple[Header, ...]:
    return (JSON_TYPE, *error.headers, *help_headers(error.reason, error.code))


def _no_room() -> BadRequest:
    text = "The relay is reading too many large requests at once. Try again in a moment."
    return BadRequest(text, status=503, code=Busy.code, reason=Busy.reason, headers=((b"retry-after", b"1"),))


def too_large(limit: int) -> BadRequest:
    return BadRequest(f"The body is larger than {limit:,} bytes.", status=413, reason="too_large")
