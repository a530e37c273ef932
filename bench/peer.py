"""Synthetic peers in place of a browser: a separate process that echoes.

`link` uses `tabrelay.v1` with the real link, `bare` uses the bare forwarder's protocol. Both run over the same socket
and do the same work for a call (one parse, one dump), so that they differ only by the link. A call with the argument
`bytes` gets a text of that many bytes back instead of its own arguments; such an answer is made once, because in a
browser the page would make it, which has a separate thread.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol, cast

import orjson
import uvloop
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from bench.link_worker import PROGRESS
from bench.stage import SERVER, TOKEN, announce
from tabserver.wire import frames
from tabserver.wire.errors import BufferFull
from tabserver.wire.events import Received
from tabserver.wire.frames import SUBPROTOCOL, Greeting, Kind
from tabserver.wire.limits import DEFAULTS, Limits
from tabserver.wire.link import Link

ABOUT = {"name": "bench", "version": "1"}
# A call that requests progress gets one notification before its result.
NOTICE = orjson.dumps(
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": PROGRESS, "progress": 1}}
).decode()


class Speaker(Protocol):
    """The protocol of a peer on its socket; text in, texts out."""

    @property
    def is_ready(self) -> bool: ...

    def opened(self, now: float) -> Iterable[str]: ...

    def received(self, texts: list[str], now: float) -> Iterable[str]: ...

    def closed(self, now: float) -> None: ...

    def due(self) -> float | None: ...

    def fired(self, now: float) -> Iterable[str]: ...


class Socket(asyncio.Protocol):
    """A WebSocket with minimal overhead: all frames of one read are answered with one write."""

    def __init__(self, url: str, subprotocols: list[str], speaker: Speaker) -> None:
        self._ws = ClientProtocol(
            parse_uri(url), subprotocols=[Subprotocol(name) for name in subprotocols] or None, max_size=None
        )
        self._speaker = speaker
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._pieces: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def dial(cls, url: str, subprotocols: list[str], speaker: Speaker) -> Socket:
        uri = parse_uri(url)
        _, socket = await asyncio.get_running_loop().create_connection(
            lambda: cls(url, subprotocols, speaker), uri.host, uri.port
        )
        await socket.ready
        return socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ws.send_request(self._ws.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._ws.receive_data(data)
        texts: list[str] = []
        now = self._loop.time()
        for event in self._ws.events_received():
            if isinstance(event, Response):
                if self._ws.state is not State.OPEN:
                    self._fail(ConnectionError(f"the server refused the WebSocket: {event.status_code}"))
                    return
                self._say(self._speaker.opened(now))
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                self._pieces.append(bytes(event.data))
                if event.fin:
                    texts.append(b"".join(self._pieces).decode())
                    self._pieces.clear()
        if texts:
            self._say(self._speaker.received(texts, now))
        self._flush()
        if self._speaker.is_ready and not self.ready.done():
            self.ready.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._speaker.closed(self._loop.time())
        self._fail(ConnectionError("the server closed the WebSocket"))
        if not self.gone.done():
            self.gone.set_result(None)

    def cut(self) -> None:
        """Drop the connection without a close frame, as a failing network does."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)

    def _say(self, texts: Iterable[str]) -> None:
        for text in texts:
            if self._ws.state is State.OPEN:
                self._ws.send_text(text.encode())

    def _flush(self) -> None:
        data = b"".join(self._ws.data_to_send())
        if data and self._transport is not None:
            self._transport.write(data)
        due = self._speaker.due()
        if due is not None and (self._timer is None or due < self._due):
            if self._timer is not None:
                self._timer.cancel()
            # A handle of uvloop does not know when it is due if that is now.
            self._timer, self._due = self._loop.call_at(due, self._fire), due

    def _fire(self) -> None:
        self._timer = None
        self._say(self._speaker.fired(self._loop.time()))
        self._flush()


def tool(number: int) -> dict[str, Any]:
    """A tool of typical size."""
    properties = {"text": {"type": "string", "description": "What to give back."}, "bytes": {"type": "integer"}}
    name = f"echo_{number}" if number else "echo"
    about = "Give back what was given, or as many bytes as were asked for."
    return {"name": name, "description": about, "inputSchema": {"type": "object", "properties": properties}}


TOOLS = [tool(0)]


@lru_cache(maxsize=8)
def text_of(size: int) -> str:
    return "x" * size


