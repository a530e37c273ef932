"""Page with MCP-B's embed widget (`@mcp-b/webmcp-local-relay`), as a plain MCP page.

The widget has a protocol of its own: it sends `hello` and its list of tools, and answers `invoke` with `result`. Here
both directions become MCP of the handshake era: what the relay writes to a plain page is answered or forwarded, and
what the widget sends is a response or a notification. It knows neither origins nor names: `widget_endpoint` does.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import orjson

from tabrelay.payloads.json_limits import is_deeper_than, is_heavy
from tabrelay.peers.browsers.plain_session import PlainSocket
from tabserver.wire import eras, jsonrpc, methods

# Of MCP-B's protocol, whose widget connects to the `host` and `port` of the hello next time.
SERVICE: Final = "webmcp-local-relay"
PROTOCOL: Final = "webmcp.v1"
CHANGED: Final = "tools/changed"
# Characters of a message that is parsed here. A longer result is passed on as text.
LARGE: Final = 64 * 1024
MAX_LIST: Final = 1024 * 1024
MAX_TOOLS: Final = 1000
# As `payloads.json_limits` counts them: parsing and checking so many takes up to 20 ms.
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 200  # levels of nesting, fewer than can be written
MAX_GREETING: Final = 8  # messages of a widget before its tools
_CALL: Final = re.compile(r'\{"type":"result","callId":"([0-9]{1,15})"')
_RESULT: Final = re.compile(r'\{"type":"result","callId":"([0-9]{1,15})","result":(?=\{)')

Message = dict[str, Any]


def server_hello(instance: str, host: str, port: int) -> str:
    """What the widget waits for after it has connected."""
    about = {"type": "server-hello", "service": SERVICE, "version": 1, "host": host, "port": port}
    return json.dumps({**about, "instanceId": instance, "relayId": instance, "label": "tabrelay"})


class WidgetPage:
    """One socket of a widget. For the relay it is the socket of a plain page (`PlainSocket`)."""

    def __init__(self, socket: PlainSocket, receive: Callable[[], Awaitable[str | None]]) -> None:
        """`receive`: the next text of the widget; None: it has gone."""
        self._socket, self._receive = socket, receive
        self._receiving: asyncio.Task[str | None] | None = None
        self._ready: deque[str] = deque()  # messages for the relay: answers to its requests, and one from the widget
        self._wake = asyncio.Event()
        self.origin = self._title = ""  # as the widget reports them
        self._tools: list[Message] = []

    async def greet(self) -> bool:
        """Wait for the widget's `hello` and its tools. False: it has gone, or sends other messages."""
        for _ in range(MAX_GREETING):
            if (text := await self._receive()) is None:
                return False
            message = _parsed(text)
            await asyncio.sleep(0)
            if message.get("type") == "hello":
                self.origin, self._title = str(message.get("origin")), str(message.get("title") or "")[:200]
            elif message.get("type") == methods.TOOLS_LIST:
                self._tools = _tools(message)
                return True
        return False

    async def stays(self, wait_s: float) -> bool:
        """Wait while the page is not admitted. False: it has gone."""
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(self._receive())
        await asyncio.wait((self._receiving,), timeout=wait_s)
        if self._receiving.done():
            text, self._receiving = self._receiving.result(), None
            if text is None:
                return False
            self._received(text)
            self._ready.clear()
            await asyncio.sleep(wait_s)  # a page that is not admitted is read slowly
        return True

    # -- from the relay -----------------------------------------------------------------------------------------------

    def write(self, frames: Sequence[tuple[str, str | None]]) -> None:
        for text, _ in frames:
            self._answer(orjson.loads(text))

    def close(self, code: int, reason: str) -> None:
        self._socket.close(code, reason)

    def _answer(self, message: Message) -> None:
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if id is None:
            return  # the widget knows no notification; it has no way to stop a tool
        if method == methods.TOOLS_CALL:
            args = params.get("arguments") or {}
            invoke = {"type": "invoke", "callId": str(id), "toolName": params.get("name"), "args": args}
            self._socket.write([(orjson.dumps(invoke).decode(), None)])
        elif method == methods.INITIALIZE:
            about = {"name": self._title or "WebMCP", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            self._say(
                jsonrpc.result_message(
                    id, {"protocolVersion": eras.NEWEST_LEGACY, "capabilities": capabilities, "serverInfo": about}
                )
            )
        elif method == methods.TOOLS_LIST:
            self._say(jsonrpc.result_message(id, {"tools": self._tools}))
        elif method == methods.PING:
            self._say(jsonrpc.result_message(id, {}))
        elif jsonrpc.is_request_id(id) and method is not None:
            self._say(jsonrpc.error_message(id, jsonrpc.METHOD_NOT_FOUND, f"The page has no method {method}."))

    def _say(self, message: Message) -> None:
        self._ready.append(orjson.dumps(message).decode())
        self._wake.set()

    # -- from the widget ----------------------------------------------------------------------------------------------

    async def next_text(self) -> str | None:
        """The next message for the relay. The widget's next one is read when this is taken."""
        try:
            while True:
                if self._ready:
                    return self._ready.popleft()
                if self._receiving is None:
                    self._receiving = asyncio.ensure_future(self._receive())
                self._wake.clear()
                waking = asyncio.ensure_future(self._wake.wait())
                try:
                    await asyncio.wait((self._receiving, waking), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waking.cancel()
                if self._receiving.done():
                    text, self._receiving = self._receiving.result(), None
                    if text is None:
                        return None
                    self._received(text)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _received(self, text: str) -> None:
        found = _RESULT.match(text)
        if found is not None and len(text) > LARGE:
            # The text of a long result is used as it is: it ends with the brace of the message.
            self._ready.append(f'{{"jsonrpc":"2.0","id":{found[1]},"result":{text[found.end() :]}')
            return
        message = _parsed(text)
        kind = message.get("type")
        if not message and (call := _CALL.match(text)) is not None:
            self._say(jsonrpc.error_message(int(call[1]), jsonrpc.INTERNAL_ERROR, "The tool's result can't be read."))
        elif kind == "result":
            self._received_result(message)
        elif kind in (methods.TOOLS_LIST, CHANGED):
            self._tools = _tools(message)
            self._say(jsonrpc.notification(methods.TOOLS_LIST_CHANGED, None))

    def _received_result(self, message: Message) -> None:
        call, result = message.get("callId"), message.get("result")
        if not isinstance(call, str) or not call.isdecimal() or len(call) > 15:
            return
        if not isinstance(result, dict):
            self._say(jsonrpc.error_message(int(call), jsonrpc.INTERNAL_ERROR, "The tool returned nothing."))
            return
        if not isinstance(result.get("content"), list):
            content = [{"type": "text", "text": json.dumps(result, ensure_ascii=False)}]
            result = {"content": content, "structuredContent": result}
        self._say(jsonrpc.result_message(int(call), result))


def _parsed(text: str) -> Message:
    """A message of the widget. Empty: it has another form, is too long, has too many values or nests too deeply."""
    # defence: loop time of a widget's messages
    if len(text) > MAX_LIST or is_heavy(text, MAX_VALUES):
        return {}
    try:
        found = orjson.loads(text)
    except ValueError:
        return {}
    # defence: levels of nesting in a widget's messages
    return found if isinstance(found, dict) and not is_deeper_than(found, MAX_DEPTH) else {}


def _tools(message: Message) -> list[Message]:
    """The tools of a list. What is wrong in one of them is found where lists of all servers are checked."""
    given = message.get("tools")
    tools = [tool for tool in given[:MAX_TOOLS] if isinstance(tool, dict)] if isinstance(given, list) else []
    return [
        tool if isinstance(tool.get("inputSchema"), dict) else {**tool, "inputSchema": {"type": "object"}}
        for tool in tools
    ]
