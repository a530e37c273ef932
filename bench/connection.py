"""The hop without the kernel: connections as uvicorn makes them, with transports that only remember, in one process.

What the relay's Python takes per call from the bytes of a request to the bytes of its answer, fast path, HTTP and
WebSocket protocols included, beside the bare forwarder's. The smallest of many batches is shown: it is what the code
costs without disturbance, so small changes can be told apart where calls per second drown in noise.

The calls take the fast path. The other requests take the regular path: lists, descriptions, new sessions, and a call
with progress, whose response is an event stream.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import orjson
import uvicorn
import uvloop
from uvicorn.server import ServerState

from bench import forwarder
from bench.inside import bare_answer
from bench.link_worker import PROGRESS, link_answers
from bench.load import Target
from bench.stage import SERVER
from bench.table import table
from tabrelay.admission.tokens import Tokens
from tabrelay.config.settings import Settings
from tabrelay.server.app import create_app
from tabrelay.server.runner import tune_garbage_collector
from tabrelay.server.uvicorn_adapter.configuration import configure

PORT = 4747
BATCH = 2000
REGULAR_BATCH = 400  # the regular path takes several times as long


class Transport(asyncio.Transport):
    """Takes whatever it is given and hands it to `on_write`."""

    def __init__(self, on_write: Callable[[bytes], None]) -> None:
        super().__init__({"sockname": ("127.0.0.1", PORT), "peername": ("127.0.0.1", 1)})
        self._on_write = on_write

    def write(self, data: Any) -> None:
        self._on_write(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol


class Server:
    """Connections of one uvicorn server that listens nowhere."""

    def __init__(self, config: uvicorn.Config) -> None:
        config.load()
        self._config = config
        self._state = ServerState()
        self._transports: list[Transport] = []

    async def close(self) -> None:
        """Close all connections, and let the application notice."""
        for transport in self._transports:
            transport.protocol.connection_lost(None)
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
        """A browser that answers everything the server sends in one turn of the loop with one write."""
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
            frames = [frame(text) for each in unframe(inbox) for text in answers(each)]
            inbox.clear()
            if frames:
                transport.protocol.data_received(b"".join(frames))

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
    """As a client writes it, with a mask that changes nothing."""
    data = text.encode()
    size = len(data)
    head = bytes([0x81, 0x80 | size]) if size < 126 else bytes([0x81, 0x80 | 126]) + size.to_bytes(2, "big")
    return head + bytes(4) + data


def unframe(data: bytearray) -> list[str]:
    texts, at = [], 0
    while at < len(data):
        size, start = data[at + 1], at + 2
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        if data[at] == 0x81:
            texts.append(data[start : start + size].decode())
        at = start + size
    return texts


class Caller:
    """One keep-alive connection that sends its next request when the last answer is there."""

    def __init__(self, server: Server, end: bytes = b'"jsonrpc"') -> None:
        """`end`: what the last piece of an answer contains."""
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._transport = server.connect(self._receive)
        self._request = b""
        self._left = 0
        self.last = self.received = b""
        self.done: asyncio.Future[None] = self._loop.create_future()

    def start(self, request: bytes, calls: int) -> None:
        self._request, self._left, self.received = request, calls, b""
        self.done = self._loop.create_future()
        self._loop.call_soon(self._transport.protocol.data_received, request)

    def _receive(self, data: bytes) -> None:
        self.last = data
        self.received = self.received[-1024:] + data if self._left == 1 else b""
        # uvicorn writes an answer's header and body one after the other; the body is what counts.
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


async def run(batches: int, size: int, callers: int, home: Path) -> list[list[str]]:
    content = [{"type": "text", "text": "x" * size}]
    result = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": content}}).decode()
    tokens = Tokens(home)
    token = tokens.master()
    target = Target(f"http://127.0.0.1:{PORT}/{SERVER}", token)
    bare = Server(forwarder.configure())
    sessions = 2 * callers + (batches + 1) * REGULAR_BATCH
    settings = Settings(home=home, port=PORT, in_flight_server=256, in_flight_caller=256, rate_s=0)
    settings = replace(settings, max_sessions=sessions, max_sessions_token=sessions)
    relay = Server(configure(create_app(settings, tokens=tokens), settings))
    forward = bare_answer(result)
    await bare.dial("", "", lambda text: [forward(text) or ""], "")
    hello = f'{{"t":"hello","v":[1,1],"build":"x","server":"{SERVER}","inst":"x","rx":0}}'
    await relay.dial(token, "tabrelay.v1", link_answers(result), hello)

    def same(server: Server, request: bytes, end: bytes = b'"jsonrpc"') -> tuple[list[Caller], list[bytes]]:
        return [Caller(server, end) for _ in range(callers)], [request] * callers

    opened = [await open_session(relay, target) for _ in range(callers)]
    calls = {
        "bare forwarder": same(bare, target.modern()),
        "tabrelay, modern": same(relay, target.modern()),
        "tabrelay, legacy": ([Caller(relay) for _ in range(callers)], [target.legacy(id) for id in opened]),
    }
    regular = {
        "regular path, tools/list": same(relay, target.other("tools/list")),
        "regular path, server/discover": same(relay, target.other("server/discover")),
        "regular path, initialize": same(relay, target.initialize()),
        "regular path, call with progress": same(relay, target.modern(PROGRESS), b"0\r\n\r\n"),
    }
    ways = [(name, *way, BATCH) for name, way in calls.items()]
    ways += [(name, *way, REGULAR_BATCH) for name, way in regular.items()]
    best = {name: float("inf") for name, *_ in ways}
    for _ in range(batches):
        for name, who, what, number in ways:
            best[name] = min(best[name], await batch(who, what, number))
    await bare.close()
    await relay.close()
    floor = best["bare forwarder"]
    return [[name, f"{value:.1f}", f"{value / floor:.2f}"] for name, value in best.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--result", type=int, default=200, help="bytes of text in a result")
    args = parser.parse_args()
    tune_garbage_collector()  # as the relay does
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-", ignore_cleanup_errors=True) as home:
        rows = uvloop.run(run(args.batches, args.result, args.callers, Path(home)))
    print(table(["", "µs/request", "× floor"], rows))


if __name__ == "__main__":
    main()
