"""The official conformance suite, client mode: `tabrelay stdio` with the suite's servers.

The result is a table of the documentation: run with TABRELAY_WRITE_DOCS=1 to write it again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.conformance.bridge_client import work
from tests.conformance.bridge_template import bridge_template
from tests.conformance.client_tasks import COMMAND, client_tasks
from tests.conformance.report import compare_with_page, table
from tests.support.conformance_suite import run_clients

SCORED = {"2025-03-26": 2, "2025-06-18": 5, "2025-11-25": 18, "2026-07-28": 32}
# Not scored, and passed all the same.
EXTENSIONS = {
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
}
ALSO = {*EXTENSIONS, "json-schema-2020-12-preservation"}
NEWER = {"2025-11-25", "2026-07-28"}  # the revisions with which the suite runs them
# Methods that the suite can't try because 2026-07-28 no longer has them.
UNTRIED = {"http-standard-headers": ["sep-2243-client-includes-standard-headers"] * 2}


async def test_the_bridge_passes_the_suites_client_mode(tmp_path: Path) -> None:
    # The suite starts all clients at once; a small machine can run two bridges at a time.
    template = tmp_path / "template"
    async with bridge_template(template), client_tasks(tmp_path, partial(work, template), at_once=2) as env:
        runs = {revision: await run_clients(COMMAND, revision, tmp_path / revision, env) for revision in SCORED}
    for revision, scenarios in runs.items():
        required = [scenario for scenario in scenarios.values() if scenario.is_scored]
        assert len(required) == SCORED[revision]
        for scenario in (*required, *(scenarios[name] for name in ALSO if revision in NEWER)):
            assert (scenario.problems, scenario.passed > 0) == ((), True), (revision, scenario)
            # Every other entry that is not a verdict is a note of the traffic.
            untried = [check for check in scenario.untried if check.startswith("sep-")]
            assert untried == UNTRIED.get(scenario.name, []), (revision, scenario)
    compare_with_page("bridge", table(runs, ALSO))