def result(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params") or {}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        text = text_of(arguments["bytes"]) if "bytes" in arguments else arguments.get("text", "")
        return {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": ABOUT}
    if method == "server/discover":
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    return {"resultType": "complete", "tools": TOOLS}


def answer(text: str) -> str:
    message = orjson.loads(text)
    size = ((message.get("params") or {}).get("arguments") or {}).get("bytes")
    if size is not None:
        return large(message["id"], size)
    return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result(message)}).decode()


@lru_cache(maxsize=8)
def large(id: int, size: int) -> str:
    message = {"method": "tools/call", "params": {"arguments": {"bytes": size}}}
    return orjson.dumps({"jsonrpc": "2.0", "id": id, "result": result(message)}).decode()


class Bare:
    """The bare forwarder's protocol."""

    is_ready = False

    def opened(self, now: float) -> Iterable[str]:
        self.is_ready = True
        return ()

    def received(self, texts: list[str], now: float) -> Iterable[str]:
        for text in texts:
            number, _, message = text.partition("\n")
            yield f"{number}\n{answer(message)}"

    def closed(self, now: float) -> None:
        pass

    def due(self) -> float | None:
        return None

    def fired(self, now: float) -> Iterable[str]:
        return ()


class Linked:
    """`tabrelay.v1`. It reads as a browser's worker does, and answers that the link has no room for are queued, as in
    the worker."""

    def __init__(self, server: str, inst: str, limits: Limits = DEFAULTS) -> None:
        self.link: Link[str] = Link.dialer(Greeting(server, inst, "bench"), limits)
        self.calls = 0
        self._asked: list[Received[str]] = []
        self._waiting: deque[tuple[Received[str], str]] = deque()

    @property
    def is_ready(self) -> bool:
        return self.link.is_up

    def opened(self, now: float) -> Iterable[str]:
        self.link.connected(now)
        return self._drain(now)

    def received(self, texts: list[str], now: float) -> Iterable[str]:
        for text in texts:
            header, payload = frames.split(text)
            asked = self.link.request(header, payload, now) if payload is not None else None
            if asked is None:
                self.link.receive(header, payload, now)
            else:
                self._asked.append(asked)
        return self._drain(now)

    def closed(self, now: float) -> None:
        self.link.disconnected(now)

    def due(self) -> float | None:
        return self.link.next_timer()

    def fired(self, now: float) -> Iterable[str]:
        self.link.handle_timer(now)
        return self._drain(now)

    def _drain(self, now: float) -> list[str]:
        requests, self._asked = self._asked, []
        # The answers to an event's requests come after these: while one is left, the link returns only events.
        requests += [event for event in self.link.events() if isinstance(event, Received) and event.kind is Kind.REQ]
        self._waiting.extend((event, self._answer(event)) for event in self._due_now(requests, now))
        while self._waiting:
            event, text = self._waiting[0]
            try:
                if PROGRESS in event.payload:
                    self.link.send(event.channel, Kind.NOTE, NOTICE, now, related=event.id)
                self.link.send(event.channel, Kind.RES, text, now, id=event.id)
            except BufferFull:
                break
            self._waiting.popleft()
        return [header if payload is None else f"{header}\n{payload}" for header, payload in self.link.frames()]

    def _due_now(self, requests: list[Received[str]], now: float) -> list[Received[str]]:
        """The requests that are answered in this turn: those that arrived with it."""
        return requests

    def _answer(self, event: Received[str]) -> str:
        self.calls += 1
        return answer(event.payload)


def bearer(token: str) -> str:
    return frames.BEARER_PREFIX + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


async def serve(kind: str, url: str, token: str, server: str) -> None:
    address = url.replace("http", "ws", 1) + "/" + server
    if kind == "bare":
        socket = await Socket.dial(address, [], Bare())
    else:
        socket = await Socket.dial(address, [SUBPROTOCOL, bearer(token)], Linked(server, "bench-peer"))
    announce(ready=True)
    await socket.gone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("bare", "link"))
    parser.add_argument("url", help="http://host:port of the server")
    parser.add_argument("--server", default=SERVER)
    parser.add_argument("--tools", type=int, default=1)
    args = parser.parse_args()
    TOOLS.extend(map(tool, range(1, args.tools)))
    uvloop.run(serve(args.kind, args.url, os.environ.get(TOKEN, ""), args.server))


if __name__ == "__main__":
    main()
