"""Sleep and wake: a relay and a browser that were suspended lose no call, run none twice and reconnect soon.

The short experiments of the matrix that `python -m bench.sleep` runs with 1, 20 and 90 s, ten times each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from tests.support.suspended_browser import CELLS, Call, Cell, SuspendablePair, Who

# Five times the promise: the machine may be busy.
UP_WITHIN_S = 25.0


@pytest.fixture(scope="module")
async def pair(snapshot: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SuspendablePair]:
    """A separate relay and browser: nothing else must stop with them."""
    async with (
        async_playwright() as playwright,
        SuspendablePair(tmp_path_factory.mktemp("sleep"), playwright, UP_WITHIN_S) as pair,
    ):
        yield pair


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.seconds == 1], ids=lambda cell: str(cell.name))
async def test_a_second_of_sleep_only_delays_calls(pair: SuspendablePair, cell: Cell) -> None:
    outcome = await pair.run(cell)
    assert (outcome.violations, outcome.errors) == ([], {})


async def test_calls_survive_when_relay_and_browser_sleep_for_longer_than_a_ping(pair: SuspendablePair) -> None:
    outcome = await pair.run(Cell(Who.BOTH, 20, has_calls=True))
    assert (outcome.violations, outcome.errors) == ([], {})


async def test_dials_that_are_given_up_while_the_relay_sleeps_raise_nothing(snapshot: None, tmp_path: Path) -> None:
    """The worker has no relay and dials repeatedly, and each dial ends by its timeout."""
    timing = {"watchdog_ms": 1_000, "connect_ms": 400, "first_delay_ms": 100, "longest_delay_ms": 200}
    async with (
        async_playwright() as playwright,
        SuspendablePair(tmp_path, playwright, UP_WITHIN_S, timing, heartbeat_s=0.3) as pair,
    ):
        outcome = await pair.run(Cell(Who.RELAY, 5, has_calls=False))
        assert outcome.violations == []
        assert await pair.attempts() > 2


def test_every_broken_promise_is_reported() -> None:
    """The check itself: each of these is a call that was lost, run twice or reported wrongly."""

    def judged(ran: int, *answers: dict[str, Any], permits: bool = True) -> list[str]:
        return Call("k", "work", answers=list(answers), ran=ran).violations(permits)

    def error(reason: str, delivered: str) -> dict[str, Any]:
        return {"error": {"code": -31011, "data": {"reason": reason, "delivered": delivered}}}

    good = {"result": {"content": [{"type": "text", "text": "k;"}]}}
    assert judged(1, good) == []
    assert judged(0, good) and judged(2, good) and judged(1) and judged(1, good, good)
    assert judged(1, {"result": {"content": [{"type": "text", "text": "another;"}]}})
    assert judged(1, {"result": {"content": [{"type": "text", "text": "k;"}], "isError": True}})
    assert judged(1, error("browser_gone", "unknown")) == judged(0, error("server_offline", "no")) == []
    assert judged(2, error("browser_gone", "unknown")) and judged(1, error("server_offline", "no"))
    assert judged(1, error("timeout", "unknown")) and judged(0, error("browser_gone", "unknown"), permits=False)
