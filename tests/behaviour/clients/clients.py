"""Real MCP clients behind one interface: connect, list, call, receive progress, cancel.

The outcome of a call is a dict: `text` (with `is_error` and `progress`), or `error` (code, message, data) for a
protocol error, or `failure`, the text that a user would see. What fails before that raises Failure.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.support.nodejs import MODULES, NODE, ROOT, node
from tests.support.running_relay import ACCEPT, events, modern
from tests.support.waiting import BOUND_S

Outcome = dict[str, Any]
HERE = Path(__file__).parent
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
WAIT_S = BOUND_S


class Failure(Exception):
    """The client failed before a call; the text is what a user would see."""


class BridgeClient(Protocol):
    """A connection. `version`: the protocol version, if the client reports it."""

    @property
    def version(self) -> str | None: ...

    async def tools(self) -> list[str]: ...

    async def call(self, tool: str, **arguments: Any) -> Outcome: ...

    async def cancel(self, tool: str) -> bool:
        """Start a call and cancel it once it runs; False if it ended in another way."""


class McpClient:
    """One client in one mode. `version`: what it negotiates with a relay that supports all versions."""

    name: str
    version: str

    @asynccontextmanager
    async def connect(self, url: str, token: str) -> AsyncIterator[BridgeClient]:
        """Raises Failure if that is not possible."""
        async with AsyncExitStack() as stack:
            try:
                talk = await self._open(stack, url, token)
            except Exception as error:
                raise Failure(_words(error)) from error
            yield talk

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        raise NotImplementedError


# -- Python -----------------------------------------------------------------------------------------------------------


class PythonTalk:
    """The two Python clients have the same methods under two names, and raise the same error."""

    def __init__(self, client: Any, progress: str) -> None:
        self._client = client
        self._progress = progress
        self.version = client.protocol_version

    async def tools(self) -> list[str]:
        found = await self._client.list_tools()
        return [tool.name for tool in getattr(found, "tools", found)]

    async def call(self, tool: str, **arguments: Any) -> Outcome:
        received: list[float] = []

        async def step(progress: float, total: float | None, message: str | None) -> None:
            received.append(progress)

        more: dict[str, Any] = {} if self._progress == "progress_callback" else {"raise_on_error": False}
        try:
            result = await self._client.call_tool(tool, arguments, **{self._progress: step}, **more)
        except Exception as error:
            found = _mcp_error(error)
            if found is None:
                return {"failure": _words(error)}
            return {"error": {"code": found.code, "message": found.message, "data": found.data}}
        is_error = getattr(result, "is_error", False)
        return {"text": result.content[0].text, "is_error": is_error, "progress": received}

    async def cancel(self, tool: str) -> bool:
        began = asyncio.Event()

        async def begun(*_: object) -> None:
            began.set()

        calling = self._client.call_tool(tool, {}, **{self._progress: begun})
        task: asyncio.Future[Any] = asyncio.ensure_future(calling)
        async with asyncio.timeout(WAIT_S):
            await began.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return task.cancelled()


class PythonSdk(McpClient):
    """The official SDK."""

    def __init__(self, mode: str, version: str) -> None:
        self.name = f"python-{mode}"
        self.version = version
        self._mode: Any = mode

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        headers = {"Authorization": f"Bearer {token}"}
        http = httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60)
        transport = streamable_http_client(url, http_client=await stack.enter_async_context(http))
        return PythonTalk(await stack.enter_async_context(Client(transport, mode=self._mode)), "progress_callback")


class FastMcp(McpClient):
    """FastMCP's client."""

    def __init__(self, mode: str, version: str) -> None:
        self.name = f"fastmcp-{mode}"
        self.version = version
        self._mode: Any = mode

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        # The import takes a second, so only the process that needs it does it.
        from fastmcp import Client as FastClient
        from fastmcp.client.transports import StreamableHttpTransport

        client: Any = FastClient(StreamableHttpTransport(url, auth=token), mode=self._mode)
        return PythonTalk(await stack.enter_async_context(client), "progress_handler")


