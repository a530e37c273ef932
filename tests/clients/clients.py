"""Real MCP clients, driven alike. `work`: list, call, get progress, cancel. `call`: list, then call one tool.

Each gives a dict: version, tools, text, progress, cancelled, after; or `error` (code, message, data) of a call; or
`failure`, the text that a user would see, when it did not come so far.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import httpx2
from fastmcp import Client as FastClient
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.support.node import MODULES, node

Outcome = dict[str, Any]
SCRIPT = Path(__file__).parent / "typescript.mjs"
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"


class McpClient(Protocol):
    """One client in one mode."""

    name: str
    # What it says that it speaks with a relay that speaks everything.
    version: str

    async def work(self, url: str, token: str) -> Outcome: ...

    async def call(self, url: str, token: str, tool: str) -> Outcome: ...


class TypeScript:
    """SDK v1 or v2 in a Node process."""

    def __init__(self, sdk: str, mode: str, version: str) -> None:
        self.name = f"typescript-{sdk}-{mode}"
        self.version = version
        self._arguments = (sdk, mode)

    async def work(self, url: str, token: str) -> Outcome:
        return await self._run(url, token, "work")

    async def call(self, url: str, token: str, tool: str) -> Outcome:
        return await self._run(url, token, "call", tool)

    async def _run(self, *arguments: str) -> Outcome:
        ended = await node(SCRIPT, *self._arguments, *arguments, timeout_s=60)
        assert ended.code == 0, ended.err
        outcome: Outcome = json.loads(ended.out)
        return outcome


class _Python:
    """What the two Python clients have in common: they raise the same error."""

    name: str
    version: str

    async def call(self, url: str, token: str, tool: str) -> Outcome:
        outcome: Outcome = {}
        try:
            await self._call(url, token, tool, outcome)
        except Exception as error:
            found = _mcp_error(error)
            if found is None or "tools" not in outcome:
                outcome["failure"] = _words(error)
            else:
                outcome["error"] = {"code": found.code, "message": found.message, "data": found.data}
        return outcome

    async def _call(self, url: str, token: str, tool: str, outcome: Outcome) -> None:
        raise NotImplementedError


class PythonSdk(_Python):
    """The official SDK."""

    def __init__(self, mode: str, version: str) -> None:
        self.name = f"python-{mode}"
        self.version = version
        self._mode: Any = mode

    def _client(self, url: str, http: httpx2.AsyncClient) -> Client:
        return Client(streamable_http_client(url, http_client=http), mode=self._mode)

    async def work(self, url: str, token: str) -> Outcome:
        async with _http(token) as http, self._client(url, http) as client:
            heard: list[float] = []

            async def step(progress: float, total: float | None, message: str | None) -> None:
                heard.append(progress)

            tools = [tool.name for tool in (await client.list_tools()).tools]
            echoed: Any = await client.call_tool("echo", {"text": "hello"})
            await client.call_tool("steps", {}, progress_callback=step)
            cancelled = await _cancel(lambda begun: client.call_tool("hang", {}, progress_callback=begun))
            after: Any = await client.call_tool("echo", {"text": "after"})
            return {
                "version": client.protocol_version,
                "tools": tools,
                "text": echoed.content[0].text,
                "progress": heard,
                "cancelled": cancelled,
                "after": after.content[0].text,
            }

    async def _call(self, url: str, token: str, tool: str, outcome: Outcome) -> None:
        async with _http(token) as http, self._client(url, http) as client:
            outcome["version"] = client.protocol_version
            outcome["tools"] = [tool.name for tool in (await client.list_tools()).tools]
            result: Any = await client.call_tool(tool, {})
            outcome["text"] = result.content[0].text


class FastMcp(_Python):
    """FastMCP's client."""

    def __init__(self, mode: str, version: str) -> None:
        self.name = f"fastmcp-{mode}"
        self.version = version
        self._mode: Any = mode

    def _client(self, url: str, token: str) -> Any:
        return FastClient(StreamableHttpTransport(url, auth=token), mode=self._mode)

    async def work(self, url: str, token: str) -> Outcome:
        async with self._client(url, token) as client:
            heard: list[float] = []

            async def step(progress: float, total: float | None, message: str | None) -> None:
                heard.append(progress)

            tools = [tool.name for tool in await client.list_tools()]
            echoed = await client.call_tool("echo", {"text": "hello"})
            await client.call_tool("steps", {}, progress_handler=step)
            cancelled = await _cancel(lambda begun: client.call_tool("hang", {}, progress_handler=begun))
            after = await client.call_tool("echo", {"text": "after"})
            return {
                "version": self.version,
                "tools": tools,
                "text": echoed.content[0].text,
                "progress": heard,
                "cancelled": cancelled,
                "after": after.content[0].text,
            }

    async def _call(self, url: str, token: str, tool: str, outcome: Outcome) -> None:
        async with self._client(url, token) as client:
            outcome["version"] = self.version
            outcome["tools"] = [tool.name for tool in await client.list_tools()]
            result = await client.call_tool(tool, {})
            outcome["text"] = result.content[0].text


