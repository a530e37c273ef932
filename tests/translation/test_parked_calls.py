"""Parking: a question of the server ends a modern call, and its retry continues it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tabrelay.errors import BrowserGone
from tabrelay.translation import messages
from tabserver.wire import jsonrpc
from tests.support.fake_clock import Clock, Timer
from tests.support.translator_harness import ABLE, FORM, TranslatorHarness, notices, reply


@pytest.fixture
async def harness() -> TranslatorHarness:
    return TranslatorHarness()


async def test_a_question_ends_the_call_and_the_retry_continues_it(harness: TranslatorHarness) -> None:
    first = harness.tool(meta={"progressToken": "one"})
    harness.peer.ask("q1")
    questions, handle = await harness.asked(first)
    [(key, question)] = questions.items()
    assert question == {"method": "elicitation/create", "params": {**FORM, "mode": "form"}}
    second = harness.tool(answers={key: {"action": "accept", "content": {"name": "Ada"}}}, state=handle)
    assert harness.peer.sent == [jsonrpc.result_message("q1", {"action": "accept", "content": {"name": "Ada"}})]
    assert len(harness.peer.started) == 1
    harness.peer.result({"content": []})
    assert (await reply(second))["result"]["resultType"] == "complete"
    assert len(harness.parking) == 0


async def test_questions_at_the_same_moment_are_asked_together(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    harness.peer.ask("q1")
    harness.peer.ask("q2", "roots/list", {})
    harness.peer.ask("q3", "sampling/createMessage", {"messages": [], "maxTokens": 1, "_meta": {"progressToken": 0}})
    questions, _ = await harness.asked(pending)
    assert [question["method"] for question in questions.values()] == [
        "elicitation/create",
        "roots/list",
        "sampling/createMessage",
    ]
    assert all("_meta" not in question["params"] for question in questions.values())


class SlowLoop(Clock):
    """The part of an event loop that the translator uses."""

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        return super().call_later(delay_s, partial(callback, *arguments))


@pytest.mark.parametrize(("questions", "together"), [(4, 4), (40, 17)], ids=["some", "without an end"])
async def test_questions_of_a_server_that_pauses_between_them_are_asked_together(
    harness: TranslatorHarness, monkeypatch: pytest.MonkeyPatch, questions: int, together: int
) -> None:
    """As on a busy machine. A server that asks without end does not keep its client waiting without end."""
    loop = SlowLoop()
    monkeypatch.setattr(harness.translator, "_loop", loop)
    pending = harness.tool()
    for number in range(questions):
        harness.peer.ask(f"q{number}")
        await loop.advance(0.06)
    await loop.advance(1)
    asked, _ = await harness.asked(pending)
    assert len(asked) == together


async def test_what_was_not_answered_is_asked_again_under_a_new_handle(harness: TranslatorHarness) -> None:
    first = harness.tool()
    harness.peer.ask("q1")
    harness.peer.ask("q2")
    questions, handle = await harness.asked(first)
    one, two = questions
    again, second_handle = await harness.asked(
        harness.tool(answers={one: {"action": "decline"}, "x": {}}, state=handle)
    )
    assert list(again) == [two]
    assert second_handle != handle
    harness.tool(answers={two: {"action": "accept"}}, state=second_handle)
    assert [message["id"] for message in harness.peer.sent] == ["q1", "q2"]


async def test_a_call_may_ask_several_times(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    for round in range(3):
        harness.peer.ask(f"q{round}")
        questions, handle = await harness.asked(pending)
        pending = harness.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    harness.peer.result({"content": []})
    assert (await reply(pending))["result"]["content"] == []


async def test_a_handle_works_once_for_its_owner_and_its_request_only(harness: TranslatorHarness) -> None:
    first = harness.tool()
    harness.peer.ask()
    questions, handle = await harness.asked(first)
    answers = {key: {"action": "accept"} for key in questions}
    other = {"name": "greet", "arguments": {"a": 2}, "inputResponses": answers, "requestState": handle}
    for refused in (
        harness.tool(answers=answers, state=handle, principal="thief"),
        harness.tool(answers=answers, state=handle + "x"),
        harness.tool(answers=answers, state=7),
        harness.tool(answers=[], state=handle),
        harness.tool(answers={"x": 1}, state=handle),
        harness.call("tools/call", other),
        harness.call("prompts/get", {**other, "arguments": {"a": 1}}),
    ):
        assert (await reply(refused))["error"]["code"] == jsonrpc.INVALID_PARAMS
    right = harness.tool(answers=answers, state=handle)
    assert not right.is_done
    assert (await reply(harness.tool(answers=answers, state=handle)))["error"]["code"] == jsonrpc.INVALID_PARAMS


async def test_answers_without_a_handle_are_for_a_new_call_and_its_first_questions_that_they_fit(
    harness: TranslatorHarness,
) -> None:
    """Their keys are not the relay's: answers that fit no question are ignored, and missing ones are asked for."""
    right = {"action": "accept", "content": {"name": "Ada"}}
    pending = harness.tool(answers={"stray": {"action": "accept", "content": {"size": 1}}, "user_name": right})
    form = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    harness.peer.ask("q1", params=form)
    harness.peer.ask("q2", params=form)
    questions, _ = await harness.asked(pending)
    assert harness.peer.sent == [jsonrpc.result_message("q1", right)]
    assert len(questions) == 1


