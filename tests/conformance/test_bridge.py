"""The official conformance suite, client mode: `tabrelay stdio` in front of the suite's servers. The result is a table
of the documentation: run with TABRELAY_WRITE_DOCS=1 to write it anew."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.support.node import NODE
from tests.support.suite import Scenario, run_clients

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "conformance.md"
BLOCK = re.compile(r"(?<=<!-- bridge -->\n).*?(?=<!-- /bridge -->)", re.DOTALL)
SCORED = {"2025-11-25": 18, "2026-07-28": 32}
# Not scored, and passed all the same.
ALSO = {"auth/client-credentials-basic", "json-schema-2020-12-preservation"}
# What the suite can't try: methods that 2026-07-28 no longer has.
UNTRIED = {"http-standard-headers": ["sep-2243-client-includes-standard-headers"] * 2}


async def test_the_bridge_passes_the_suites_client_mode(tmp_path: Path) -> None:
    turns = tmp_path / "turns"
    turns.mkdir()
    env = {"CONFORMANCE_TURNS": str(turns), "PATH": os.pathsep.join([str(NODE.parent), os.environ["PATH"]])}
    command = f"{sys.executable} {HERE / 'stdio_client.py'}"
    runs = {revision: await run_clients(command, revision, tmp_path / revision, env) for revision in SCORED}
    text = table(runs)
    print("\n" + text)
    for revision, scenarios in runs.items():
        required = [scenario for scenario in scenarios.values() if scenario.is_scored]
        assert len(required) == SCORED[revision]
        for scenario in (*required, *(scenarios[name] for name in ALSO)):
            assert (scenario.problems, scenario.passed > 0) == ((), True), (revision, scenario)
            # Everything else that is not a verdict is a note of what was said and heard.
            untried = [check for check in scenario.untried if check.startswith("sep-")]
            assert untried == UNTRIED.get(scenario.name, []), (revision, scenario)
    # The suite says "passed" of nothing at all, too: only the numbers tell.
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        page = BLOCK.sub(lambda _: text, page)
        PAGE.write_text(page, encoding="utf-8")
    assert BLOCK.findall(page) == [text]


def table(runs: dict[str, dict[str, Scenario]]) -> str:
    """Checks passed, per scenario and revision."""
    rows = [f"| scenario | {' | '.join(runs)} |", "|---|" + "---:|" * len(runs)]
    totals = []
    for found in runs.values():
        required = [scenario for scenario in found.values() if scenario.is_scored]
        perfect = [scenario for scenario in required if not scenario.problems]
        totals.append(f"**{len(perfect)} of {len(required)}**, {sum(scenario.passed for scenario in required)} checks")
    rows.append(f"| **scored** | {' | '.join(totals)} |")
    names = {name for found in runs.values() for name in found if found[name].is_scored or name in ALSO}
    for name in sorted(names):
        rows.append(f"| {name} | {' | '.join(_cell(found.get(name)) for found in runs.values())} |")
    return "\n".join(rows) + "\n"


def _cell(scenario: Scenario | None) -> str:
    if scenario is None:
        return ""
    failed = f", {len(scenario.problems)} failed" if scenario.problems else ""
    return f"{scenario.passed}{failed}" if scenario.is_scored else f"({scenario.passed}{failed})"
