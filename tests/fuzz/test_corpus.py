"""Every committed input of the fuzzers: a fault that was found once does not return."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import NAMES, seeds, target


@pytest.mark.parametrize("name", NAMES)
def test_two_implementations_agree_on_the_corpus(name: str) -> None:
    check, found = target(name), seeds(name)
    assert len(found) >= 10
    for path in found:
        try:
            check(path.read_bytes())
        except Exception as fault:
            raise AssertionError(f"{Path(path).name}: {fault}") from fault