# -- TypeScript -------------------------------------------------------------------------------------------------------


class NodeDriver:
    """One Node process for any number of TypeScript clients. Start it with `async with`."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> NodeDriver:
        self._process = await asyncio.create_subprocess_exec(
            *(NODE, HERE / "typescript.mjs"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        self._reader = asyncio.create_task(self._read(self._process))
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process is not None and self._process.stdin is not None and self._reader is not None
        self._process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            await self._process.wait()
        await self._reader

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            answer = json.loads(line)
            self._waiting.pop(answer.pop("n")).set_result(answer)

    async def ask(self, verb: str, **more: Any) -> Outcome:
        assert self._process is not None and self._process.stdin is not None
        number = next(self._numbers)
        waiting: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self._process.stdin.write(json.dumps({"n": number, "do": verb, **more}).encode() + b"\n")
        async with asyncio.timeout(WAIT_S):
            return await waiting


class NodeTalk:
    def __init__(self, driver: NodeDriver, number: int, version: str | None) -> None:
        self._driver = driver
        self._number = number
        self.version = version

    async def tools(self) -> list[str]:
        found = await self._driver.ask("tools", talk=self._number)
        if "failure" in found:
            raise Failure(found["failure"])
        return list(found["tools"])

    async def call(self, tool: str, **arguments: Any) -> Outcome:
        return await self._driver.ask("call", talk=self._number, tool=tool, args=arguments)

    async def cancel(self, tool: str) -> bool:
        return bool((await self._driver.ask("cancel", talk=self._number, tool=tool))["cancelled"])

    async def close(self) -> None:
        await self._driver.ask("close", talk=self._number)


class TypeScript(McpClient):
    """SDK v1 or v2. `driver` is given before the first connection."""

    driver: NodeDriver
    _talks = itertools.count(1)

    def __init__(self, sdk: str, mode: str, version: str) -> None:
        self.name = f"typescript-{sdk}-{mode}"
        self.version = version
        self._how: dict[str, Any] = {"sdk": sdk, "mode": mode}

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        number = next(self._talks)
        found = await self.driver.ask("connect", talk=number, url=url, token=token, **self._how)
        if "failure" in found:
            raise Failure(found["failure"])
        talk = NodeTalk(self.driver, number, found["version"])
        stack.push_async_callback(talk.close)
        return talk


# -- through `tabrelay stdio` ------------------------------------------------------------------------------------------


def bridge(url: str, token: str) -> dict[str, Any]:
    """The command with which a client starts it."""
    arguments = ["-m", "tabrelay", "stdio", url, "--token-env", "BRIDGE_TOKEN"]
    return {"command": sys.executable, "args": arguments, "env": {**os.environ, "BRIDGE_TOKEN": token}}


class BridgedTypeScript(TypeScript):
    """The same client, connected to a child process."""

    def __init__(self, sdk: str, mode: str, version: str) -> None:
        super().__init__(sdk, mode, version)
        self.name += "-stdio"

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        self._how = {**self._how, "child": bridge(url, token)}
        return await super()._open(stack, url, token)


class BridgedFastMcp(McpClient):
    def __init__(self, mode: str, version: str) -> None:
        self.name = f"fastmcp-{mode}-stdio"
        self.version = version
        self._mode: Any = mode

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        from fastmcp import Client as FastClient
        from fastmcp.client.transports import StdioTransport

        client: Any = FastClient(StdioTransport(**bridge(url, token), keep_alive=False), mode=self._mode)
        return PythonTalk(await stack.enter_async_context(client), "progress_handler")


# -- the Inspector's command line -------------------------------------------------------------------------------------


class InspectorTalk:
    """Every command is a process with its own connection."""

    version = None

    def __init__(self, era: str, url: str, token: str) -> None:
        self._era = era
        flags = ("--transport", "http", "--protocol-era", era, "--format", "json")
        self._command = (INSPECTOR, "--cli", url, *flags, "--header", f"Authorization: Bearer {token}")

    async def _run(self, *arguments: str, hastily: bool = False) -> Outcome:
        env = {"NODE_OPTIONS": f"--import={(HERE / 'hasty.mjs').as_uri()}"} if hastily else None
        ended = await node(*self._command, *arguments, timeout_s=60, env=env)
        return {"failure": ended.err + ended.out} if ended.code else dict(json.loads(ended.out))

    async def tools(self) -> list[str]:
        listed = await self._run("--method", "tools/list")
        if "failure" in listed:
            raise Failure(listed["failure"])
        return [tool["name"] for tool in listed.get("result", listed)["tools"]]

    async def call(self, tool: str, **arguments: Any) -> Outcome:
        """It receives progress if a token is passed, and displays none: see `test_clients`."""
        asked = ("--tool-args-json", json.dumps(arguments), "--tool-metadata", "progressToken=p1")
        called = await self._run("--method", "tools/call", "--tool-name", tool, *asked)
        if "failure" in called:
            return called
        result = called.get("result", called)
        return {"text": result["content"][0]["text"], "is_error": result.get("isError", False), "progress": None}

    async def call_with_texts(self, tool: str, **arguments: str) -> Outcome:
        """As a user types it: each argument is text, and the Inspector converts it by the tool's schema."""
        pairs = [part for name, text in arguments.items() for part in ("--tool-arg", f"{name}={text}")]
        called = await self._run("--method", "tools/call", "--tool-name", tool, *pairs)
        return called if "failure" in called else dict(called.get("result", called))

    async def cancel(self, tool: str) -> bool:
        """It has no command for cancellation, but times out after a minute.

        Then it exits, which cancels a modern request. In the handshake era it must run a little longer, or it exits
        before it has sent notifications/cancelled; in that era it makes the call twice.
        """
        twice = ("--load", "--load-requests", "2", "--load-concurrency", "1") if self._era == "legacy" else ()
        called = await self._run("--method", "tools/call", "--tool-name", tool, *twice, hastily=True)
        return "timed out" in json.dumps(called).lower()


