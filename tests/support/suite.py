"""The official conformance suite: runs it against a URL or against clients, and reads what it found."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.node import SUITE, node

# What the suite writes down about what it said and heard, in the form of checks.
TRAFFIC = frozenset({"outgoing-request", "incoming-response", "incoming-sse-event", "stream-closed"})
# The one check that a clock decides: the suite gives a call 600 ms to say something, however busy the machine is.
CLOCKED = "sep-2575-server-no-log-without-loglevel"
TRIES = 4


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of a run: how many of its checks passed, and what did not."""

    name: str
    is_scored: bool
    passed: int
    problems: tuple[str, ...]
    untried: tuple[str, ...]


async def scored(revision: str, side: Literal["Server", "Client"] = "Server") -> frozenset[str]:
    """The scenarios that a revision of the specification requires of one side."""
    listing = await node(SUITE, "list", "--requirements", revision)
    section = listing.out.partition(f"{side} scenarios")[2].partition("\n\n")[0]
    return frozenset(re.findall(r"^  - (\S+)$", section, re.MULTILINE))


async def run(url: str, revision: str, folder: Path) -> dict[str, Scenario]:
    required = await scored(revision)
    ended = await node(SUITE, "server", "--url", url, "--requirements", revision, "-o", folder)
    found = _read(folder, required)
    assert required <= found.keys(), f"not run: {required - found.keys()}\n{ended.out}\n{ended.err}"
    for name in [name for name, scenario in found.items() if _is_late(scenario)]:
        for attempt in range(1, TRIES):
            apart = folder.with_name(f"{folder.name}-{name}-{attempt}")
            await node(SUITE, "server", "--url", url, "--scenario", name, "--spec-version", revision, "-o", apart)
            found |= _read(apart, required)
            if not _is_late(found[name]):
                break
    return found


def _is_late(scenario: Scenario) -> bool:
    """Did that check fail, and no other?"""
    return [problem.partition(":")[0] for problem in scenario.problems] == [CLOCKED]


async def run_clients(command: str, revision: str, folder: Path, env: dict[str, str]) -> dict[str, Scenario]:
    """`command` is started once per scenario, with the address of the suite's server behind it."""
    required = await scored(revision, "Client")
    flags = ("--command", command, "--requirements", revision, "--timeout", "280000", "-o", folder)
    ended = await node(SUITE, "client", *flags, timeout_s=300, env=env)
    found = _read(folder, required)
    assert required <= found.keys(), f"not run: {required - found.keys()}\n{ended.out}\n{ended.err}"
    return found


async def run_client(command: str, scenario: str, revision: str, folder: Path, env: dict[str, str]) -> Scenario:
    """One scenario alone."""
    flags = (
        "--command",
        command,
        "--scenario",
        scenario,
        "--spec-version",
        revision,
        "--timeout",
        "60000",
        "-o",
        folder,
    )
    ended = await node(SUITE, "client", *flags, timeout_s=90, env=env)
    found = _read(folder, frozenset({scenario}))
    assert scenario in found, f"not run: {scenario}\n{ended.out}\n{ended.err}"
    return found[scenario]


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
