"""An MCP server over HTTP that the test controls down to the bytes, to imitate faults of real servers.

Plain asyncio, so that a test can split a character over two chunks, end a stream in the middle, or cut a connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.waiting import BOUND_S

WAIT_S = BOUND_S


@dataclass(slots=True)
class Seen:
    """One request."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def method(self) -> str:
        """The method of the JSON-RPC message, or the HTTP method of a request that has none."""
        if self.verb != "POST":
            return self.verb
        message = self.message
        return str(message.get("method", "answer")) if isinstance(message, dict) else "batch"


class Reply:
    """The answer to one request."""

    def __init__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        self.seen = seen
        self._writer = writer
        self.is_begun = False
        self.is_gone = asyncio.Event()
        """The client closed the connection."""

    async def head(self, status: int, headers: dict[str, str]) -> None:
        self.is_begun = True
        lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def body(self, body: bytes, status: int = 200, type: str | None = None, **headers: str) -> None:
        found = {name.replace("_", "-"): value for name, value in headers.items()}
        if type is not None:
            found["Content-Type"] = type
        await self.head(status, {**found, "Content-Length": str(len(body))})
        await self.raw(body)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        await self.body(json.dumps(value).encode(), status, "application/json", **headers)

    async def result(self, result: Any, **headers: str) -> None:
        await self.json({"jsonrpc": "2.0", "id": self.seen.message["id"], "result": result}, 200, **headers)

    async def accepted(self, **headers: str) -> None:
        await self.body(b"", 202, **headers)

    async def stream(self, **headers: str) -> None:
        found = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **found})

    async def chunk(self, data: bytes) -> None:
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, value: Any, **fields: str) -> None:
        data = value if isinstance(value, str) else json.dumps(value)
        lines = [*(f"{name}: {text}" for name, text in fields.items()), f"data: {data}"]
        await self.chunk("\n".join(lines).encode() + b"\n\n")

    async def answer(self, result: Any, **fields: str) -> None:
        await self.event({"jsonrpc": "2.0", "id": self.seen.message["id"], "result": result}, **fields)

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """Cut the connection in the middle of the response."""
        self._writer.transport.abort()


Handler = Callable[[Reply], Awaitable[None]]


@dataclass
class Upstream:
    """Start it with `async with`. `on` has a handler for each JSON-RPC method, or for an HTTP method (GET, DELETE). A
    list of handlers is used one by one, the last one repeatedly. `initialize` returns `session` as the session id."""

    on: dict[str, Any] = field(default_factory=dict)
    session: str | None = "s-1"
    version: str = "2025-11-25"
    seen: list[Seen] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", getattr(self, "port", 0), limit=1 << 27)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the recorded requests satisfy a condition."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(condition)

    async def until_seen(self, method: str, count: int = 1) -> list[Seen]:
        await self.until(lambda: len(self.all(method)) >= count)
        return self.all(method)

    def all(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method]

    @property
    def methods(self) -> list[str]:
        return [seen.method for seen in self.seen]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (seen := await _request(reader)) is not None:
                reply = Reply(seen, writer)
                self.seen.append(seen)
                async with self._changed:
                    self._changed.notify_all()
                watching = asyncio.create_task(self._watch(reader, reply))
                try:
                    await self._handle(reply)
                finally:
                    watching.cancel()
                if reader.at_eof():
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one of the ends has closed
        finally:
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader, reply: Reply) -> None:
        """Detect the client's disconnection: while it waits for its answer it sends nothing, so any read ends with the
        stream."""
        while not reader.at_eof() and reader.exception() is None:  # noqa: ASYNC110 - a stream has no event for it
            await asyncio.sleep(0.005)
        reply.is_gone.set()

    async def _handle(self, reply: Reply) -> None:
        method = reply.seen.method
        handler = self.on.get(method)
        if isinstance(handler, list):
            handler = handler.pop(0) if len(handler) > 1 else handler[0]
        if handler is not None:
            await handler(reply)
        elif method == "initialize":
            session = {"Mcp_Session_Id": self.session} if self.session else {}
            info = {"name": "upstream", "version": "1"}
            await reply.result({"protocolVersion": self.version, "capabilities": {}, "serverInfo": info}, **session)
        elif method == "ping":
            await reply.result({})
        elif method.startswith("notifications/") or method == "answer":
            await reply.accepted()
        else:
            await reply.body(b"", 405)


async def _request(reader: asyncio.StreamReader) -> Seen | None:
    line = await reader.readline()
    if not line:
        return None
    verb, path, _ = line.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    return Seen(verb, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


# -- handlers that many tests need -------------------------------------------------------------------------------------


def status(code: int, body: bytes = b"", **headers: str) -> Handler:
    async def handle(reply: Reply) -> None:
        await reply.body(body, code, **headers)

    return handle


def result(value: Any) -> Handler:
    async def handle(reply: Reply) -> None:
        await reply.result(value)

    return handle


async def cut(reply: Reply) -> None:
    reply.cut()


async def hang(reply: Reply) -> None:
    """Wait until the client disconnects."""
    await reply.is_gone.wait()