class Inspector(McpClient):
    def __init__(self, era: str, version: str) -> None:
        self.name = f"inspector-{era}"
        self.version = version
        self._era = era

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        return InspectorTalk(self._era, url, token)


# -- requests made with curl -------------------------------------------------------------------------------------------


class CurlTalk:
    """Commands that a user would type. Every request is a process."""

    version = None

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": ACCEPT,
            "Content-Type": "application/json",
        }
        self._numbers = itertools.count(1)

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return modern(method, params, id=next(self._numbers))

    async def _start(self, request: dict[str, Any], *flags: str) -> asyncio.subprocess.Process:
        headers = self._headers | request["headers"]
        lines = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
        process = await asyncio.create_subprocess_exec(
            *("curl", "-sSN", "--noproxy", "*", "--max-time", str(WAIT_S), *flags, *lines, "-d", "@-", self._url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(request["json"]).encode())
        process.stdin.close()
        return process

    async def _messages(self, process: asyncio.subprocess.Process) -> list[Any]:
        """Every message of the response. Without --fail, curl shows the body of an error too."""
        assert process.stdout is not None and process.stderr is not None
        out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
        assert await process.wait() == 0, err
        text = out.decode()
        return [json.loads(data) for data in events(text) or [text]]

    async def ask(self, method: str, params: dict[str, Any]) -> list[Any]:
        return await self._messages(await self._start(self._request(method, params)))

    async def tools(self) -> list[str]:
        [answer] = await self.ask("tools/list", {})
        if "error" in answer:
            raise Failure(json.dumps(answer))
        return [tool["name"] for tool in answer["result"]["tools"]]

    def _calling(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._request("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p1"}})

    async def call(self, tool: str, **arguments: Any) -> Outcome:
        *notes, answer = await self._messages(await self._start(self._calling(tool, arguments)))
        if "error" in answer:
            # Without an id it is not a response to the call, but a rejection of the HTTP request.
            return {"failure": json.dumps(answer)} if answer["id"] is None else {"error": answer["error"]}
        result = answer["result"]
        progress = [note["params"]["progress"] for note in notes if note["method"] == "notifications/progress"]
        return {"text": result["content"][0]["text"], "is_error": result.get("isError", False), "progress": progress}

    async def cancel(self, tool: str) -> bool:
        """Ctrl+C."""
        request = self._calling(tool, {})
        process = await self._start(request)
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            while b'"notifications/progress"' not in await process.stdout.readline():
                pass
        return await self._stop(process, request["json"]["id"])

    async def _stop(self, process: asyncio.subprocess.Process, id: int) -> bool:
        process.terminate()
        await process.communicate()
        return True


