"""The official conformance suite, client mode: the relay before the suite's servers, as servers of a configuration.

What the suite sees is what the relay's upstream layer sends; the official SDK's client drives it from the other side.
The result is a table of the documentation: run with TABRELAY_WRITE_DOCS=1 to write it anew."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from tabrelay.config.specs import HttpSpec
from tests.conformance.driving import drive
from tests.conformance.report import hold_page_to, table
from tests.support.conformance_suite import Scenario, run_client, scored
from tests.support.nodejs import NODE
from tests.support.running_relay import RunningRelay

HERE = Path(__file__).parent
REVISIONS = {"2025-11-25": 4, "2026-07-28": 7}  # scored scenarios that are not about authorization
ALSO = frozenset({"json-schema-2020-12-preservation"})  # not scored, and passed all the same
# What the suite can't try: methods that 2026-07-28 no longer has.
UNTRIED = {"http-standard-headers": ["sep-2243-client-includes-standard-headers"] * 2}


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """A client that does what the suite's client shall do, at the other end of a socket."""
    path = tmp_path / "socket"

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = json.loads(await reader.readline())
        try:
            await through_the_relay(tmp_path, task)
            said = "done"
        except Exception:
            said = json.dumps(traceback.format_exc())
        writer.write(said.encode() + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(work, path)
    yield {"CONFORMANCE_SOCKET": str(path), "PATH": os.pathsep.join([str(NODE.parent), os.environ["PATH"]])}
    server.close()


async def through_the_relay(folder: Path, task: dict[str, Any]) -> None:
    scenario = task["MCP_CONFORMANCE_SCENARIO"]
    version = task["MCP_CONFORMANCE_PROTOCOL_VERSION"] or "2025-11-25"
    home = folder / f"home-{version}-{scenario.replace('/', '-')}"
    async with RunningRelay(home, specs=[HttpSpec("far", task["url"])]) as relay:
        headers = {"Authorization": f"Bearer {relay.token}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
            transport = streamable_http_client(f"{relay.url}/far", http_client=http)
            await drive(transport, scenario, version, json.loads(task["MCP_CONFORMANCE_CONTEXT"] or "{}"))


async def a_few_at_a_time(room: asyncio.Semaphore, scenario: Awaitable[Scenario]) -> Scenario:
    """A server that does not answer within five seconds is taken for one of the older era, as it should be: so this
    process, where all the relays are, must not be kept busy for as long."""
    async with room:
        return await scenario


async def test_the_relay_passes_the_suites_client_mode(tmp_path: Path, env: dict[str, str]) -> None:
    command = f"{sys.executable} -I -S {HERE / 'thin_client.py'}"
    runs: dict[str, dict[str, Scenario]] = {}
    room = asyncio.Semaphore(4)
    for revision, count in REVISIONS.items():
        names = [name for name in await scored(revision, "Client") if not name.startswith("auth/")]
        assert len(names) == count
        found = await asyncio.gather(
            *(
                a_few_at_a_time(room, run_client(command, name, revision, tmp_path / revision / name, env))
                for name in (*names, *ALSO)
            )
        )
        runs[revision] = {scenario.name: scenario for scenario in found}
    for revision, scenarios in runs.items():
        for scenario in scenarios.values():
            assert (scenario.problems, scenario.passed > 0) == ((), True), (revision, scenario)
            untried = [check for check in scenario.untried if check.startswith("sep-")]
            assert untried == UNTRIED.get(scenario.name, []), (revision, scenario)
    hold_page_to("upstreams", table(runs, ALSO, has_totals=False))
