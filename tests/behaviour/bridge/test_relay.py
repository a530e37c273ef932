"""The bridge with the real relay and a real client at its stdin, as Claude Desktop and Zed use it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tabrelay.server.runner import bind
from tests.behaviour.clients.tools import NAMES, Tools
from tests.support.bridge_harness import BridgeProcess
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S


@asynccontextmanager
async def client(home: Path, mode: Any, *flags: str) -> AsyncIterator[Client]:
    arguments = ["-m", "tabrelay", "stdio", "notes", "--home", str(home), *flags]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with Client(stdio_client(server), mode=mode) as found:
        yield found


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_a_client_reaches_a_server_of_the_relay_by_its_name(tmp_path: Path, mode: str, version: str) -> None:
    tools = Tools()
    async with (
        RunningRelay(tmp_path, is_registered=True) as relay,
        CPythonWorker(relay.url, relay.token, "notes", tools),
        client(tmp_path, mode) as talk,
    ):
        assert talk.protocol_version == version
        assert [one.name for one in (await talk.list_tools()).tools] == NAMES
        received: list[float] = []

        async def step(progress: float, total: float | None, message: str | None) -> None:
            received.append(progress)

        called: Any = await talk.call_tool("steps", {}, progress_callback=step)
        assert (called.content[0].text, received) == ("done", [1, 2, 3])
        began = asyncio.Event()

        async def begun(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        hanging = asyncio.ensure_future(talk.call_tool("hang", {}, progress_callback=begun))
        async with asyncio.timeout(BOUND_S):
            await began.wait()
            hanging.cancel()
        await tools.until(lambda: tools.cancelled == 1)
        after: Any = await talk.call_tool("echo", {"text": "äh"})
        assert after.content[0].text == "äh"


async def test_without_a_relay_the_client_gets_an_error_and_later_it_works(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    async with BridgeProcess("notes", "--home", str(tmp_path), "--port", str(port)) as child:
        error = (await child.initialize())["error"]
        assert error["code"] == -32000
        assert f"http://127.0.0.1:{port}/notes: Connection refused" in error["message"]
        assert "tabrelay serve notes" in error["message"]
        async with (
            RunningRelay(tmp_path, port=port, servers=("notes",)) as relay,
            CPythonWorker(relay.url, relay.token, "notes", Tools()),
        ):
            await relay.has_read("notes")
            listed = await child.call("tools/list", id=2)
            assert [one["name"] for one in listed["result"]["tools"]] == NAMES


async def test_a_relay_that_came_back_on_another_port_is_found(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, servers=("notes",), is_registered=True) as relay,
        BridgeProcess("notes", "--home", str(tmp_path)) as child,
    ):
        assert "result" in await child.initialize()
        await relay.stop()
        async with RunningRelay(tmp_path, servers=("notes",), is_registered=True):
            assert "result" in await child.call("ping", id=5)
