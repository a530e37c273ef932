"""Questions and answers as values: forms from types, answers read back, content in its form on the wire."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest

from tabserver.handlers.content import Audio, Image, Link, Message, Text, to_block
from tabserver.handlers.context import Context
from tabserver.handlers.questions import Declined, Elicit, ElicitUrl, InvalidAnswer, ListRoots, Root, Sample
from tabserver.schema.shapes import SchemaError
from tests.support.fake_request import RecordingRequest


@dataclass
class Booking:
    room: Annotated[str, "Which one"]
    day: datetime.date
    seats: int = 2
    how: Literal["quiet", "loud"] = "quiet"
    extras: list[Literal["tea", "cake"]] | dict[str, int] | None = None


class Plain(TypedDict):
    name: str


@dataclass
class Simple:
    room: str
    seats: int = 2


def test_a_form_is_made_of_a_dataclass() -> None:
    assert Elicit("Book?", Simple).params() == {
        "message": "Book?",
        "requestedSchema": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "seats": {"type": "integer", "default": 2}},
            "required": ["room"],
        },
    }


@pytest.mark.parametrize("schema", [Booking, int, list[int]])
def test_a_form_that_no_client_could_show_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="form"):
        Elicit("?", schema).params()


def test_a_field_that_is_none_by_default_is_not_required() -> None:
    @dataclass
    class Order:
        seats: int | None = None
        extras: list[Literal["tea", "cake"]] | None = None

    form = Elicit("?", Order)
    assert form.params()["requestedSchema"]["properties"] == {
        "seats": {"type": "integer"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["tea", "cake"]}},
    }
    assert form.read({"action": "accept", "content": {"seats": 2}}).data == Order(2)


def test_an_accepted_form_is_read_as_its_type() -> None:
    answer = Elicit("?", Simple).read({"action": "accept", "content": {"room": "1"}})
    assert answer.accepted and answer.data == Simple("1", 2) and answer.content == {"room": "1"}
    assert Elicit("?", Plain).read({"action": "accept", "content": {"name": "x"}}).data == {"name": "x"}


@pytest.mark.parametrize(("action", "text"), [("decline", "declined"), ("cancel", "dismissed")])
def test_a_form_that_was_not_accepted_has_no_data(action: str, text: str) -> None:
    answer = Elicit("?", Simple).read({"action": action})
    assert not answer.accepted
    with pytest.raises(Declined, match=text):
        _ = answer.data


@pytest.mark.parametrize(
    ("question", "answer", "text"),
    [
        (Elicit("?", Simple), {}, "action: expected one of accept, decline, cancel, got null"),
        (Elicit("?", Simple), {"action": "accept"}, "content: expected object, got null"),
        (Elicit("?", Simple), {"action": "accept", "content": {"seats": "x"}}, "content.seats: expected integer"),
        (
            Elicit("?", {"type": "object", "properties": {}, "required": ["a"]}),
            {"action": "accept", "content": {}},
            "a",
        ),
        (ElicitUrl("?", "https://x"), {"action": "maybe"}, "action: expected one of"),
        (Sample("?"), {"role": "robot"}, "role and content expected"),
        (ListRoots(), {"roots": [{}]}, "roots: expected an array"),
    ],
)
def test_an_answer_that_is_not_valid_is_an_error_with_the_reason(
    question: Any, answer: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidAnswer, match=text):
        question.read(answer)


def test_what_a_model_is_asked_may_be_text_messages_and_content() -> None:
    question = Sample(
        ["Hi", Message("assistant", Image(b"\x00")), {"role": "user", "content": {"type": "text", "text": "?"}}],
        max_tokens=5,
        system_prompt="Be kind.",
        stop_sequences=("x",),
    )
    assert question.params() == {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Hi"}},
            {"role": "assistant", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}},
            {"role": "user", "content": {"type": "text", "text": "?"}},
        ],
        "maxTokens": 5,
        "systemPrompt": "Be kind.",
        "stopSequences": ["x"],
    }


def test_a_models_answer_has_text_and_content() -> None:
    said = Sample("?").read(
        {"role": "assistant", "model": "m", "stopReason": "endTurn", "content": {"type": "text", "text": "Hi"}}
    )
    assert (said.text, said.model, said.stop_reason) == ("Hi", "m", "endTurn")
    many = Sample("?").read({"role": "assistant", "model": "m", "content": [{"type": "text", "text": "a"}] * 2})
    assert many.text == "aa"


@pytest.mark.parametrize(
    ("value", "block"),
    [
        ("x", {"type": "text", "text": "x"}),
        (Text("x", {"priority": 1}), {"type": "text", "text": "x", "annotations": {"priority": 1}}),
        (Image("AA==", "image/gif"), {"type": "image", "data": "AA==", "mimeType": "image/gif"}),
        (Audio(b"\x00"), {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}),
        (Link("a:b", "n", size=3), {"type": "resource_link", "uri": "a:b", "name": "n", "size": 3}),
    ],
)
def test_content_has_its_form_on_the_wire(value: Any, block: dict[str, Any]) -> None:
    assert to_block(value) == block


@pytest.mark.parametrize("value", [3, {}, {"type": "image"}, {"type": []}, None])
def test_what_is_no_content_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="expected text or content"):
        to_block(value)


async def test_a_context_asks_reports_and_describes_its_caller() -> None:
    request = RecordingRequest()
    request.answers = [
        {"action": "accept", "content": {"room": "1"}},
        {"action": "decline"},
        {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}},
        {"roots": [{"uri": "file:///a", "name": "A"}]},
    ]
    ctx = Context(request)
    assert (await ctx.elicit("Room?", Simple, key="room")).data.room == "1"
    assert not (await ctx.elicit_url("In?", "https://x")).accepted
    assert (await ctx.sample("Hi")).text == "Hi"
    assert await ctx.roots() == [Root("file:///a", "A")]
    assert [(key, method) for key, method, _ in request.asked] == [
        ("room", "elicitation/create"),
        (None, "elicitation/create"),
        (None, "sampling/createMessage"),
        (None, "roots/list"),
    ]
    ctx.debug(1)
    ctx.info(2)
    ctx.warning(3)
    ctx.error(4)
    ctx.progress(1, 2, "half")
    ctx.close_stream(500)
    assert request.said == [
        ("log", "debug", 1),
        ("log", "info", 2),
        ("log", "warning", 3),
        ("log", "error", 4),
        ("progress", 1, 2, "half"),
        ("close_stream", 500),
    ]
    assert (ctx.request_id, ctx.is_cancelled, ctx.era, ctx.caller.principal) == (7, False, "modern", "token:ab12")
