"""`tabrelay acp` as a real child process, as an editor starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.acp_harness import ScriptedProgram
from tests.support.child_process import Program

AGENT = str(Path(__file__).parent / "acp_agent.py")


class Tools(Toolbox):
    def __init__(self) -> None:
        super().__init__()

        @tool(toolbox=self)
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b


class Child(Program, ScriptedProgram):
    """Start it with `async with`: it never outlives the test."""

    def __init__(self, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
        ScriptedProgram.__init__(self)
        Program.__init__(self, "acp", *arguments, env=env)

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