class Inspector:
    """The Inspector's command line: it can list and call."""

    def __init__(self, era: str, version: str) -> None:
        self.name = f"inspector-{era}"
        self.version = version
        self._era = era

    async def _run(self, url: str, token: str, *arguments: str) -> Any:
        flags = ("--transport", "http", "--protocol-era", self._era, "--format", "json")
        header = ("--header", f"Authorization: Bearer {token}")
        ended = await node(INSPECTOR, "--cli", url, *flags, *header, *arguments, timeout_s=60)
        if ended.code:
            return {"failure": ended.err + ended.out}
        return json.loads(ended.out)

    async def work(self, url: str, token: str) -> Outcome:
        listed = await self._run(url, token, "--method", "tools/list")
        assert "failure" not in listed, listed
        arguments = ("--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hello")
        echoed = await self._run(url, token, *arguments)
        assert "failure" not in echoed, echoed
        return {"tools": _names(listed), "text": _first_text(echoed)}

    async def call(self, url: str, token: str, tool: str) -> Outcome:
        listed = await self._run(url, token, "--method", "tools/list")
        if "failure" in listed:
            return dict(listed)
        called = await self._run(url, token, "--method", "tools/call", "--tool-name", tool)
        found = called if "failure" in called else {"text": _first_text(called)}
        return {"tools": _names(listed)} | found


def _http(token: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60)


async def _cancel(start: Any) -> bool:
    """Begin a call, and give it up when it has begun."""
    began = asyncio.Event()

    async def begun(*_: object) -> None:
        began.set()

    task: asyncio.Future[Any] = asyncio.ensure_future(start(begun))
    async with asyncio.timeout(20):
        await began.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return task.cancelled()


def _mcp_error(error: BaseException) -> Any:
    """The protocol's error, in whatever groups it was wrapped."""
    if isinstance(error, MCPError):
        return error.error
    inner = getattr(error, "exceptions", ())
    return next((found for one in inner if (found := _mcp_error(one)) is not None), None)


def _words(error: BaseException) -> str:
    """What went wrong, in all the groups that it was wrapped in."""
    inner = getattr(error, "exceptions", ())
    return " / ".join(_words(one) for one in inner) if inner else f"{type(error).__name__}: {error}"


def _names(listed: Any) -> list[str]:
    return [tool["name"] for tool in listed.get("result", listed)["tools"]]


def _first_text(result: Any) -> str:
    return str(result.get("result", result)["content"][0]["text"])


MODERN, LEGACY = "2026-07-28", "2025-11-25"
CLIENTS: tuple[McpClient, ...] = (
    PythonSdk("auto", MODERN),
    PythonSdk("legacy", LEGACY),
    PythonSdk(MODERN, MODERN),
    FastMcp("auto", MODERN),
    FastMcp("legacy", LEGACY),
    TypeScript("v1", "legacy", LEGACY),
    TypeScript("v1", "sse", "2024-11-05"),
    TypeScript("v2", "legacy", LEGACY),
    TypeScript("v2", "auto", MODERN),
)
INSPECTORS: tuple[McpClient, ...] = (Inspector("legacy", LEGACY), Inspector("modern", MODERN))
