"""The conductor in the test's event loop, between a scripted editor and a scripted agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from tabrelay.acp.child import ChildProcess
from tabrelay.acp.conductor import Conductor
from tabrelay.acp.dialects import Dialect
from tabrelay.acp.relay_client import RelayClient
from tabrelay.acp.session_servers import ConductorOptions
from tests.support.waiting import BOUND_S

WAIT_S = BOUND_S
PROGRAM = ("/opt/tabrelay",)


class ScriptedProgram:
    """Lines received from one program, and the lines that the test sends as that program."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes] = asyncio.Queue()

    async def line(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.got.get()

    async def next(self) -> Any:
        return json.loads(await self.line())

    async def until(self, is_it: Callable[[Any], bool]) -> Any:
        """The next message for which the condition is true; earlier ones are skipped."""
        while not is_it(message := await self.next()):
            pass
        return message

    @property
    def is_silent(self) -> bool:
        return self.got.empty()


class ScriptedEditor(ScriptedProgram):
    def __init__(self) -> None:
        super().__init__()
        self.broken = asyncio.Event()
        self.chunks_in: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def write(self, line: bytes) -> None:
        await self.may_write.wait()
        self.got.put_nowait(line)

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunks_in.get():
            yield chunk

    def raw(self, line: bytes) -> None:
        self.chunks_in.put_nowait(line + b"\n")

    def send(self, **message: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def leave(self) -> None:
        self.chunks_in.put_nowait(b"")


class ScriptedComponent(ChildProcess, ScriptedProgram):
    """An agent or a proxy without a process."""

    def __init__(self) -> None:
        ChildProcess.__init__(self, ["played"])
        ScriptedProgram.__init__(self)
        self.out: asyncio.Queue[bytes] = asyncio.Queue()
        self.starts = 0
        self.is_ended = False
        self.exit_code: int | None = None
        self.reads = asyncio.Event()
        self.reads.set()

    async def start(self) -> None:
        self.starts += 1

    @property
    def is_started(self) -> bool:
        return self.starts > 0

    @property
    def code(self) -> int | None:
        return self.exit_code

    async def write(self, line: bytes) -> None:
        await self.reads.wait()
        self.got.put_nowait(line)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while line := await self.out.get():
            yield line + b"\n"

    def raw(self, line: bytes) -> None:
        self.out.put_nowait(line)

    def send(self, **message: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def die(self, code: int = 3) -> None:
        self.exit_code = code
        self.out.put_nowait(b"")

    def close_input(self) -> None:
        self.die(0)

    async def end(self) -> None:
        self.is_ended = True


class NoRelay(RelayClient):
    """Stands in for the relay's client: no relay runs. Tests may declare servers."""

    def __init__(self, *servers: str, home: Path = Path("/nowhere")) -> None:
        super().__init__(home, lambda: "http://127.0.0.1:1")
        self.offered = list(servers)
        self.reports: list[Any] = []

    async def servers(self) -> list[str]:
        return self.offered

    async def report(self, agent: str, sessions: list[dict[str, Any]]) -> None:
        self.reports.append(sessions)

    async def close(self) -> None:
        """There is no connection to close."""


class ConductorHarness:
    """Start it with `async with`."""

    def __init__(
        self,
        access: RelayClient | None = None,
        *,
        profile: Dialect | None = None,
        bridge: Literal["auto", "stdio", "http"] = "auto",
        proxies: int = 0,
        agent: ScriptedComponent | None = None,
    ) -> None:
        self.editor = ScriptedEditor()
        self.agent = agent or ScriptedComponent()
        self.proxies = [ScriptedComponent() for _ in range(proxies)]
        self.access = access or NoRelay()
        options = ConductorOptions(PROGRAM, bridge=bridge, dialect=profile)
        self.conductor = Conductor(self.editor, self.agent, self.access, options, self.proxies)
        self._plugs: list[McpProgram] = []

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.conductor.run(self.editor.chunks()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for plug in self._plugs:
            plug.close()
        self.editor.leave()
        async with asyncio.timeout(WAIT_S):
            await self.task

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            return await self.task

    async def greet(self, **capabilities: Any) -> Any:
        """`initialize`, with an agent of these capabilities; returns the answer that the editor receives."""
        return await self.greet_with({"mcpCapabilities": capabilities})

    async def greet_with(self, capabilities: Any, version: int = 1) -> Any:
        self.editor.send(id=0, method="initialize", params={"protocolVersion": version})
        assert (await self.agent.next())["method"] == "initialize"
        name = "agentCapabilities" if version == 1 else "capabilities"
        self.agent.send(id=0, result={"protocolVersion": version, name: capabilities})
        return await self.editor.next()

    async def ask_for_session(self, *servers: Any, method: str = "session/new", id: Any = 1, **params: Any) -> Any:
        """Returns the servers that the agent receives."""
        params = {"cwd": "/", "mcpServers": list(servers), **params}
        self.editor.send(id=id, method=method, params=params)
        return (await self.agent.next())["params"]["mcpServers"]

    async def open(self, *servers: Any, session: str = "s1", id: Any = 1) -> Any:
        found = await self.ask_for_session(*servers, id=id)
        self.agent.send(id=id, result={"sessionId": session})
        assert (await self.editor.next())["result"] == {"sessionId": session}
        return found

    async def plug(self, server: Any, nonce: str | None = None) -> McpProgram:
        """Connects as `tabrelay mcp` does."""
        port = int(server["args"][-1])
        plug = McpProgram(*(await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)))
        plug.raw((nonce if nonce is not None else server["env"][0]["value"]).encode())
        self._plugs.append(plug)
        return plug


class McpProgram(ScriptedProgram):
    """An agent's MCP client, connected to the conductor's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader, self.writer = reader, writer

    async def line(self) -> bytes:
        """Empty when the conductor has closed the connection."""
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionError):
                return await self._reader.readline()
            return b""

    def raw(self, line: bytes) -> None:
        self.writer.write(line + b"\n")

    def send(self, **message: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def close(self) -> None:
        self.writer.close()


async def is_free(port: int) -> bool:
    """Waits until no program listens on the port."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return True
            writer.close()
            await asyncio.sleep(0.02)


URL = {"type": "http", "name": "tab", "url": "acp:7d0", "headers": []}
ACP = {"type": "acp", "name": "tab", "serverId": "7d0"}


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


SESSION = {"tabrelay/sessionId": "s1"}


def modern(**params: Any) -> dict[str, Any]:
    return {**params, "_meta": META}
