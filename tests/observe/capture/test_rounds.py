"""Rounds of a call: which captured call a request answers, by the state and the names of its questions."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tabrelay.calls.calls import Call
from tabrelay.config.settings import Settings
from tabrelay.observe.capture.call_capture import CallCapture
from tabrelay.observe.capture.captured_call import ASKS_CLIENT, CapturedCall
from tabrelay.observe.capture.rounds import MAX_ASKED, MAX_RESULT
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

Row = dict[str, Any]

CALLER = Caller(era=Era.MODERN, version="2026-07-28", principal="me", client={}, capabilities={})


def captured(
    capture: CallCapture, result: Any = None, text: str | None = None, tool: str = "order", **params: Any
) -> CapturedCall:
    """A call that has ended with questions, if it has a result; `text`: of its whole answer."""
    trace = capture.capture({}, "notes", {"method": "tools/call", "params": {"name": tool, **params}})
    assert trace is not None
    trace.lookup_started("notes", Call("c", 1, "tools/call", "{}", CALLER, name=tool))
    if result is not None or text is not None:
        answer = orjson.dumps({"result": result}).decode() if text is None else text
        trace.ended((None, ASKS_CLIENT), answer)
        trace.outcome = ASKS_CLIENT
    return trace


def asking(state: str | None = None, key: str = "q") -> Row:
    found: Row = {"resultType": "input_required", "inputRequests": {key: {"method": "elicitation/create"}}}
    return found if state is None else {**found, "requestState": state}


def test_an_answer_is_the_next_round_of_the_call_with_its_state() -> None:
    capture = CallCapture(Settings(inspect=True), "")
    first, other = captured(capture, asking("one")), captured(capture, asking("two"))
    second = captured(capture, asking("one b"), requestState="one", inputResponses={"q": {}})
    third = captured(capture, requestState="one b", inputResponses={"q": {}})
    assert (second.group, second.rounds, third.group, third.rounds) == (first.id, 2, first.id, 3)
    assert (other.group, other.rounds) == (other.id, 1)
    assert captured(capture, requestState="one", tool="add").rounds == 1
    assert captured(capture).rounds == 1


def test_without_a_state_the_names_of_the_questions_are_compared() -> None:
    capture = CallCapture(Settings(inspect=True), "")
    first = captured(capture, asking(key="a"))
    captured(capture, asking(key="b"))
    assert captured(capture, inputResponses={"a": {}}).group == first.id
    assert captured(capture, inputResponses={"c": {}}).rounds == 1


@pytest.mark.parametrize(
    "text", ['{"result": [1]}', '{"result": "x"}', "{", '{"id": 1}', '{"result": "' + "x" * MAX_RESULT + '"}']
)
def test_any_answer_and_any_request_is_read(text: str) -> None:
    capture = CallCapture(Settings(inspect=True), "")
    captured(capture, text=text)
    captured(capture, {"inputRequests": [1]})
    answers: tuple[Row, ...] = ({"inputResponses": [1]}, {"inputResponses": None}, {"requestState": {}})
    for params in answers:
        assert captured(capture, **params).rounds == 1
    assert capture.capture({}, "notes", {"method": "tools/call", "params": [1]}) is not None


def test_the_number_of_calls_that_are_searched_for_a_question_is_bounded() -> None:
    capture = CallCapture(Settings(inspect=True), "")
    captured(capture, asking("oldest"))
    for number in range(MAX_ASKED):
        captured(capture, asking(str(number)))
    assert captured(capture, requestState="0").rounds == 2
    assert captured(capture, requestState="oldest").rounds == 1