class CurlSession(CurlTalk):
    """Requests of the handshake era."""

    async def open(self) -> None:
        about = {"name": "curl", "version": "8"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": about}
        process = await self._start(self._request("initialize", params), "-i")
        assert process.stdout is not None
        head, _, body = (await process.stdout.read()).decode().partition("\r\n\r\n")
        await process.wait()
        found = dict(line.split(": ", 1) for line in head.splitlines()[1:])
        if "mcp-session-id" not in found:
            raise Failure(body)
        self._headers |= {"Mcp-Session-Id": found["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
        await self._notify("notifications/initialized", {})

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        note = {"headers": {}, "json": {"jsonrpc": "2.0", "method": method, "params": params}}
        assert (await (await self._start(note)).communicate())[0] == b""

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        return {"headers": {}, "json": message}

    async def _stop(self, process: asyncio.subprocess.Process, id: int) -> bool:
        await self._notify("notifications/cancelled", {"requestId": id, "reason": "enough"})
        return bool(next(iter(await self._messages(process)))["error"]["code"] == -32800)


class Curl(McpClient):
    def __init__(self, era: str, version: str) -> None:
        self.name = f"curl-{era}"
        self.version = version

    async def _open(self, stack: AsyncExitStack, url: str, token: str) -> BridgeClient:
        if self.version == MODERN:
            return CurlTalk(url, token)
        session = CurlSession(url, token)
        await session.open()
        return session


def _mcp_error(error: BaseException) -> Any:
    """The protocol error inside any exception groups."""
    if isinstance(error, MCPError):
        return error.error
    inner = getattr(error, "exceptions", ())
    return next((found for one in inner if (found := _mcp_error(one)) is not None), None)


def _words(error: BaseException) -> str:
    """The messages of an exception and of all the groups around it."""
    inner = getattr(error, "exceptions", ())
    return " / ".join(_words(one) for one in inner) if inner else f"{type(error).__name__}: {error}"


CLIENTS: tuple[McpClient, ...] = (
    PythonSdk("auto", MODERN),
    PythonSdk("legacy", LEGACY),
    PythonSdk(MODERN, MODERN),
    FastMcp("auto", MODERN),
    FastMcp("legacy", LEGACY),
    TypeScript("v1", "legacy", LEGACY),
    TypeScript("v1", "sse", LEGACY),
    TypeScript("v2", "legacy", LEGACY),
    TypeScript("v2", "auto", MODERN),
    Inspector("legacy", LEGACY),
    Inspector("modern", MODERN),
    Curl("legacy", LEGACY),
    Curl("modern", MODERN),
)
# The clients that start a program; for Python's see tests/behaviour/bridge/test_relay.py.
BRIDGED: tuple[McpClient, ...] = (
    BridgedFastMcp("auto", MODERN),
    BridgedFastMcp("legacy", LEGACY),
    BridgedTypeScript("v1", "legacy", LEGACY),
    BridgedTypeScript("v2", "legacy", LEGACY),
    BridgedTypeScript("v2", "auto", MODERN),
)