async def test_a_client_that_initializes_again_finds_its_running_call(harness: TranslatorHarness) -> None:
    """One server may have several sessions, each with a separate translator."""
    first = harness.tool()
    harness.peer.ask("q1")
    questions, handle = await harness.asked(first)
    other = TranslatorHarness()
    other.translator._parked = harness.parking
    second = other.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    assert [message["id"] for message in harness.peer.sent] == ["q1"]
    harness.peer.result({"content": []})
    assert (await reply(second))["result"]["resultType"] == "complete"


async def test_without_an_answer_in_time_the_call_is_cancelled() -> None:
    harness = TranslatorHarness(ttl_s=0.01)
    first = harness.tool()
    harness.peer.ask()
    questions, handle = await harness.asked(first)
    await harness.peer.until(lambda: bool(harness.peer.cancelled))
    assert len(harness.parking) == 0
    late = harness.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    assert (await reply(late))["error"]["code"] == jsonrpc.INVALID_PARAMS


async def test_an_answer_that_arrives_while_the_call_is_parked_is_kept_for_the_retry(
    harness: TranslatorHarness,
) -> None:
    first = harness.tool()
    harness.peer.ask()
    _, handle = await harness.asked(first)
    harness.peer.send_notification("notifications/progress", {"progressToken": 1, "progress": 1})
    harness.peer.result({"content": [], "isError": True})
    assert (await reply(harness.tool(answers={}, state=handle)))["result"]["isError"] is True


async def test_a_browser_that_disconnects_while_the_call_is_parked_is_reported_at_the_retry(
    harness: TranslatorHarness,
) -> None:
    first = harness.tool()
    harness.peer.ask()
    _, handle = await harness.asked(first)
    harness.peer.last.end(BrowserGone("gone"))
    with pytest.raises(BrowserGone):
        await harness.tool(answers={}, state=handle).next()


async def test_progress_after_a_retry_has_the_retrys_token(harness: TranslatorHarness) -> None:
    first = harness.tool(meta={"progressToken": "one"})
    harness.peer.ask()
    questions, handle = await harness.asked(first)
    answers = {key: {"action": "accept"} for key in questions}
    second = harness.tool(answers=answers, state=handle, meta={"progressToken": "two"})
    harness.peer.send_notification("notifications/progress", {"progressToken": "one", "progress": 1})
    [notice] = await notices(second)
    assert notice["params"]["progressToken"] == "two"


async def test_a_retry_that_disconnects_cancels_the_call(harness: TranslatorHarness) -> None:
    first = harness.tool()
    harness.peer.ask()
    questions, handle = await harness.asked(first)
    second = harness.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    harness.translator.cancel(second, "left")
    assert harness.peer.cancelled == [(harness.peer.last, "left")]


