"""The official conformance suite, client mode: the relay with the suite's servers as configured upstreams.

The suite checks what the relay's upstream layer sends; the official SDK's client calls the relay. The result is a table
of the documentation: run with TABRELAY_WRITE_DOCS=1 to write it again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import httpx2
from mcp.client.streamable_http import streamable_http_client

from tabrelay.config.specs import HttpSpec
from tests.conformance.client_tasks import COMMAND, ClientTask, client_tasks
from tests.conformance.driving import drive
from tests.conformance.report import compare_with_page, table
from tests.support.conformance_suite import Scenario, run_clients
from tests.support.running_relay import RunningRelay

REVISIONS = {"2025-06-18": 2, "2025-11-25": 4, "2026-07-28": 7}  # scored scenarios that are not about authorization
ALSO = frozenset({"json-schema-2020-12-preservation"})  # not scored, and passed all the same
# The suite starts all clients at once. A server that does not answer within five seconds counts as one of the older
# era, as it should: so this process, which runs all the relays, must never be busy for that long.
AT_ONCE = 4
# Methods that the suite can't try because 2026-07-28 no longer has them.
UNTRIED = {"http-standard-headers": ["sep-2243-client-includes-standard-headers"] * 2}


async def through_the_relay(folder: Path, task: ClientTask) -> None:
    if task.scenario.startswith("auth/"):
        return  # not checked here: the suite can't run the others alone in one process
    home = folder / f"home-{task.version}-{task.scenario.replace('/', '-')}"
    async with RunningRelay(home, specs=[HttpSpec("far", task.url)]) as relay:
        headers = {"Authorization": f"Bearer {relay.token}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http:
            transport = streamable_http_client(f"{relay.url}/far", http_client=http)
            await drive(transport, task.scenario, task.version, task.context)


async def test_the_relay_passes_the_suites_client_mode(tmp_path: Path) -> None:
    runs: dict[str, dict[str, Scenario]] = {}
    async with client_tasks(tmp_path, partial(through_the_relay, tmp_path), AT_ONCE) as env:
        for revision, count in REVISIONS.items():
            found = await run_clients(COMMAND, revision, tmp_path / revision, env)
            wanted = [one for one in found.values() if one.is_scored and not one.name.startswith("auth/")]
            assert len(wanted) == count
            runs[revision] = {one.name: one for one in (*wanted, *(found[name] for name in ALSO & found.keys()))}
    for revision, scenarios in runs.items():
        for scenario in scenarios.values():
            assert (scenario.problems, scenario.passed > 0) == ((), True), (revision, scenario)
            untried = [check for check in scenario.untried if check.startswith("sep-")]
            assert untried == UNTRIED.get(scenario.name, []), (revision, scenario)
    compare_with_page("upstreams", table(runs, ALSO, has_totals=False))
