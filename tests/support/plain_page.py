"""A plain page in Python: MCP over a WebSocket without a link, like pages that use another SDK.

For tests that control what such a page sends and when. Tests with the real SDK use Chromium.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin, Subprotocol

from tabserver.wire import frames, jsonrpc
from tests.support.link_worker import ECHO_TOOL
from tests.support.waiting import BOUND_S

CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
    "tasks": {"list": {}},
}

Message = dict[str, Any]


class ScriptedPage:
    """Connects and answers; `received` has every message. `never_answers`: as an abandoned socket."""

    def __init__(
        self,
        url: str,
        server: str,
        *,
        origin: str | None = None,
        subprotocol: str | None = "mcp",
        name: str = "scripted",
        query: str = "",
        token: str | None = None,
        never_answers: bool = False,
    ) -> None:
        self.url = f"{url.replace('http', 'ws', 1)}/{server}{query}"
        self.origin = origin or url
        self.subprotocol = subprotocol
        self.about: Any = {"name": name, "version": "1"}
        self.token = token
        self.never_answers = never_answers
        self.version = "2025-06-18"
        self.capabilities = CAPABILITIES
        self.tools = [ECHO_TOOL]
        self.received: list[Message] = []
        self.calls: list[Message] = []
        self.on_call: Callable[[ScriptedPage, Message], None] = ScriptedPage.echo
        self.close_code: int | None = None
        self.chosen: str | None = None
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._out: list[Message] = []

    async def __aenter__(self) -> ScriptedPage:
        await self.dial()
        if not self.never_answers:
            await self.until(lambda: self.has("notifications/initialized"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.hang_up()

    async def dial(self) -> None:
        offered = [self.subprotocol] if self.subprotocol else []
        if self.token:
            offered.append(frames.BEARER_PREFIX + base64.urlsafe_b64encode(self.token.encode()).decode().rstrip("="))
        self._socket = await connect(
            self.url,
            subprotocols=[Subprotocol(entry) for entry in offered] or None,
            origin=Origin(self.origin),
            proxy=None,
            max_size=None,
        )
        self.chosen = self._socket.subprotocol
        self._reader = asyncio.create_task(self._read(self._socket))

    async def hang_up(self) -> None:
        if self._socket is not None and self._reader is not None:
            await self._socket.close()
            await self._reader

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition after a message or the end of the socket."""
        async with asyncio.timeout(BOUND_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def has(self, method: str) -> bool:
        return bool(self.of(method))

    def of(self, method: str) -> list[Message]:
        return [message for message in self.received if message.get("method") == method]

    def answer_to(self, id: object) -> Message | None:
        """The relay's response to a request of this page."""
        found = [message for message in self.received if message.get("id") == id and "method" not in message]
        return found[0] if found else None

    # -- sending -------------------------------------------------------------------------------------------------------

    def queue(self, message: Message) -> None:
        """Queue a message; it is written by the next `flush`, or at once when queued inside a handler."""
        self._out.append(message)

    async def send(self, *messages: Message) -> None:
        for message in messages:
            self.queue(message)
        await self.flush()

    async def flush(self) -> None:
        assert self._socket is not None
        while self._out:
            with suppress(ConnectionClosed):
                await self._socket.send(json.dumps(self._out.pop(0)))

    def answer(self, message: Message, result: Any, **extras: Any) -> None:
        self.queue({**jsonrpc.result_message(message["id"], result), **extras})

    def echo(self, message: Message) -> None:
        text = json.dumps((message.get("params") or {}).get("arguments"))
        self.answer(message, {"content": [{"type": "text", "text": text}]})

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for text in socket:
                message = json.loads(text)
                self.received.append(message)
                if not self.never_answers:
                    self._handle(message)
                await self.flush()
                self._changed.set()
        except ConnectionClosed:
            pass
        finally:
            self.close_code = socket.close_code
            self._changed.set()

    def _handle(self, message: Message) -> None:
        method = message.get("method")
        if method is None or "id" not in message:
            return
        if method == "initialize":
            result = {
                "protocolVersion": self.version,
                "capabilities": self.capabilities,
                "serverInfo": self.about,
            }
            self.answer(message, result)
        elif method == "tools/list":
            self.answer(message, {"tools": self.tools})
        elif method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe", "ping"):
            self.answer(message, {})
        elif method in ("tools/call", "prompts/get", "resources/read"):
            self.calls.append(message)
            self.on_call(self, message)
        else:
            self.queue(jsonrpc.error_message(message["id"], jsonrpc.METHOD_NOT_FOUND, "no such method"))
