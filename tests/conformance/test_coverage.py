"""Every scenario of the suite has a row in the documentation: its results, or the reason why it does not apply."""

from __future__ import annotations

import re

from tests.conformance.report import PAGE
from tests.support.nodejs import SUITE, node


async def test_every_scenario_of_the_suite_has_a_row() -> None:
    listing = await node(SUITE, "list")
    scenarios = set(re.findall(r"^  - (\S+)", listing.out, re.MULTILINE))
    assert len(scenarios) > 100
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    shown = {name for row in rows for name in re.split(r"[,\s]+", row)}
    assert scenarios - shown == set()
