"""Calls that may ask take turns where a question does not say whose it is. Time is real here, and short."""

from __future__ import annotations

import asyncio

import pytest

from tabrelay.calls.calls import Call, Pending
from tabrelay.peers.upstreams import question_order as module
from tabrelay.peers.upstreams.question_order import AskHistory, QuestionQueue, named
from tabrelay.translation.shared_calls import TrackedCall
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.elsewhere import until


def running(channel: str, client: str = "one") -> TrackedCall:
    caller = Caller(Era.MODERN, "2026-07-28", "me", {"name": client, "version": "1"}, {"elicitation": {}})
    return TrackedCall(Pending(Call(channel, 1, "tools/call", "{}", caller)), None)


@pytest.fixture
async def floor(monkeypatch: pytest.MonkeyPatch) -> QuestionQueue:
    for name, seconds in (("SETTLE_S", 0.02), ("PATIENCE_S", 0.02), ("ASKING_S", 60.0)):
        monkeypatch.setattr(module, name, seconds)
    habits = AskHistory()
    habits.learn("asks", asks=True)
    habits.learn("silent", asks=False)
    return QuestionQueue(habits)


async def entered(floor: QuestionQueue, one: TrackedCall, what: str) -> asyncio.Task[None]:
    task = asyncio.create_task(floor.enter(one, what))
    await asyncio.sleep(0)
    return task


async def test_one_that_asks_waits_until_the_one_before_has_ended(floor: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await floor.enter(one, "asks")
    waiting = await entered(floor, two, "asks")
    assert not waiting.done()
    floor.leave(one, is_answered=True)
    await waiting


async def test_one_that_asks_goes_on_when_the_question_before_it_is_out(floor: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await floor.enter(one, "asks")
    waiting = await entered(floor, two, "asks")
    floor.asked(one)
    await asyncio.wait_for(waiting, 20)
    assert floor.among([one, two]) == [two]


async def test_an_answer_waits_until_the_other_has_asked_or_ended(floor: QuestionQueue) -> None:
    """Else both could ask next, and nobody could tell them apart."""
    one, two = running("a"), running("b")
    await floor.enter(one, "asks")
    floor.asked(one)
    await until(lambda: floor.among([one, two]) == [two])
    await floor.enter(two, "asks")
    answered = asyncio.create_task(floor.answered(one))
    await asyncio.sleep(0)
    assert not answered.done()
    floor.leave(two, is_answered=True)
    await answered
    assert floor.among([one]) == [one]


async def test_questions_at_the_same_moment_can_be_either_s(floor: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await floor.enter(one, "asks")
    await floor.enter(two, "silent at first")
    floor.asked(one)
    assert floor.among([one, two]) == [one, two]


async def test_calls_of_the_same_caller_need_not_wait_for_each_other(floor: QuestionQueue) -> None:
    await floor.enter(running("a"), "asks")
    await floor.enter(running("a"), "asks")


async def test_what_never_asked_waits_for_nobody_and_is_not_taken_for_the_one_who_asks(floor: QuestionQueue) -> None:
    one, two, stranger = running("a"), running("b"), running("c", "other")
    await floor.enter(one, "asks")
    await floor.enter(two, "silent")
    await floor.enter(stranger, "silent")
    assert floor.among([one, two]) == [one]
    assert floor.among([one, two, stranger]) == [one, two, stranger]  # between clients nothing is guessed


async def test_what_nobody_knows_waits_for_a_moment_only(floor: QuestionQueue) -> None:
    await floor.enter(running("a"), "asks")
    await asyncio.wait_for(floor.enter(running("b"), "new"), 20)


async def test_what_a_tool_does_is_learnt(floor: QuestionQueue) -> None:
    habits = AskHistory()
    floor = QuestionQueue(habits)
    for what, asks, is_answered in (("a", True, True), ("b", False, True), ("c", False, False)):
        one = running(what)
        await floor.enter(one, what)
        if asks:
            floor.asked(one)
        floor.leave(one, is_answered=is_answered)
    habits.learn("a", asks=False)  # once is enough
    assert [habits.get(what) for what in ("a", "b", "c")] == [True, False, None]


async def test_a_question_that_is_withdrawn_makes_its_call_one_that_may_ask(floor: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await floor.enter(one, "asks")
    floor.asked(one)
    await until(lambda: floor.among([one, two]) == [two])
    floor.withdrawn(one)
    assert floor.among([one, two]) == [one, two]


def test_a_call_is_of_a_tool_a_prompt_or_a_resource() -> None:
    assert named("tools/call", {"name": "x"}) == "tools/call x"
    assert named("resources/read", {"uri": "x://y"}) == "resources/read x://y"
    assert named("tools/call", None) == named("tools/call", {"name": 3}) == "tools/call"
