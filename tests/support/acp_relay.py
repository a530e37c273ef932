"""A real relay with a browser behind it and a conductor in front of it, for tests of an agent's servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tabrelay.acp.relay_client import RelayClient
from tabserver import Context
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.acp_harness import ConductorHarness
from tests.support.cpython_worker import CPythonWorker
from tests.support.nodejs import MODULES
from tests.support.running_relay import RunningRelay, modern
from tests.support.waiting import until

META = modern("x")["json"]["params"]["_meta"]


LEGACY = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}


class Tools(Toolbox):
    def __init__(self) -> None:
        super().__init__()
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()

        @tool(toolbox=self)
        def whose(context: Context) -> dict[str, Any]:
            """The session of the caller."""
            return {} if context.acp is None else context.acp.to_dict()

        @tool(toolbox=self)
        async def hang(context: Context) -> str:
            """Run until cancelled."""
            context.progress(1)
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"


class ConductorWithRelay:
    """A relay with a browser behind it, and a conductor in front."""

    def __init__(self, relay: RunningRelay, tools: Tools, stage: ConductorHarness) -> None:
        self.relay, self.tools, self.stage = relay, tools, stage

    async def sessions(self, is_so: Any = bool) -> Any:
        """The relay's rows of ACP sessions, once the condition is true."""
        rows: Any = None

        async def is_reported() -> bool:
            nonlocal rows
            rows = (await self.relay.http.get("/-/status")).json()["acp"]
            return bool(is_so(rows))

        await until(is_reported)
        return rows


@asynccontextmanager
async def scene(home: Path, *, names: tuple[str, ...] = (), **options: Any) -> AsyncIterator[ConductorWithRelay]:
    tools = Tools()
    async with RunningRelay(home) as relay, CPythonWorker(relay.url, relay.token, "notes", tools):
        await relay.has_read("notes")
        async with ConductorHarness(RelayClient(home, lambda: relay.url, names), **options) as stage:
            yield ConductorWithRelay(relay, tools, stage)


def check_schema(value: Any, version: str, name: str) -> None:
    """Validates against the protocol's schema, with its unstable parts."""
    path = MODULES / "@agentclientprotocol" / "sdk" / "schema" / version / "schema.unstable.json"
    schema = {**json.loads(path.read_text()), "$ref": f"#/$defs/{name}"}
    del schema["anyOf"]
    Draft202012Validator(schema).validate(value)


def whose(answer: Any) -> Any:
    return answer["result"]["structuredContent"]
