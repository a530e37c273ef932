"""A page's own timing: milliseconds in, seconds out, and nothing that makes no sense."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tabserver.timing import DEFAULTS, Timing


def test_what_a_page_does_not_say_has_its_default() -> None:
    assert Timing.read({}) == DEFAULTS
    assert Timing.read({"connect_ms": 250}) == Timing(connect_s=0.25)


@pytest.mark.parametrize("value", [0, -1, "5", None, True, math.inf, math.nan, [1]])
def test_what_is_no_positive_number_is_ignored(value: Any) -> None:
    assert Timing.read({"watchdog_ms": value, "unknown_ms": 1}) == DEFAULTS
