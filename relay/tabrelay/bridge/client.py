"""Small MCP client for the commands `tools`, `call` and `stdio --check`.

It sends through the bridge, and so has its retries and timeouts. It supports both eras: it tries the modern one first
and falls back to the handshake. It is not an SDK: values are plain JSON, and it has only what the commands need.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tabrelay import __version__
from tabrelay.bridge import errors
from tabrelay.bridge.bridge import Bridge
from tabrelay.bridge.messages import dump, load
from tabrelay.bridge.outbound import Outbound
from tabrelay.payloads.list_checks import read_server_description
from tabrelay.system.tasks import BackgroundTasks
from tabserver.wire import jsonrpc, methods
from tabserver.wire.eras import (
    META_CAPABILITIES,
    META_CLIENT,
    META_SERVER_INFO,
    META_VERSION,
    MODERN_VERSIONS,
    NEWEST_LEGACY,
)

INFO: Final = {"name": "tabrelay", "version": __version__}
MAX_ROUNDS: Final = 10
MAX_PAGES: Final = 1000

Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]
OnProgress = Callable[[dict[str, Any]], None]


class RequestFailed(Exception):
    """The error that the server or the bridge returned instead of a result."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "no reason was given")))
        self.code = error.get("code")
        self.data = error.get("data")

    @property
    def help(self) -> str | None:
        """The code of the entry in the reference; None for an error of a server that has no such codes."""
        found = self.data.get("help") if isinstance(self.data, dict) else None
        return found if isinstance(found, str) and re.fullmatch(r"TR\d{3}", found) else None

    @property
    def is_unreachable(self) -> bool:
        """The server could not be reached: no connection, a timeout, no token. False when the server refused."""
        return self.code in (errors.FAILED, errors.REFUSED)


@dataclass(frozen=True, slots=True)
class ServerDescription:
    """What the server reports about itself."""

    version: str
    server: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    instructions: str | None = None

    @property
    def is_modern(self) -> bool:
        return self.version in MODERN_VERSIONS


