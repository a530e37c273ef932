"""HTTP as bytes on a real connection: requests of any shape, and responses read by a strict parser."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import h11
import orjson

from tests.support.asgi_client import Answer
from tests.support.running_relay import ACCEPT, RunningRelay, modern
from tests.support.waiting import BOUND_S

WAIT_S = BOUND_S


class RawConnection:
    """One TCP connection to a relay. `send` writes the given bytes; `answer` reads one response."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._rest = b""

    async def open(self) -> RawConnection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            with suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None

    def send(self, data: bytes) -> None:
        """Does not wait: a relay may answer, and close, before it has read everything."""
        assert self._writer is not None
        self._writer.write(data)

    def send_now(self, data: bytes) -> None:
        """Writes without the event loop: the bytes are in the kernel when this returns."""
        assert self._writer is not None
        raw = socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno()))
        with raw:
            raw.settimeout(WAIT_S)
            raw.sendall(data)
            raw.setblocking(False)

    def hang_up(self) -> None:
        """End the sending side; the relay's response can still be read."""
        assert self._writer is not None
        self._writer.write_eof()

    async def answer(self, method: str = "POST") -> Answer | None:
        """The next response; of an event stream only its head. None: the relay closed without a response."""
        assert self._reader is not None
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1_000_000)
        # The parser expects the request to have been sent; what it would write is discarded.
        parser.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        parser.send(h11.EndOfMessage())
        if self._rest:
            parser.receive_data(self._rest)
        found = Answer()
        async with asyncio.timeout(WAIT_S):
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    try:
                        data = await self._reader.read(65_536)
                    except ConnectionError:
                        data = b""
                    if not data and not found.status:
                        return None
                    parser.receive_data(data)
                elif isinstance(event, h11.Response):
                    found.status = event.status_code
                    found.headers = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
                elif isinstance(event, h11.Data):
                    found.body += event.data
                    if found.header("content-type") == "text/event-stream" and b"\n\n" in found.body:
                        return found
                elif isinstance(event, h11.EndOfMessage):
                    self._rest = parser.trailing_data[0]
                    return found


def call_of(tool: str, *, id: Any = 1, method: str = "tools/call") -> dict[str, Any]:
    """The body of a modern call."""
    return dict(modern(method, {"name": tool, "arguments": {"x": "ä"}, "uri": tool}, id=id)["json"])


def written(
    relay: RunningRelay, body: Any, *more: tuple[str, str], path: str = "/notes", token: str | None = None
) -> bytes:
    """A modern POST as bytes."""
    method = body.get("method", "") if isinstance(body, dict) else ""
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": "echo", "Accept": ACCEPT}
    if isinstance(body, dict) and isinstance(body.get("params"), dict):
        headers["Mcp-Name"] = str(body["params"].get("name"))
    headers |= {"Host": f"127.0.0.1:{relay.port}", "Authorization": f"Bearer {token or relay.token}"}
    headers["Content-Type"] = "application/json"
    return raw(path, [*headers.items(), *more], orjson.dumps(body))


def raw(path: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body
