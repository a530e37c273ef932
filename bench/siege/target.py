"""The relay under attack and access to it: raw HTTP, browsers that violate the rules, and calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from bench.peer import bearer
from tabserver.wire.frames import SUBPROTOCOL

SMALL_WINDOW = 4096  # what a client that does not read lets the kernel buffer for it
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "siege", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json, text/event-stream"}

    def head(self, path: str = "/bench", method: str = "POST", **more: str) -> bytes:
        """A request's header without its last line break; `more` may replace a part of it."""
        fields = {"Host": f"{self.host}:{self.port}", "Content-Type": "application/json", **self.headers}
        fields |= {name.replace("_", "-"): value for name, value in more.items()}
        return f"{method} {path} HTTP/1.1\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode() for k, v in fields.items())

    def post(self, body: bytes, path: str = "/bench", **more: str) -> bytes:
        return self.head(path, Content_Length=str(len(body)), **more) + b"\r\n" + body

    def call(self, arguments: dict[str, Any], server: str = "bench", method: str = "tools/call") -> bytes:
        """A whole modern request."""
        params: dict[str, Any] = {"_meta": META}
        named = {}
        if method == "tools/call":
            params |= {"name": "echo", "arguments": arguments}
            named = {"Mcp_Name": "echo"}
        else:
            params |= arguments
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        return self.post(body, f"/{server}", Mcp_Method=method, Mcp_Protocol_Version=VERSION, **named)

    async def dial(self, window: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """`window`: how much the kernel may buffer before the client reads."""
        if not window:
            return await asyncio.open_connection(self.host, self.port)
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        await asyncio.get_running_loop().sock_connect(sock, (self.host, self.port))
        return await asyncio.open_connection(sock=sock, limit=window)

    def browser(self, name: str, token: str | None = None) -> connect:
        """A WebSocket that has sent nothing yet."""
        entries: Any = [SUBPROTOCOL, bearer(self.token if token is None else token)]
        address = f"ws://{self.host}:{self.port}/{name}"
        return connect(address, subprotocols=entries, proxy=None, max_size=None, ping_interval=None)


async def greet(socket: ClientConnection, name: str) -> None:
    hello = {"t": "hello", "v": [1, 1], "build": "x", "server": name, "inst": f"of-{name}", "rx": 0}
    await socket.send(json.dumps(hello))
    await socket.recv()


@contextlib.asynccontextmanager
async def crowd(
    target: Target, many: int, first: bytes, *, window: int = 0
) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """This many connections, each of which sends the same bytes and nothing more; the relay may close any of them."""
    writers: list[asyncio.StreamWriter] = []
    for _ in range(many):
        with contextlib.suppress(OSError):
            _, writer = await target.dial(window)
            writer.write(first)
            writers.append(writer)
    try:
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()
