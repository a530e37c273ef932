"""Reset after a memory snapshot: time zone and random numbers are those of this browser."""

import random
import time
from collections.abc import Iterator

import pytest

from tabserver.worker.snapshot_reset import reset_after_snapshot

ZONES = ["UTC", "Asia/Tokyo", "America/New_York", "Europe/Dublin", "Australia/Sydney", "Asia/Kolkata"]


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ZONES, indirect=True)
def test_the_time_zone_is_the_one_that_an_ordinary_start_finds(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("timezone", "altzone", "daylight", "tzname")
    ordinary = [getattr(time, name) for name in names]
    for name, frozen in zip(names, (1, 2, 3, ("of", "snapshot")), strict=True):
        monkeypatch.setattr(time, name, frozen)
    reset_after_snapshot()
    assert [getattr(time, name) for name in names] == ordinary


def test_chance_is_not_the_snapshots() -> None:
    seen = set()
    for _ in range(3):
        random.seed(42)
        reset_after_snapshot()
        seen.add(random.random())
    assert len(seen) == 3
