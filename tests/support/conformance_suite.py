"""The official conformance suite: runs it against a URL or against clients, and reads its results."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.nodejs import SUITE, node

# Entries in which the suite logs its traffic, in the form of checks.
TRAFFIC = frozenset({"outgoing-request", "incoming-response", "incoming-sse-event", "stream-closed"})
# The one scenario whose verdicts depend on a clock: its checks expect a message within 500 to 1500 ms, however busy the
# machine is. When no other check fails, the scenario runs once more with timers 20 times as long.
CLOCKED = "server-stateless"
CLOCKED_CHECKS = frozenset(
    {
        "sep-2575-http-server-no-independent-requests-on-stream",
        "sep-2575-server-no-log-without-loglevel",
        "sep-2575-server-sends-subscription-ack",
        "sep-2575-server-tags-subscription-id",
        "sep-2575-server-honors-notification-filter",
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
    }
)
LONG_TIMERS = Path(__file__).with_name("long_timers.mjs")
# Revisions with a frozen set of requirements. Of an older one, all scenarios are required.
FROZEN = frozenset({"2025-11-25", "2026-07-28"})
# Deadlines for a run of the whole suite, which starts up to 32 clients at once, and for one client of it.
RUN_S = 1800
CLIENT_S = 1700


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of a run: the number of passed checks, and the failed ones."""

    name: str
    is_scored: bool
    passed: int
    problems: tuple[str, ...]
    untried: tuple[str, ...]


async def scored(revision: str, side: Literal["Server", "Client"] = "Server") -> frozenset[str]:
    """The scenarios that a revision of the specification requires of one side."""
    listing = await node(SUITE, "list", "--requirements" if revision in FROZEN else "--spec-version", revision)
    section = re.split(rf"^{side} scenarios", listing.out, flags=re.MULTILINE)[1].partition("\n\n")[0]
    return frozenset(re.findall(r"^  - (\S+)(?: \[.*\])?$", section, re.MULTILINE))


def _chosen(revision: str) -> tuple[str, ...]:
    """The flags that choose the scenarios of a revision."""
    return ("--requirements", revision) if revision in FROZEN else ("--suite", "all", "--spec-version", revision)


async def run(url: str, revision: str, folder: Path) -> dict[str, Scenario]:
    required = await scored(revision)
    ended = await node(SUITE, "server", "--url", url, *_chosen(revision), "-o", folder, timeout_s=RUN_S)
    found = _read(folder, required)
    assert required <= found.keys(), f"not run: {required - found.keys()}\n{ended.out}\n{ended.err}"
    failed = {problem.partition(":")[0] for problem in found[CLOCKED].problems} if CLOCKED in found else set()
    if failed and failed <= CLOCKED_CHECKS:
        apart = folder.with_name(f"{folder.name}-{CLOCKED}")
        flags = ("--scenario", CLOCKED, "--spec-version", revision, "-o", apart)
        await node("--import", LONG_TIMERS.as_uri(), SUITE, "server", "--url", url, *flags, timeout_s=RUN_S)
        found |= _read(apart, required)
    return found


async def run_extension(url: str, revision: str, names: Iterable[str], folder: Path) -> dict[str, Scenario]:
    """Scenarios of an extension, which no revision requires and no run of a whole revision has."""
    for name in names:
        flags = ("--scenario", name, "--spec-version", revision, "--force", "-o", folder)
        await node(SUITE, "server", "--url", url, *flags, timeout_s=RUN_S)
    return _read(folder, frozenset())


async def run_clients(command: str, revision: str, folder: Path, env: dict[str, str]) -> dict[str, Scenario]:
    """`command` is started once per scenario; the address of the suite's server is its last argument."""
    required = await scored(revision, "Client")
    flags = (*_chosen(revision), "--timeout", str(CLIENT_S * 1000))
    ended = await node(SUITE, "client", "--command", command, *flags, "-o", folder, timeout_s=RUN_S, env=env)
    found = _read(folder, required)
    assert required <= found.keys(), f"not run: {required - found.keys()}\n{ended.out}\n{ended.err}"
    return found


def _read(folder: Path, required: frozenset[str]) -> dict[str, Scenario]:
    found = {}
    for path in sorted(folder.rglob("checks.json")):
        where = path.parent.relative_to(folder).as_posix().removeprefix("server-")
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\dZ-]+$", "", where)
        checks = json.loads(path.read_text())
        counts = Counter(check["status"] for check in checks)
        problems = tuple(
            f"{check['id']}: {check['status']} {check.get('errorMessage', '')}"
            for check in checks
            if check["status"] not in ("SUCCESS", "INFO", "SKIPPED")
        )
        untried = tuple(
            check["id"] for check in checks if check["status"] in ("INFO", "SKIPPED") and check["id"] not in TRAFFIC
        )
        found[name] = Scenario(name, name in required, counts["SUCCESS"], problems, untried)
    return found
