"""The bridge while the time of day jumps: a server's date must not make it wait for a day."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import pytest

from tabrelay.bridge.backoff import LONGEST_RETRY_AFTER_S, RetryAfter, read_retry_after
from tests.support.bridge_harness import InProcessBridge, QuickClock
from tests.support.fake_upstream import Upstream, result, status

NOW = 1_800_000_000.0


@pytest.mark.parametrize("jump_s", [-86_400, -3600, -1, 0, 1, 3600, 86_400])
def test_the_wait_until_a_date_in_retry_after_is_a_minute_at_most(jump_s: int) -> None:
    retry_after_s = read_retry_after(formatdate(NOW + 2, usegmt=True), NOW + jump_s)
    wait_s = RetryAfter(1, is_repeatable=True).after_status(503, retry_after_s)
    assert wait_s is None or 0 <= wait_s <= LONGEST_RETRY_AFTER_S


class Jumping(QuickClock):
    """A clock whose time of day is set back while a request waits for its retry."""

    jumped_s = 0.0

    def now(self) -> float:
        return super().now() + self.jumped_s

    async def sleep(self, seconds: float) -> None:
        assert 0 <= seconds <= LONGEST_RETRY_AFTER_S
        self.jumped_s = 86_400 - self.jumped_s if self.jumped_s <= 0 else -86_400
        await super().sleep(seconds)


async def test_a_request_is_answered_while_the_time_of_day_jumps() -> None:
    date = formatdate(NOW + 1, usegmt=True)
    on: Any = {"tools/list": [status(503, Retry_After=date), status(503), result("fine")]}
    async with Upstream(on) as server, InProcessBridge(server.url, clock=Jumping()) as bridge:
        assert (await bridge.ask("tools/list"))["result"] == "fine"
        assert len(server.all("tools/list")) == 3