class McpClient:
    """Use it with `async with`, and call `negotiate` first. `answer` handles the server's questions to the user."""

    def __init__(self, outbound: Outbound, *, answer: Answer | None = None, has_server_stream: bool = False) -> None:
        self.broken = asyncio.Event()  # part of the bridge's Output protocol; never set here
        self._outbound = outbound
        self._bridge = Bridge(outbound, self, has_server_stream=has_server_stream)
        self._answer = answer
        self._capabilities: dict[str, Any] = {} if answer is None else {"elicitation": {"form": {}, "url": {}}}
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._on_progress: dict[int, OnProgress] = {}
        self._tasks = BackgroundTasks()
        self._meta: dict[str, Any] = {}

    async def __aenter__(self) -> McpClient:
        self._running = asyncio.create_task(self._bridge.run(self._chunks()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.cancel()
        self._lines.put_nowait(b"")
        await self._running

    @property
    def where(self) -> str:
        """The URL of the server."""
        return self._outbound.where

    async def negotiate(self) -> ServerDescription:
        """Finds out the server's era and description. Raises RequestFailed."""
        self._meta = {
            META_VERSION: MODERN_VERSIONS[0],
            META_CAPABILITIES: self._capabilities,
            META_CLIENT: INFO,
        }
        try:
            found = await self.request(methods.SERVER_DISCOVER)
        except RequestFailed as error:
            is_about_token = isinstance(error.data, dict) and error.data.get("status") in (401, 403)
            if error.code == errors.FAILED or is_about_token:
                raise
        else:
            supported, about, meta = found.get("supportedVersions"), read_server_description(found), found.get("_meta")
            if isinstance(supported, list) and any(version in supported for version in MODERN_VERSIONS):
                server = read_server_description(
                    {"serverInfo": meta.get(META_SERVER_INFO)} if isinstance(meta, dict) else {}
                )
                return _description(MODERN_VERSIONS[0], server, about)
        self._meta = {}
        params = {"protocolVersion": NEWEST_LEGACY, "capabilities": self._capabilities, "clientInfo": INFO}
        found = await self.request(methods.INITIALIZE, params)
        await self._send(jsonrpc.notification(methods.INITIALIZED))
        about = read_server_description(found)
        return _description(str(about.get("protocolVersion")), about, about)

    async def all(self, method: str, member: str) -> list[dict[str, Any]]:
        """Every page of a list. Raises RequestFailed."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            page = await self.request(method, cursor)
            rows = page.get(member)
            found += [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            if page.get("nextCursor") is None:
                break
            cursor = {"cursor": page["nextCursor"]}
        return found

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> dict[str, Any]:
        """A tool's result; questions of the server are answered in between. Raises RequestFailed."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        for _ in range(MAX_ROUNDS):
            result: dict[str, Any] = await self.request(methods.TOOLS_CALL, params, on_progress)
            if result.get("resultType") != "input_required":
                return result
            params = {"name": tool, "arguments": arguments, "inputResponses": await self._responses(result)}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise RequestFailed(
            {"code": jsonrpc.INTERNAL_ERROR, "message": f"The server asked for more input {MAX_ROUNDS} times."}
        )

    async def request(
        self, method: str, params: dict[str, Any] | None = None, on_progress: OnProgress | None = None
    ) -> Any:
        """Raises RequestFailed. Cancelling the caller cancels the request."""
        id = next(self._ids)
        meta = {**self._meta, **({"progressToken": id} if on_progress is not None else {})}
        whole = {**(params or {}), **({"_meta": meta} if meta else {})}
        if not _has_json_form(whole):  # the bridge answers a line that is not JSON, but without an id
            text = "The arguments contain a value that has no JSON form, such as NaN."
            raise RequestFailed({"code": jsonrpc.INVALID_PARAMS, "message": text})
        if on_progress is not None:
            self._on_progress[id] = on_progress
        self._waiting[id] = asyncio.get_running_loop().create_future()
        await self._send(jsonrpc.request(id, method, whole))
        try:
            answer = await self._waiting[id]
        except asyncio.CancelledError:
            await self._send(jsonrpc.notification(methods.CANCELLED, {"requestId": id}))
            raise
        finally:
            self._waiting.pop(id, None)
            self._on_progress.pop(id, None)
        if "error" in answer:
            raise RequestFailed(answer["error"] if isinstance(answer["error"], dict) else {})
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    # -- the bridge's two ends -----------------------------------------------------------------------------------------

    async def _send(self, value: dict[str, Any]) -> None:
        self._lines.put_nowait(dump(value) + b"\n")

    async def _chunks(self) -> AsyncIterator[bytes]:
        while line := await self._lines.get():
            yield line

    async def write(self, line: bytes) -> None:
        """A line of the server, from the bridge."""
        message = load(line)
        if not isinstance(message, dict):
            return
        method, given, id = message.get("method"), message.get("params"), message.get("id")
        params: dict[str, Any] = given if isinstance(given, dict) else {}
        if method is None:
            waiting = self._waiting.get(id) if isinstance(id, int) else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif "id" in message:
            self._tasks.start(self._answer_request(message["id"], method, params))
        elif method == methods.PROGRESS and isinstance(token := params.get("progressToken"), int):
            self._on_progress.get(token, _ignore)(params)

    async def _answer_request(self, id: Any, method: str, params: dict[str, Any]) -> None:
        """Answers a request of a server of the handshake era."""
        if method == methods.PING:
            await self._send(jsonrpc.result_message(id, {}))
        elif method == methods.ELICITATION_CREATE and self._answer is not None:
            await self._send(jsonrpc.result_message(id, await self._answer(method, params)))
        else:
            text = f"This client does not support {method}."
            await self._send(jsonrpc.error_message(id, jsonrpc.METHOD_NOT_FOUND, text))

    async def _responses(self, result: dict[str, Any]) -> dict[str, Any]:
        """Answers the questions of the modern era, which come in place of a result."""
        found = {}
        asked = result.get("inputRequests")
        for key, question in (asked if isinstance(asked, dict) else {}).items():
            question = question if isinstance(question, dict) else {}
            if question.get("method") != methods.ELICITATION_CREATE or self._answer is None:
                text = f"The server asks for {question.get('method')}, which this client does not support."
                raise RequestFailed({"code": jsonrpc.MISSING_CAPABILITY, "message": text})
            found[key] = await self._answer(methods.ELICITATION_CREATE, question.get("params") or {})
        return found


def _description(version: str, server: dict[str, Any], about: dict[str, Any]) -> ServerDescription:
    return ServerDescription(
        version, server.get("serverInfo", {}), about.get("capabilities", {}), about.get("instructions")
    )


def _has_json_form(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _ignore(params: dict[str, Any]) -> None:
    """Progress of a request that has ended."""
