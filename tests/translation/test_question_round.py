"""Rounds of questions: those that a server asks at once make one round, even if the server's process pauses between
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tabrelay.errors import Busy
from tabrelay.translation.question_round import COALESCE_S, MOST_COALESCE_S, QuestionRound
from tests.support.fake_clock import Clock
from tests.support.translator_harness import TranslatorHarness


class LoopClock(Clock):
    """The part of an event loop that a round uses."""

    def time(self) -> float:
        return self.now


class RoundHarness:
    """A round, the pings that it sends, and the time at which it was complete."""

    def __init__(self) -> None:
        self.loop = LoopClock()
        self.pings: list[Callable[[], None]] = []
        self.cancelled = 0
        self.completed: list[float] = []
        self.can_ping = True
        self._began = self.loop.now
        self.round = QuestionRound(cast(Any, self.loop), self._ping, lambda: self.completed.append(self.passed))

    @property
    def passed(self) -> float:
        return round(float(self.loop.now - self._began), 6)

    def _ping(self, answered: Callable[[], None]) -> Callable[[], None] | None:
        if not self.can_ping:
            return None
        self.pings.append(answered)
        return self._cancel

    def _cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def harness() -> RoundHarness:
    return RoundHarness()


async def test_a_round_is_complete_soon_after_the_last_question(harness: RoundHarness) -> None:
    for _ in range(3):
        harness.round.add()
        harness.pings[-1]()
        await harness.loop.advance(0.06)
    assert harness.completed == []
    await harness.loop.advance(1)
    assert harness.completed == [pytest.approx(0.12 + COALESCE_S)]
    assert harness.cancelled == 0


async def test_while_the_server_has_not_answered_a_ping_the_round_waits(harness: RoundHarness) -> None:
    """As on a busy machine: the server's process pauses for longer than the wait, and asks the rest."""
    harness.round.add()
    await harness.loop.advance(0.5)
    assert harness.completed == [] and len(harness.pings) == 1
    harness.round.add()
    await harness.loop.advance(0.05)
    harness.pings[0]()
    assert harness.completed == []
    await harness.loop.advance(0.1)
    assert harness.completed == [pytest.approx(0.5 + COALESCE_S)]


async def test_the_answer_to_the_ping_completes_a_round_that_is_quiet(harness: RoundHarness) -> None:
    harness.round.add()
    await harness.loop.advance(0.3)
    harness.pings[0]()
    assert harness.completed == [0.3]
    await harness.loop.advance(2)
    assert harness.completed == [0.3]


async def test_a_server_that_answers_no_ping_delays_its_round_by_a_bounded_time(harness: RoundHarness) -> None:
    harness.round.add()
    await harness.loop.advance(5)
    assert harness.completed == [pytest.approx(MOST_COALESCE_S)] and harness.cancelled == 1


async def test_a_server_that_asks_without_end_does_not_delay_its_round_without_end(harness: RoundHarness) -> None:
    while not harness.completed:
        harness.round.add()
        harness.pings[-1]()
        await harness.loop.advance(0.06)
    assert harness.completed == [pytest.approx(MOST_COALESCE_S)]


async def test_without_a_ping_only_the_wait_counts(harness: RoundHarness) -> None:
    harness.can_ping = False
    harness.round.add()
    await harness.loop.advance(2)
    assert harness.completed == [pytest.approx(COALESCE_S)]


async def test_a_round_that_is_stopped_is_never_complete(harness: RoundHarness) -> None:
    harness.round.add()
    harness.round.stop()
    harness.pings[0]()
    await harness.loop.advance(5)
    assert harness.completed == [] and harness.cancelled == 1


async def test_a_call_that_ends_meanwhile_takes_its_ping_back() -> None:
    harness = TranslatorHarness()
    harness.peer.answers_pings = False
    pending = harness.tool()
    harness.peer.ask("q1")
    [ping] = harness.peer.pings
    assert (ping.call.channel, ping.call.message()["method"]) == (pending.call.channel, "ping")
    harness.peer.result({"content": []})
    assert [cancelled for cancelled, _ in harness.peer.cancelled] == [ping]


async def test_a_server_that_takes_no_more_calls_is_not_pinged() -> None:
    harness = TranslatorHarness()
    pending = harness.tool()
    harness.peer.refuses = Busy("full")
    harness.peer.ask("q1")
    questions, _ = await harness.asked(pending)
    assert len(questions) == 1 and harness.peer.pings == []
