"""HTTP and WebSocket connections without the kernel: as uvicorn makes them, with transports that keep what they
receive.

It does not depend on the relay: the bare forwarder and relays of any version are measured with it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from bench.load import Target
from bench.stage import SERVER

PORT = 4747
TEXT, PING, PONG = 0x81, 0x89, 0x8A  # the first byte of a frame


class Transport(asyncio.Transport):
    """Passes every write to `on_write`."""

    def __init__(self, on_write: Callable[[bytes], None]) -> None:
        super().__init__({"sockname": ("127.0.0.1", PORT), "peername": ("127.0.0.1", 1)})
        self._on_write = on_write
        self._is_lost = False

    def write(self, data: Any) -> None:
        self._on_write(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def lose(self) -> None:
        """The other end has closed."""
        if not self._is_lost:
            self._is_lost = True
            self.protocol.connection_lost(None)

    def can_write_eof(self) -> bool:
        return False

    def abort(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol


class Server:
    """Connections of one uvicorn server without a listening socket."""

    def __init__(self, config: uvicorn.Config) -> None:
        config.load()
        self._config = config
        self._state = ServerState()
        self._transports: list[Transport] = []

    async def close(self) -> None:
        """Close all connections, and let the application notice."""
        for transport in self._transports:
            transport.lose()
        while self._state.tasks:
            await asyncio.wait(self._state.tasks)

    def connect(self, on_write: Callable[[bytes], None]) -> Transport:
        transport = Transport(on_write)
        self._transports.append(transport)
        protocol_class: Any = self._config.http_protocol_class
        transport.protocol = protocol_class(config=self._config, server_state=self._state, app_state={})
        transport.protocol.connection_made(transport)
        return transport

    async def dial(self, token: str, subprotocol: str, answers: Callable[[str], Sequence[str]], hello: str) -> None:
        """A browser that answers everything that the server sends in one iteration of the loop with one write."""
        loop, inbox = asyncio.get_running_loop(), bytearray()
        is_open = False

        def receive(data: bytes) -> None:
            nonlocal is_open
            if not is_open:
                is_open = True
                if hello:
                    loop.call_soon(lambda: transport.protocol.data_received(frame(hello)))
                return
            if not inbox:
                loop.call_soon(reply)
            inbox.extend(data)

        def reply() -> None:
            texts, pings = unframe(inbox)
            written = [frame(text) for each in texts for text in answers(each)]
            written += [bytes([PONG, 0x80 | len(ping)]) + bytes(4) + ping for ping in pings]
            inbox.clear()
            if written:
                transport.protocol.data_received(b"".join(written))

        transport = self.connect(receive)
        offered = [subprotocol, "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")]
        key = base64.b64encode(b"0123456789abcdef").decode()
        lines = [
            f"GET /{SERVER} HTTP/1.1",
            f"Host: 127.0.0.1:{PORT}",
            *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
            f"Sec-WebSocket-Key: {key}",
            *([f"Sec-WebSocket-Protocol: {', '.join(offered)}"] if subprotocol else []),
        ]
        transport.protocol.data_received("\r\n".join([*lines, "", ""]).encode())
        for _ in range(50):
            await asyncio.sleep(0)


def frame(text: str) -> bytes:
    """As a client writes it, with a mask of zeros."""
    data = text.encode()
    size = len(data)
    head = bytes([TEXT, 0x80 | size]) if size < 126 else bytes([TEXT, 0x80 | 126]) + size.to_bytes(2, "big")
    return head + bytes(4) + data


def unframe(data: bytearray) -> tuple[list[str], list[bytes]]:
    """Texts, and the contents of pings: a server closes the connection if it gets no pong for a while."""
    texts, pings, at = [], [], 0
    while at < len(data):
        size, start = data[at + 1], at + 2
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        if data[at] == TEXT:
            texts.append(data[start : start + size].decode())
        elif data[at] == PING:
            pings.append(bytes(data[start : start + size]))
        at = start + size
    return texts, pings


class Caller:
    """One keep-alive connection that sends its next request when the last answer is complete."""

    def __init__(self, server: Server, end: bytes = b'"jsonrpc"') -> None:
        """`end`: a text that only the last piece of an answer contains."""
        self._loop = asyncio.get_running_loop()
        self._transport = server.connect(self._receive)
        self._end = end
        self._request = b""
        self._left = 0
        self.last = self.received = b""
        self.done: asyncio.Future[None] = self._loop.create_future()

    def start(self, request: bytes, calls: int) -> None:
        self._request, self._left, self.received = request, calls, b""
        self.done = self._loop.create_future()
        self._loop.call_soon(self._transport.protocol.data_received, request)

    def close(self) -> None:
        self._transport.lose()

    def _receive(self, data: bytes) -> None:
        self.last = data
        self.received = self.received[-1024:] + data if self._left == 1 else b""
        # uvicorn writes an answer's header and body one after the other; the body counts.
        if self._end not in data:
            return
        self._left -= 1
        if self._left:
            self._loop.call_soon(self._transport.protocol.data_received, self._request)
        else:
            self.done.set_result(None)


async def open_session(server: Server, target: Target) -> str:
    caller = Caller(server)
    caller.start(target.initialize(), 1)
    await caller.done
    head = caller.received.partition(b"\r\n\r\n")[0]
    return head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()


async def batch(callers: list[Caller], requests: list[bytes], size: int) -> float:
    """Processor time per request, in microseconds."""
    each = size // len(callers)
    began = process_time()
    for caller, request in zip(callers, requests, strict=True):
        caller.start(request, each)
    await asyncio.gather(*(caller.done for caller in callers))
    took = process_time() - began
    assert b'"result"' in callers[0].received, callers[0].received
    return took / (each * len(callers)) * 1e6
