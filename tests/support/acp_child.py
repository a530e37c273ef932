"""`tabrelay acp` as a real child process, as an editor starts it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tabserver.toolbox import Toolbox, tool
from tests.support.acp import WAIT_S, Side

AGENT = str(Path(__file__).parent / "acp_agent.py")


class Tools(Toolbox):
    def __init__(self) -> None:
        super().__init__()

        @tool(toolbox=self)
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b


class Child(Side):
    """Start it with `async with`: it never outlives the test."""

    def __init__(self, *arguments: str | Path) -> None:
        super().__init__()
        self._arguments = [str(argument) for argument in arguments]

    async def __aenter__(self) -> Child:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tabrelay", "acp", *self._arguments),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=1 << 26,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self._stdout = self.process.stdin, self.process.stdout
        self._log = asyncio.create_task(self.process.stderr.read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._log

    async def line(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self._stdout.readline()

    def send(self, **message: Any) -> None:
        self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, id: int, method: str, **params: Any) -> Any:
        self.send(id=id, method=method, params=params)
        return await self.until(lambda message: message.get("id") == id)

    async def prompt(self, id: int, text: str) -> str:
        self.send(id=id, method="session/prompt", params={"prompt": [{"type": "text", "text": text}]})
        update = await self.until(lambda message: message.get("method") == "session/update")
        assert (await self.next())["id"] == id
        said: str = update["params"]["update"]["content"]["text"]
        return said

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()

    async def log(self) -> str:
        async with asyncio.timeout(WAIT_S):
            return (await self._log).decode()
