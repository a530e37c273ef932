"""Parking: a question of the server ends a modern call, and its retry continues it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tabrelay.errors import BrowserGone
from tabrelay.translation import messages
from tabserver.wire import jsonrpc
from tests.support.bureau import ABLE, FORM, Bureau, notices, reply
from tests.support.clock import Clock, Timer


@pytest.fixture
async def bureau() -> Bureau:
    return Bureau()


async def test_a_question_ends_the_call_and_the_retry_continues_it(bureau: Bureau) -> None:
    first = bureau.tool(meta={"progressToken": "one"})
    bureau.peer.ask("q1")
    questions, handle = await bureau.asked(first)
    [(key, question)] = questions.items()
    assert question == {"method": "elicitation/create", "params": {**FORM, "mode": "form"}}
    second = bureau.tool(answers={key: {"action": "accept", "content": {"name": "Ada"}}}, state=handle)
    assert bureau.peer.said == [jsonrpc.result_message("q1", {"action": "accept", "content": {"name": "Ada"}})]
    assert len(bureau.peer.started) == 1
    bureau.peer.result({"content": []})
    assert (await reply(second))["result"]["resultType"] == "complete"
    assert len(bureau.parking) == 0


async def test_questions_at_the_same_moment_are_asked_together(bureau: Bureau) -> None:
    pending = bureau.tool()
    bureau.peer.ask("q1")
    bureau.peer.ask("q2", "roots/list", {})
    bureau.peer.ask("q3", "sampling/createMessage", {"messages": [], "maxTokens": 1, "_meta": {"progressToken": 0}})
    questions, _ = await bureau.asked(pending)
    assert [question["method"] for question in questions.values()] == [
        "elicitation/create",
        "roots/list",
        "sampling/createMessage",
    ]
    assert all("_meta" not in question["params"] for question in questions.values())


class SlowLoop(Clock):
    """The event loop as the translator uses it."""

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        return super().call_later(delay_s, partial(callback, *arguments))


@pytest.mark.parametrize(("questions", "together"), [(4, 4), (40, 17)], ids=["some", "without an end"])
async def test_questions_of_a_server_that_pauses_between_them_are_asked_together(
    bureau: Bureau, monkeypatch: pytest.MonkeyPatch, questions: int, together: int
) -> None:
    """As on a busy machine. A server that goes on for ever does not keep its client waiting for ever."""
    loop = SlowLoop()
    monkeypatch.setattr(bureau.translator, "_loop", loop)
    pending = bureau.tool()
    for number in range(questions):
        bureau.peer.ask(f"q{number}")
        await loop.advance(0.06)
    await loop.advance(1)
    asked, _ = await bureau.asked(pending)
    assert len(asked) == together


async def test_what_was_not_answered_is_asked_again_under_a_new_handle(bureau: Bureau) -> None:
    first = bureau.tool()
    bureau.peer.ask("q1")
    bureau.peer.ask("q2")
    questions, handle = await bureau.asked(first)
    one, two = questions
    again, second_handle = await bureau.asked(bureau.tool(answers={one: {"action": "decline"}, "x": {}}, state=handle))
    assert list(again) == [two]
    assert second_handle != handle
    bureau.tool(answers={two: {"action": "accept"}}, state=second_handle)
    assert [message["id"] for message in bureau.peer.said] == ["q1", "q2"]


async def test_a_call_may_ask_several_times(bureau: Bureau) -> None:
    pending = bureau.tool()
    for round in range(3):
        bureau.peer.ask(f"q{round}")
        questions, handle = await bureau.asked(pending)
        pending = bureau.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    bureau.peer.result({"content": []})
    assert (await reply(pending))["result"]["content"] == []


async def test_a_handle_works_once_for_its_owner_and_its_request_only(bureau: Bureau) -> None:
    first = bureau.tool()
    bureau.peer.ask()
    questions, handle = await bureau.asked(first)
    answers = {key: {"action": "accept"} for key in questions}
    other = {"name": "greet", "arguments": {"a": 2}, "inputResponses": answers, "requestState": handle}
    for refused in (
        bureau.tool(answers=answers, state=handle, principal="thief"),
        bureau.tool(answers=answers, state=handle + "x"),
        bureau.tool(answers=answers, state=7),
        bureau.tool(answers=[], state=handle),
        bureau.tool(answers={"x": 1}, state=handle),
        bureau.call("tools/call", other),
        bureau.call("prompts/get", {**other, "arguments": {"a": 1}}),
    ):
        assert (await reply(refused))["error"]["code"] == jsonrpc.INVALID_PARAMS
    right = bureau.tool(answers=answers, state=handle)
    assert not right.is_done
    assert (await reply(bureau.tool(answers=answers, state=handle)))["error"]["code"] == jsonrpc.INVALID_PARAMS


async def test_answers_without_a_handle_are_for_a_new_call_and_its_first_questions_that_they_fit(
    bureau: Bureau,
) -> None:
    """Their names are not ours; what fits no question is passed over, and what is missing is asked for."""
    right = {"action": "accept", "content": {"name": "Ada"}}
    pending = bureau.tool(answers={"stray": {"action": "accept", "content": {"size": 1}}, "user_name": right})
    form = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    bureau.peer.ask("q1", params=form)
    bureau.peer.ask("q2", params=form)
    questions, _ = await bureau.asked(pending)
    assert bureau.peer.said == [jsonrpc.result_message("q1", right)]
    assert len(questions) == 1


async def test_a_client_that_introduces_itself_anew_finds_its_call_where_it_was(bureau: Bureau) -> None:
    """The same server may be spoken to in several sessions, each with a translator of its own."""
    first = bureau.tool()
    bureau.peer.ask("q1")
    questions, handle = await bureau.asked(first)
    other = Bureau()
    other.translator._parking = bureau.parking
    second = other.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    assert [message["id"] for message in bureau.peer.said] == ["q1"]
    bureau.peer.result({"content": []})
    assert (await reply(second))["result"]["resultType"] == "complete"


async def test_nobody_who_answers_in_time_means_a_cancelled_call() -> None:
    bureau = Bureau(ttl_s=0.01)
    first = bureau.tool()
    bureau.peer.ask()
    questions, handle = await bureau.asked(first)
    await bureau.peer.until(lambda: bool(bureau.peer.cancelled))
    assert len(bureau.parking) == 0
    late = bureau.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    assert (await reply(late))["error"]["code"] == jsonrpc.INVALID_PARAMS


async def test_an_answer_that_comes_while_nobody_waits_is_kept_for_the_retry(bureau: Bureau) -> None:
    first = bureau.tool()
    bureau.peer.ask()
    _, handle = await bureau.asked(first)
    bureau.peer.tell("notifications/progress", {"progressToken": 1, "progress": 1})
    bureau.peer.result({"content": [], "isError": True})
    assert (await reply(bureau.tool(answers={}, state=handle)))["result"]["isError"] is True


async def test_a_browser_that_goes_while_nobody_waits_is_told_at_the_retry(bureau: Bureau) -> None:
    first = bureau.tool()
    bureau.peer.ask()
    _, handle = await bureau.asked(first)
    bureau.peer.last.fail(BrowserGone("gone"))
    with pytest.raises(BrowserGone):
        await bureau.tool(answers={}, state=handle).next()


async def test_progress_after_a_retry_has_the_retrys_token(bureau: Bureau) -> None:
    first = bureau.tool(meta={"progressToken": "one"})
    bureau.peer.ask()
    questions, handle = await bureau.asked(first)
    answers = {key: {"action": "accept"} for key in questions}
    second = bureau.tool(answers=answers, state=handle, meta={"progressToken": "two"})
    bureau.peer.tell("notifications/progress", {"progressToken": "one", "progress": 1})
    [notice] = await notices(second)
    assert notice["params"]["progressToken"] == "two"


async def test_a_retry_that_hangs_up_cancels_the_call(bureau: Bureau) -> None:
    first = bureau.tool()
    bureau.peer.ask()
    questions, handle = await bureau.asked(first)
    second = bureau.tool(answers={key: {"action": "accept"} for key in questions}, state=handle)
    bureau.translator.cancel(second, "left")
    assert bureau.peer.cancelled == [(bureau.peer.last, "left")]


async def test_a_question_that_the_server_withdraws_is_not_asked(bureau: Bureau) -> None:
    pending = bureau.tool()
    bureau.peer.ask("q1")
    bureau.peer.tell("notifications/cancelled", {"requestId": "q1"})
    bureau.peer.ask("q2", "roots/list", {})
    questions, _ = await bureau.asked(pending)
    assert [question["method"] for question in questions.values()] == ["roots/list"]


async def test_one_client_can_keep_only_so_many_calls_waiting(bureau: Bureau) -> None:
    for _ in range(2):
        pending = bureau.tool()
        bureau.peer.ask()
        await bureau.asked(pending)
    third = bureau.tool()
    bureau.peer.ask("q9")
    await bureau.peer.until(lambda: bool(bureau.peer.said))
    assert (bureau.peer.said[0]["id"], "error" in bureau.peer.said[0]) == ("q9", True)
    bureau.peer.result({"isError": True})
    assert (await reply(third))["result"]["isError"] is True
    someone_else = bureau.tool(principal="you")
    bureau.peer.ask()
    await bureau.asked(someone_else)


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
    bureau: Bureau, capabilities: dict[str, Any], method: str, params: dict[str, Any]
) -> None:
    bureau.tool(capabilities=capabilities)
    bureau.peer.ask("q1", method, params)
    assert bureau.peer.said[0]["error"]["code"] == jsonrpc.METHOD_NOT_FOUND


async def test_a_request_that_may_not_ask_is_answered_for(bureau: Bureau) -> None:
    bureau.call("completion/complete", {})
    bureau.peer.ask("q1")
    assert "error" in bureau.peer.said[0]


async def test_url_questions_lose_their_id_and_their_completion(bureau: Bureau) -> None:
    pending = bureau.tool()
    bureau.peer.ask("q1", params={"mode": "url", "url": "https://a.example", "message": "m", "elicitationId": "e"})
    bureau.peer.tell("notifications/elicitation/complete", {"elicitationId": "e"})
    questions, _ = await bureau.asked(pending)
    [question] = questions.values()
    assert question["params"] == {"mode": "url", "url": "https://a.example", "message": "m"}
    assert await notices(pending) == []


# -- the error that sends the user to an address ----------------------------------------------------------------------

ADDRESS = {"mode": "url", "elicitationId": "e", "url": "https://a.example", "message": "Log in"}


async def test_an_error_that_needs_an_address_becomes_a_question_and_the_call_is_made_again(bureau: Bureau) -> None:
    first = bureau.tool()
    bureau.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [ADDRESS]})
    questions, handle = await bureau.asked(first)
    [(key, question)] = questions.items()
    assert question["params"] == {"mode": "url", "url": "https://a.example", "message": "Log in"}
    second = bureau.tool(answers={key: {"action": "accept"}}, state=handle)
    assert len(bureau.peer.started) == 2
    assert bureau.peer.request()["params"] == {"name": "greet", "arguments": {"a": 1}}
    bureau.peer.result({"content": []})
    assert (await reply(second))["result"]["resultType"] == "complete"


async def test_an_address_that_was_not_opened_ends_the_call(bureau: Bureau) -> None:
    first = bureau.tool()
    bureau.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [ADDRESS]})
    questions, handle = await bureau.asked(first)
    again, handle = await bureau.asked(bureau.tool(answers={}, state=handle))
    assert list(again) == list(questions)
    refused = bureau.tool(answers={key: {"action": "decline"} for key in questions}, state=handle)
    assert (await reply(refused))["error"]["code"] == jsonrpc.INVALID_PARAMS
    assert len(bureau.peer.started) == 1


async def test_a_client_that_opens_no_addresses_is_told_what_it_lacks(bureau: Bureau) -> None:
    pending = bureau.tool(capabilities={"elicitation": {}})
    bureau.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [ADDRESS]})
    error = (await reply(pending))["error"]
    assert (error["code"], error["data"]) == (
        jsonrpc.MISSING_CAPABILITY,
        {"requiredCapabilities": {"elicitation": {"url": {}}}},
    )


async def test_an_error_that_needs_an_address_and_names_none_is_an_internal_one(bureau: Bureau) -> None:
    pending = bureau.tool()
    bureau.peer.error(messages.URL_ELICITATION_REQUIRED, {"elicitations": [{"message": "?"}]})
    assert (await reply(pending))["error"]["code"] == jsonrpc.INTERNAL_ERROR
