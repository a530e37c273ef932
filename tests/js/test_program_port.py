"""The port between the playground's page and a program: results, faults, and the limits of a program."""

from __future__ import annotations

import json
from typing import Any

from tests.support.nodejs import node
from tests.support.paths import SUPPORT


async def play(scenario: str) -> Any:
    ended = await node(SUPPORT / "program_port.mjs", scenario)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


async def test_runs_and_calls_end_with_what_the_program_sent() -> None:
    found = await play("finishes")
    assert found["ran"] == {"value": [{"name": "x"}]}
    assert found["fault"] == {"message": "no", "line": 3, "column": 2}
    assert "not a list of tools" in found["odd"]["error"]
    assert found["call"] == {"value": {"content": [], "structuredContent": {"a": 1}}}
    assert found["fails"] == {"error": "it failed"}
    assert found["caller"] == {"principal": "p"}


async def test_progress_and_questions_reach_the_caller_and_answers_the_program() -> None:
    found = await play("asks")
    assert found["progress"] == [[1, 2, "half"]]
    assert found["call"] == {"value": {"action": "accept", "content": {"method": "elicitation/create"}}}


async def test_a_program_that_hangs_is_ended_and_its_calls_fail() -> None:
    found = await play("hangs")
    assert found["reason"] == "The program did not answer for 0.2 s and was stopped. [TR492]"
    assert found["call"] == {"error": found["reason"]}
    assert "has ended" in found["after"]["error"]


async def test_a_program_that_answers_pings_may_take_its_time() -> None:
    assert (await play("late"))["value"]["structuredContent"] == {"a": 1}


async def test_a_run_that_never_ends_is_ended() -> None:
    found = await play("waits")
    assert found["reason"] == "The program did not reach its end within 0.2 s and was stopped. [TR492]"
    assert found["run"] == {"error": found["reason"]}


async def test_after_a_cancellation_a_program_that_answers_nothing_is_ended_sooner() -> None:
    found = await play("ends")
    assert found["call"] == {"error": "not needed"}
    assert "for 0.1 s" in found["reason"]
    assert found["cancels"] == 1


async def test_calls_in_flight_have_a_limit() -> None:
    assert "runs 2 calls already" in (await play("calls"))["third"]["error"]


async def test_a_program_that_floods_the_page_is_ended() -> None:
    assert "too many messages" in (await play("floods"))["reason"]


async def test_arguments_results_and_messages_have_limits() -> None:
    found = await play("large")
    assert "larger than" in found["argument"]["error"]
    assert "larger than" in found["result"]["error"]
    assert "too large" in found["reason"]
