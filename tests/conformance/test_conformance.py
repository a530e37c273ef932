"""The official conformance suite against the relay, with Chromium and Pyodide.

The result is a page of the documentation: run with TABRELAY_WRITE_DOCS=1 to write it again.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import httpx2
import pytest
from playwright.async_api import BrowserContext

from tests.conformance.report import compare_with_page, table
from tests.support.conformance_suite import run, run_extension
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.running_relay import ACCEPT, modern

HERE = Path(__file__).parent
SERVER = "conformance"
SCORED = {"2025-03-26": 1, "2025-06-18": 27, "2025-11-25": 30, "2026-07-28": 37}
TASKS = {
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-status-notifications",
    "tasks-wire-fields",
}
SKILLS = {"sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"}
# Not scored, and passed all the same.
ALSO: dict[str, set[str]] = {
    "2025-03-26": set(),
    "2025-06-18": set(),
    "2025-11-25": {"server-session-lifecycle", "server-sse-polling", "json-schema-2020-12", *SKILLS},
    "2026-07-28": {
        *("http-header-validation", "http-custom-header-server-validation", "json-schema-2020-12"),
        *TASKS,
        *SKILLS,
    },
}
# The suite skips its only check.
EMPTY = {"tasks-status-notifications"}


# Reported as information, which means that it was not tried. The reason is in docs/reference/conformance.md.
UNTRIED: dict[str, set[str]] = {
    "2025-03-26": set(),
    "2025-06-18": set(),
    "2025-11-25": {"sep-2640-skills-list-cache-attributes", "sep-2640-skills-get-cache-attributes"},
    "2026-07-28": {"server-sse-streams-functional", *EMPTY},
}


@pytest.fixture
async def url(tmp_path: Path, context: BrowserContext, settings: ModuleType) -> AsyncIterator[str]:
    """The suite has no token, and uses the host name `localhost`."""
    site_folder = tmp_path / "site"
    shutil.copytree(HERE / "page", site_folder / "page")
    shutil.copy(HERE / "fixtures.py", site_folder)
    with Site(site_folder) as site:
        flags = ("--allow-origin", site.origin, "--dangerously-no-auth")
        async with Demo(tmp_path / "home", SERVER, *flags, verb="serve") as relay:
            base = f"http://localhost:{relay.port}"
            (site_folder / "worker.js").write_text(f'import "{base}/-/worker.js";\n')
            page = await context.new_page()
            query = f"relay={base}&server={SERVER}&worker=/worker.js"
            await page.goto(f"{site.origin}/page/index.html?{query}#token={relay.token}")
            await page.locator("html[data-state=connected]").wait_for(
                state="attached", timeout=settings.BOOT_TIMEOUT_MS
            )
            yield f"{base}/{SERVER}"
    # All of it was also checked against the models: on its way to the client, and from the browser to the relay.
    received = relay.recorder.checked
    assert min(received["client"], received["relay"]) >= 200, received


@pytest.mark.requirement("conformance")
async def test_the_relay_with_a_browser_behind_it_passes_the_suite(url: str, tmp_path: Path) -> None:
    names = await tools(url)
    # Without these the suite can't try two of its checks, and counts them as passed.
    assert {"test_logging_tool", "test_streaming_elicitation"} <= names
    runs = {revision: await run(url, revision, tmp_path / revision) for revision in SCORED}
    for revision, found in runs.items():
        found |= await run_extension(url, revision, SKILLS & ALSO[revision], tmp_path / f"{revision}-skills")
    for revision, scenarios in runs.items():
        required = [scenario for scenario in scenarios.values() if scenario.is_scored]
        assert len(required) == SCORED[revision]
        for scenario in (*required, *(scenarios[name] for name in ALSO[revision])):
            is_tried = scenario.name not in EMPTY
            assert (scenario.problems, scenario.passed > 0) == ((), is_tried), (revision, scenario)
        shown = (scenario for scenario in scenarios.values() if scenario.is_scored or scenario.name in ALSO[revision])
        assert {check for scenario in shown for check in scenario.untried} == UNTRIED[revision]
    compare_with_page("results", table(runs, set.union(*ALSO.values())))


async def tools(url: str) -> set[str]:
    async with httpx2.AsyncClient(trust_env=False, timeout=30, headers={"Accept": ACCEPT}) as http:
        response = await http.post(url, **modern("tools/list"))
    return {tool["name"] for tool in response.json()["result"]["tools"]}
