"""Calls that may ask take turns where a question does not name its call. Time is real here, and short."""

from __future__ import annotations

import asyncio

import pytest

from tabrelay.calls.calls import Call, Pending
from tabrelay.peers.upstreams import question_order as module
from tabrelay.peers.upstreams.question_order import AskHistory, QuestionQueue, target_of
from tabrelay.translation.shared_calls import TrackedCall
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.child_specs import until


def running(channel: str, client: str = "one") -> TrackedCall:
    caller = Caller(Era.MODERN, "2026-07-28", "me", {"name": client, "version": "1"}, {"elicitation": {}})
    return TrackedCall(Pending(Call(channel, 1, "tools/call", "{}", caller)), None)


@pytest.fixture
async def queue(monkeypatch: pytest.MonkeyPatch) -> QuestionQueue:
    for name, seconds in (("BURST_S", 0.02), ("UNKNOWN_WAIT_S", 0.02), ("ASKING_WAIT_S", 60.0)):
        monkeypatch.setattr(module, name, seconds)
    history = AskHistory()
    history.record("asks", asks=True)
    history.record("silent", asks=False)
    return QuestionQueue(history)


async def entered(queue: QuestionQueue, one: TrackedCall, what: str) -> asyncio.Task[None]:
    task = asyncio.create_task(queue.acquire(one, what))
    await asyncio.sleep(0)
    return task


async def test_one_that_asks_waits_until_the_one_before_has_ended(queue: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await queue.acquire(one, "asks")
    waiting = await entered(queue, two, "asks")
    assert not waiting.done()
    queue.release(one, is_answered=True)
    await waiting


async def test_one_that_asks_goes_on_when_the_question_before_it_is_out(queue: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await queue.acquire(one, "asks")
    waiting = await entered(queue, two, "asks")
    queue.asked(one)
    await asyncio.wait_for(waiting, 20)
    assert queue.candidates([one, two]) == [two]


async def test_an_answer_waits_until_the_other_has_asked_or_ended(queue: QuestionQueue) -> None:
    """Otherwise both could ask next, and their questions could not be told apart."""
    one, two = running("a"), running("b")
    await queue.acquire(one, "asks")
    queue.asked(one)
    await until(lambda: queue.candidates([one, two]) == [two])
    await queue.acquire(two, "asks")
    answered = asyncio.create_task(queue.answered(one))
    await asyncio.sleep(0)
    assert not answered.done()
    queue.release(two, is_answered=True)
    await answered
    assert queue.candidates([one]) == [one]


async def test_questions_at_the_same_moment_may_belong_to_either_call(queue: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await queue.acquire(one, "asks")
    await queue.acquire(two, "silent at first")
    queue.asked(one)
    assert queue.candidates([one, two]) == [one, two]


async def test_calls_of_the_same_caller_need_not_wait_for_each_other(queue: QuestionQueue) -> None:
    await queue.acquire(running("a"), "asks")
    await queue.acquire(running("a"), "asks")


async def test_a_tool_that_never_asked_waits_for_no_turn_and_gets_no_question(
    queue: QuestionQueue,
) -> None:
    one, two, stranger = running("a"), running("b"), running("c", "other")
    await queue.acquire(one, "asks")
    await queue.acquire(two, "silent")
    await queue.acquire(stranger, "silent")
    assert queue.candidates([one, two]) == [one]
    assert queue.candidates([one, two, stranger]) == [one, two, stranger]  # between clients nothing is guessed


async def test_an_unknown_tool_waits_only_a_moment_for_its_turn(queue: QuestionQueue) -> None:
    await queue.acquire(running("a"), "asks")
    await asyncio.wait_for(queue.acquire(running("b"), "new"), 20)


async def test_what_a_tool_does_is_learnt(queue: QuestionQueue) -> None:
    history = AskHistory()
    queue = QuestionQueue(history)
    for what, asks, is_answered in (("a", True, True), ("b", False, True), ("c", False, False)):
        one = running(what)
        await queue.acquire(one, what)
        if asks:
            queue.asked(one)
        queue.release(one, is_answered=is_answered)
    history.record("a", asks=False)  # once is enough
    assert [history.get(what) for what in ("a", "b", "c")] == [True, False, None]


async def test_a_question_that_is_withdrawn_makes_its_call_one_that_may_ask(queue: QuestionQueue) -> None:
    one, two = running("a"), running("b")
    await queue.acquire(one, "asks")
    queue.asked(one)
    await until(lambda: queue.candidates([one, two]) == [two])
    queue.withdrawn(one)
    assert queue.candidates([one, two]) == [one, two]


def test_a_call_is_of_a_tool_a_prompt_or_a_resource() -> None:
    assert target_of("tools/call", {"name": "x"}) == "tools/call x"
    assert target_of("resources/read", {"uri": "x://y"}) == "resources/read x://y"
    assert target_of("tools/call", None) == target_of("tools/call", {"name": 3}) == "tools/call"
