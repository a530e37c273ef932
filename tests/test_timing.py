"""A page's `timing` option: milliseconds become seconds, and invalid values are ignored."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import Any

import pytest

from tabserver.timing import DEFAULTS, Timing
from tests.support.paths import ROOT


def test_what_a_page_does_not_say_has_its_default() -> None:
    assert Timing.read({}) == DEFAULTS
    assert Timing.read({"connect_ms": 250}) == Timing(connect_s=0.25)


@pytest.mark.parametrize("value", [0, -1, "5", None, True, math.inf, math.nan, [1]])
def test_what_is_no_positive_number_is_ignored(value: Any) -> None:
    assert Timing.read({"watchdog_ms": value, "unknown_ms": 1}) == DEFAULTS


def test_the_settings_document_has_every_wait_with_its_default() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    rows = re.findall(r"^\| `(\w+_ms)` \| (\d+) \|", text, re.MULTILINE)
    defaults = {f"{name.removesuffix('_s')}_ms": round(seconds * 1000) for name, seconds in asdict(DEFAULTS).items()}
    assert {name: int(value) for name, value in rows} == defaults
