"""The official conformance suite, server mode, against upstreams that support one era only.

The suite's clients use each revision with the relay, which translates where the server does not support it. The server
is a child process, or such a process behind another relay, at an address that supports the handshake era only. The
result is a table of the documentation.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.config.specs import HttpSpec, Spec, StdioSpec
from tests.conformance.report import compare_with_page, table, total
from tests.support.conformance_suite import run
from tests.support.running_relay import ACCEPT, MODERN, RunningRelay, modern

ROOT = Path(__file__).parents[2]
REVISIONS = {"2025-11-25": 30, "2026-07-28": 37}
SERVERS = {"legacy": "handshake only", "modern": "2026-07-28 only", "far": "handshake only, over HTTP"}
# A server that sends its questions as requests gives them no names, and the suite expects one: see
# docs/reference/conformance.md.
NAMELESS = {"input-required-result-basic-elicitation": ("sep-2322-elicitation-incomplete",)}
UNTRIED = {"2025-11-25": set(), "2026-07-28": {"server-sse-streams-functional"}}


def child(era: str) -> StdioSpec:
    env = (("PYTHONPATH", f"{ROOT}:{ROOT / 'browser_pkg'}"),)
    return StdioSpec(era, sys.executable, ("-m", "tests.conformance.server_child", era), env)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path / "far", specs=[child("legacy")]) as far:
        headers = (("Authorization", f"Bearer {far.token}"),)
        over_http = HttpSpec("far", f"{far.url}/legacy", headers, "http", era="legacy")
        specs: list[Spec] = [child("legacy"), child("modern"), over_http]
        async with RunningRelay(tmp_path / "near", specs=specs, no_auth=True) as near:
            yield near


async def test_servers_of_one_era_pass_the_suite_of_both(relay: RunningRelay, tmp_path: Path) -> None:
    runs = {}
    for server, what in SERVERS.items():
        await relay.has_read(server)
        await settle(relay, server)
        for revision, count in REVISIONS.items():
            found = await run(f"http://localhost:{relay.port}/{server}", revision, tmp_path / server / revision)
            runs[f"{what}: {revision}"] = found
            required = [scenario for scenario in found.values() if scenario.is_scored]
            assert len(required) == count
            is_pushing = server != "modern" and revision == MODERN
            for scenario in required:
                problems = tuple(problem.partition(":")[0] for problem in scenario.problems)
                expected = NAMELESS.get(scenario.name, ()) if is_pushing else ()
                assert (problems, scenario.passed > 0) == (expected, True), (server, revision, scenario)
            assert {check for scenario in required for check in scenario.untried} == UNTRIED[revision]
    compare_with_page("eras", summary(runs) + "\n" + table(runs, has_totals=False))


def summary(runs: dict[str, Any]) -> str:
    rows = ["| upstream | clients of 2025-11-25 | clients of 2026-07-28 |", "|---|---:|---:|"]
    for what in SERVERS.values():
        rows.append(f"| {what} | {' | '.join(total(runs[f'{what}: {revision}']) for revision in REVISIONS)} |")
    return "\n".join(rows) + "\n"


async def settle(relay: RunningRelay, server: str) -> None:
    """The suite gives one call 600 ms for its first message, and its client's process may take longer to start."""
    prefix = "io.modelcontextprotocol/"
    for name in ("conformance-client", "conformance-test-client"):
        client = {f"{prefix}clientInfo": {"name": name, "version": "1.0.0"}}
        meta = {**client, f"{prefix}clientCapabilities": {"elicitation": {}}}
        async with httpx2.AsyncClient(trust_env=False, timeout=60, headers={"Accept": ACCEPT}) as http:
            response = await http.post(f"{relay.url}/{server}", **modern("tools/list", {"_meta": meta}))
        assert response.status_code == 200, response.text