async def test_a_question_that_the_server_withdraws_is_not_asked(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    harness.peer.ask("q1")
    harness.peer.send_notification("notifications/cancelled", {"requestId": "q1"})
    harness.peer.ask("q2", "roots/list", {})
    questions, _ = await harness.asked(pending)
    assert [question["method"] for question in questions.values()] == ["roots/list"]


async def test_waiting_calls_of_one_client_are_bounded(harness: TranslatorHarness) -> None:
    for _ in range(2):
        pending = harness.tool()
        harness.peer.ask()
        await harness.asked(pending)
    third = harness.tool()
    harness.peer.ask("q9")
    await harness.peer.until(lambda: bool(harness.peer.sent))
    assert (harness.peer.sent[0]["id"], "error" in harness.peer.sent[0]) == ("q9", True)
    harness.peer.result({"isError": True})
    assert (await reply(third))["result"]["isError"] is True
    someone_else = harness.tool(principal="you")
    harness.peer.ask()
    await harness.asked(someone_else)


@pytest.mark.parametrize(
    ("capabilities", "method", "params"),
    [
        ({}, "elicitation/create", FORM),
        ({"elicitation": {}}, "elicitation/create", {"mode": "url", "url": "https://a.example", "message": "m"}),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM),
        ({"elicitation": {}}, "sampling/createMessage", {}),
        ({"sampling": {}}, "sampling/createMessage", {"tools": []}),
        ({"sampling": {}}, "roots/list", {}),
        (ABLE, "acme/question", {}),
    ],
)
async def test_what_a_client_cannot_do_it_is_not_asked(
    harness: TranslatorHarness, capabilities: dict[str, Any], method: str, params: dict[str, Any]
) -> None:
    harness.tool(capabilities=capabilities)
    harness.peer.ask("q1", method, params)
    assert harness.peer.sent[0]["error"]["code"] == jsonrpc.METHOD_NOT_FOUND


async def test_a_request_that_may_not_ask_is_answered_for(harness: TranslatorHarness) -> None:
    harness.call("completion/complete", {})
    harness.peer.ask("q1")
    assert "error" in harness.peer.sent[0]


async def test_url_questions_lose_their_id_and_their_completion(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    harness.peer.ask("q1", params={"mode": "url", "url": "https://a.example", "message": "m", "elicitationId": "e"})
    harness.peer.send_notification("notifications/elicitation/complete", {"elicitationId": "e"})
    questions, _ = await harness.asked(pending)
    [question] = questions.values()
    assert question["params"] == {"mode": "url", "url": "https://a.example", "message": "m"}
    assert await notices(pending) == []


# -- errors that direct the user to an address -------------------------------------------------------------------------

ADDRESS = {"mode": "url", "elicitationId": "e", "url": "https://a.example", "message": "Log in"}


async def test_an_error_that_needs_an_address_becomes_a_question_and_the_call_is_made_again(
    harness: TranslatorHarness,
) -> None:
    first = harness.tool()
    harness.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [ADDRESS]})
    questions, handle = await harness.asked(first)
    [(key, question)] = questions.items()
    assert question["params"] == {"mode": "url", "url": "https://a.example", "message": "Log in"}
    second = harness.tool(answers={key: {"action": "accept"}}, state=handle)
    assert len(harness.peer.started) == 2
    assert harness.peer.request()["params"] == {"name": "greet", "arguments": {"a": 1}}
    harness.peer.result({"content": []})
    assert (await reply(second))["result"]["resultType"] == "complete"


async def test_an_address_that_was_not_opened_ends_the_call(harness: TranslatorHarness) -> None:
    first = harness.tool()
    harness.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [ADDRESS]})
    questions, handle = await harness.asked(first)
    again, handle = await harness.asked(harness.tool(answers={}, state=handle))
    assert list(again) == list(questions)
    refused = harness.tool(answers={key: {"action": "decline"} for key in questions}, state=handle)
    assert (await reply(refused))["error"]["code"] == jsonrpc.INVALID_PARAMS
    assert len(harness.peer.started) == 1


async def test_a_client_that_opens_no_addresses_gets_an_error_that_names_the_missing_capability(
    harness: TranslatorHarness,
) -> None:
    pending = harness.tool(capabilities={"elicitation": {}})
    harness.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [ADDRESS]})
    error = (await reply(pending))["error"]
    assert (error["code"], error["data"]) == (
        jsonrpc.MISSING_CAPABILITY,
        {"requiredCapabilities": {"elicitation": {"url": {}}}, "help": "TR150"},
    )


async def test_an_error_that_needs_an_address_and_names_none_is_an_internal_one(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    harness.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [{"message": "?"}]})
    assert (await reply(pending))["error"]["code"] == jsonrpc.INTERNAL_ERROR
