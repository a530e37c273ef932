"""The suite's results as tables of docs/reference/conformance.md. TABRELAY_WRITE_DOCS=1 writes them again."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.support.conformance_suite import Scenario

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"

Runs = Mapping[str, Mapping[str, Scenario]]


def table(runs: Runs, also: Collection[str] = (), *, has_totals: bool = True) -> str:
    """Checks passed, per scenario and run. `also`: scenarios that are shown in brackets because they are not
    required."""
    rows = [f"| scenario | {' | '.join(runs)} |", "|---|" + "---:|" * len(runs)]
    if has_totals:
        rows.append(f"| **scored** | {' | '.join(map(total, runs.values()))} |")
    shown = {name for found in runs.values() for name, one in found.items() if one.is_scored or name in also}
    for name in sorted(shown):
        rows.append(f"| {name} | {' | '.join(_cell(found.get(name), also) for found in runs.values())} |")
    return "\n".join(rows) + "\n"


def total(found: Mapping[str, Scenario]) -> str:
    required = [scenario for scenario in found.values() if scenario.is_scored]
    perfect = [scenario for scenario in required if not scenario.problems and scenario.passed]
    return f"**{len(perfect)} of {len(required)}**, {sum(scenario.passed for scenario in required)} checks"


def _cell(scenario: Scenario | None, also: Collection[str]) -> str:
    if scenario is None or not (scenario.is_scored or scenario.name in also):
        return ""
    failed = f", {len(scenario.problems)} failed" if scenario.problems else ""
    text = f"{scenario.passed}{failed}"
    return text if scenario.is_scored else f"({text})"


def compare_with_page(mark: str, text: str) -> None:
    """The suite reports "passed" for an empty scenario too, and for a check that was dropped: only the numbers show
    it."""
    print("\n" + text)
    block = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", re.DOTALL)
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        page = block.sub(lambda _: text, page)
        PAGE.write_text(page, encoding="utf-8")
    assert block.findall(page) == [text]
