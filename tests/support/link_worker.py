"""A browser worker in Python: the real link over a real WebSocket, without a browser.

For tests of the relay that control what a browser sends and when. Tests of the product use Chromium.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin, Subprotocol

from tabserver.wire import frames, jsonrpc
from tabserver.wire.events import Event, Opened, Received
from tabserver.wire.frames import SUBPROTOCOL, Greeting, Kind
from tabserver.wire.link import Link
from tests.support.hook.tap import FAKE_BUILD
from tests.support.waiting import BOUND_S

ECHO_TOOL = {"name": "echo", "description": "Say it again.", "inputSchema": {"type": "object"}}
OTHER_TOOL = {**ECHO_TOOL, "name": "other"}

# Members of a modern discovery result.
MODERN = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "synthetic", "version": "1"}},
}

# A modern tool result without content, as `answer` makes it.
DONE: dict[str, Any] = {"resultType": "complete", "content": []}

Answer = Callable[["SyntheticWorker", Received[str], dict[str, Any]], None]


def bearer(token: str) -> str:
    """A token in the form that a WebSocket handshake carries."""
    return frames.BEARER_PREFIX + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


class SyntheticWorker:
    """Connects to the relay and answers its requests; records every event."""

    def __init__(
        self,
        url: str,
        token: str,
        server: str,
        *,
        inst: str = "w1",
        origin: str | None = None,
        browser: str | None = None,
    ) -> None:
        self.url = url.replace("http", "ws", 1) + "/" + server
        self.token = token
        self.origin = origin
        self.link: Link[str] = Link.dialer(Greeting(server, inst, FAKE_BUILD, browser))
        self.seen: list[Event] = []
        self.calls: list[dict[str, Any]] = []
        self.on_call: Answer = SyntheticWorker.echo
        self.on_listen: Callable[[Received[str]], None] = lambda event: None
        self.tools: list[dict[str, Any]] = [ECHO_TOOL]
        self.instructions: str | None = None
        self.close_code: int | None = None
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._out: asyncio.Queue[str] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        await self.dial()
        await self.until(lambda: self.link.is_up)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.hang_up()

    async def dial(self) -> None:
        self._socket = await connect(
            self.url,
            subprotocols=[Subprotocol(SUBPROTOCOL), Subprotocol(bearer(self.token))],
            origin=Origin(self.origin) if self.origin else None,
            proxy=None,
            max_size=None,
        )
        self.link.connected(self._now())
        self._reader = asyncio.create_task(self._read(self._socket))
        await self.flush()

    async def hang_up(self) -> None:
        """Close the socket; the link remains and `dial` can resume it."""
        if self._socket is not None:
            await self._socket.close()
            await self._finished()

    async def cut(self) -> None:
        """Drop the socket without a close frame, as a failing network does."""
        assert self._socket is not None
        self._socket.transport.abort()
        await self._finished()

    async def offer(self, tools: list[dict[str, Any]]) -> None:
        """Offer other tools from now on, and notify the relay, which then reads the list again."""
        self.tools = tools
        await self._notify_relay("notifications/tools/list_changed")

    async def show_tabs(self, *ids: str, used: int) -> None:
        """Report these tabs to the relay, and how often the user has switched to each of them."""
        await self.until(lambda: bool(self._relay_channels()))
        tabs = [{"id": id, "title": f"Tab {id}", "visible": True} for id in ids]
        await self._notify_relay("$/tabrelay/tabs", {"tabs": tabs, "used": used})

    def _relay_channels(self) -> list[str]:
        """The relay's own channels."""
        opened = (event for event in self.seen if isinstance(event, Opened))
        return [event.channel for event in opened if event.caller.principal == "relay"]

    async def report(self, *tabs: dict[str, Any], **more: Any) -> None:
        """Report tabs to the relay, with any other members."""
        await self.until(lambda: bool(self._relay_channels()))
        await self._notify_relay("$/tabrelay/tabs", {"tabs": tabs, "used": 0, **more})

    async def _notify_relay(self, method: str, params: dict[str, Any] | None = None) -> None:
        note = json.dumps(jsonrpc.notification(method, params))
        for channel in self._relay_channels():
            self.link.send(channel, Kind.NOTE, note, self._now())
        await self.flush()

    def pause(self) -> None:
        """Stop reading, as a blocked browser does; the socket stays open."""
        assert self._socket is not None
        self._socket.transport.pause_reading()

    def resume(self) -> None:
        assert self._socket is not None
        self._socket.transport.resume_reading()

    async def dropped(self) -> None:
        """Wait until the relay has closed the socket: read what it had sent before, then close."""
        self.resume()
        await self._finished()

    async def _finished(self) -> None:
        assert self._reader is not None
        await self._reader
        self.link.disconnected(self._now())
        self._socket = None

    async def until(self, condition: Callable[[], bool], timeout_s: float = BOUND_S) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def flush(self) -> None:
        for header, payload in self.link.frames():
            if self._socket is not None:
                with suppress(ConnectionClosed):
                    await self._socket.send(header if payload is None else f"{header}\n{payload}")

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for text in socket:
                assert isinstance(text, str)
                self.link.receive(*frames.split(text), self._now())
                for event in self.link.events():
                    self.seen.append(event)
                    if isinstance(event, Received):
                        self._received(event)
                await self.flush()
                self._changed.set()
        except ConnectionClosed:
            pass
        finally:
            self.close_code = socket.close_code
            self._changed.set()

    def _received(self, event: Received[str]) -> None:
        message = json.loads(event.payload)
        if event.kind is not Kind.REQ:
            return
        method = message["method"]
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "synthetic", "version": "1"},
                **self._instructions(),
            }
            self.answer(event, result)
        elif method == "tools/list":
            self.answer(event, {"tools": self.tools} | (MODERN if event.caller is not None else {}))
        elif method == "server/discover":
            about = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **self._instructions()}
            self.answer(event, MODERN | about)
        elif method == "subscriptions/listen":
            self.on_listen(event)
        elif method == "tools/call":
            self.calls.append(message)
            self.on_call(self, event, message)
        else:
            error = jsonrpc.error_message(message["id"], jsonrpc.METHOD_NOT_FOUND, "no such method")
            self.send(event, Kind.RES, error)

    def _instructions(self) -> dict[str, Any]:
        return {} if self.instructions is None else {"instructions": self.instructions}

    def echo(self, event: Received[str], message: dict[str, Any]) -> None:
        text = json.dumps(message["params"].get("arguments"))
        self.answer(event, {"content": [{"type": "text", "text": text}]})

    def answer(self, event: Received[str], result: dict[str, Any]) -> None:
        """Answer in the form of the caller's era: only a modern request carries its caller."""
        assert event.id is not None
        shaped = {"resultType": "complete"} | result if event.caller is not None else result
        self.send(event, Kind.RES, jsonrpc.result_message(event.id, shaped))

    async def change_tools(self, tools: list[dict[str, Any]], times: int = 1) -> None:
        """Offer other tools, and notify as a server does: in every session, and on every subscription."""
        self.tools = tools
        note = jsonrpc.notification("notifications/tools/list_changed")
        for _ in range(times):
            for event in list(self.seen):
                if isinstance(event, Opened):
                    self.link.send(event.channel, Kind.NOTE, json.dumps(note), self._now())
                elif isinstance(event, Received) and '"subscriptions/listen"' in event.payload:
                    meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": event.id}}
                    self.send(event, Kind.NOTE, note | {"params": meta})
        await self.flush()

    def send(self, event: Received[str], kind: Kind, message: dict[str, Any]) -> None:
        """Send a message on the channel of an event; outside the reader, `flush` writes it."""
        self.send_text(event, kind, json.dumps(message))

    def send_text(self, event: Received[str], kind: Kind, text: str) -> None:
        self.link.send(
            event.channel,
            kind,
            text,
            self._now(),
            id=event.id if kind is Kind.RES else None,
            related=event.id if kind is Kind.NOTE else None,
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
