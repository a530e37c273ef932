"""Prompts: arguments from the signature, messages from any returned value, completion while the user types."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest

from tabserver.handlers.content import Embedded, Image, Message
from tabserver.handlers.context import Context
from tabserver.handlers.prompts import declare_prompt
from tabserver.handlers.toolbox import Toolbox, default_toolbox, prompt
from tabserver.schema.shapes import SchemaError
from tests.support.server_harness import CoreHarness


class Tone(enum.Enum):
    KIND = "kind"
    STRICT = "strict"


@pytest.fixture
def box() -> Toolbox:
    return Toolbox()


@pytest.fixture
def bench(box: Toolbox) -> CoreHarness:
    return CoreHarness(box)


def get(bench: CoreHarness, name: str, **arguments: Any) -> Any:
    bench.open()
    answer = bench.request("prompts/get", {"name": name, "arguments": arguments})
    return answer.get("result", answer.get("error"))


def test_a_prompt_is_listed_with_the_arguments_of_its_function(box: Toolbox, bench: CoreHarness) -> None:
    @prompt(title="Review", toolbox=box)
    def review(ctx: Context, code: Annotated[str, "What to review"], tone: Tone = Tone.KIND) -> str:
        """Review a piece of code."""
        return code

    assert bench.modern("prompts/list")["result"]["prompts"] == [
        {
            "name": "review",
            "title": "Review",
            "description": "Review a piece of code.",
            "arguments": [
                {"name": "code", "description": "What to review", "required": True},
                {"name": "tone", "required": False},
            ],
        }
    ]


def test_arguments_are_text_and_become_what_the_function_takes(box: Toolbox, bench: CoreHarness) -> None:
    @prompt(toolbox=box)
    def story(words: int, about: list[str], tone: Tone = Tone.KIND, sad: bool = False) -> str:
        return f"{words + 1} {about} {tone.name} {sad}"

    result = get(bench, "story", words="7", about='["a"]', tone="strict", sad="true")
    assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "8 ['a'] STRICT True"}}]
    error = get(bench, "story", words="seven", about="[]")
    assert error["code"] == -32602
    assert error["message"] == (
        'Invalid arguments for prompt "story":\narguments.words: expected integer, got string "seven"'
    )
    assert "arguments.about: missing" in get(bench, "story", words="1")["message"]
    assert "arguments.tune: unknown argument" in get(bench, "story", words="1", about="[]", tune="x")["message"]


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("hi", [{"role": "user", "content": {"type": "text", "text": "hi"}}]),
        (
            [Image(b"\x00"), Message("assistant", "I see.")],
            [
                {"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}},
                {"role": "assistant", "content": {"type": "text", "text": "I see."}},
            ],
        ),
        (
            Message("user", Embedded("a:b", "t")),
            [{"role": "user", "content": {"type": "resource", "resource": {"uri": "a:b", "text": "t"}}}],
        ),
        (
            {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]},
            [{"role": "user", "content": {"type": "text", "text": "hi"}}],
        ),
        (
            [{"role": "assistant", "content": {"type": "text", "text": "hi"}}],
            [{"role": "assistant", "content": {"type": "text", "text": "hi"}}],
        ),
    ],
)
def test_whatever_is_returned_becomes_messages(box: Toolbox, bench: CoreHarness, value: Any, messages: Any) -> None:
    @prompt(toolbox=box)
    def p() -> Any:
        return value

    assert get(bench, "p")["messages"] == messages


def test_what_is_no_message_is_a_clear_error(box: Toolbox, bench: CoreHarness) -> None:
    @prompt(toolbox=box)
    def p() -> Any:
        return [3]

    error = get(bench, "p")
    assert error["code"] == -32603 and "a prompt returns text, content or Messages, not int" in error["message"]


def test_an_unknown_prompt_is_refused_with_what_is_near(box: Toolbox, bench: CoreHarness) -> None:
    prompt(name="review", toolbox=box)(lambda: "x")
    error = get(bench, "reveiw")
    assert (error["code"], error["message"]) == (-32602, 'Unknown prompt "reveiw". Did you mean "review"?')


@pytest.mark.parametrize("arguments", [[], {"a": 3}])
def test_arguments_that_are_no_texts_are_refused(bench: CoreHarness, arguments: Any) -> None:
    bench.open()
    error = bench.request("prompts/get", {"name": "p", "arguments": arguments})["error"]
    assert error["code"] == -32602 and error["message"].startswith("params.arguments")


async def test_an_asynchronous_prompt_can_be_cancelled(box: Toolbox, bench: CoreHarness) -> None:
    stopped = asyncio.Event()

    @prompt(toolbox=box)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    bench.open()
    bench.request("prompts/get", {"name": "slow"}, id=4)
    await asyncio.sleep(0)
    bench.note("notifications/cancelled", {"requestId": 4})
    async with asyncio.timeout(60):
        await stopped.wait()
    assert (await bench.reply("c"))["code"] == -32800


def test_the_bare_decorator_registers_in_the_default_toolbox() -> None:
    @prompt
    def plain() -> str:
        return "x"

    try:
        assert plain() == "x" and [item["name"] for item in default_toolbox.prompts()] == ["plain"]
    finally:
        default_toolbox.remove_prompt("plain")


# -- completion --------------------------------------------------------------------------------------------------------


def complete(bench: CoreHarness, name: str, argument: str, typed: str, **others: str) -> Any:
    params = {
        "ref": {"type": "ref/prompt", "name": name},
        "argument": {"name": argument, "value": typed},
        "context": {"arguments": others},
    }
    bench.open()
    answer = bench.request("completion/complete", params)
    return answer["result"]["completion"]["values"] if "result" in answer else answer["error"]


def test_lists_types_and_functions_complete(box: Toolbox, bench: CoreHarness) -> None:
    def streets(typed: str, others: Mapping[str, str]) -> list[str]:
        return [f"{typed} in {others['city']}"]

    @prompt(complete={"city": ["Paris", "Parma", "Rome"], "street": streets, "house": lambda t: [t]}, toolbox=box)
    def visit(city: str, street: str, house: str, how: Literal["by car", "by bus"] | None = None, why: str = "") -> str:
        return city

    assert complete(bench, "visit", "city", "pAr") == ["Paris", "Parma"]
    assert complete(bench, "visit", "street", "Main", city="Rome") == ["Main in Rome"]
    assert complete(bench, "visit", "house", "7") == ["7"]
    assert complete(bench, "visit", "how", "by b") == ["by bus"]
    assert complete(bench, "visit", "why", "x") == []
    assert complete(bench, "visit", "when", "x")["code"] == -32602
    assert complete(bench, "nope", "city", "x")["code"] == -32602


def test_at_most_a_hundred_values_are_sent(box: Toolbox, bench: CoreHarness) -> None:
    prompt(name="p", complete={"a": [f"v{n}" for n in range(150)]}, toolbox=box)(takes_a)
    bench.open()
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}
    completion = bench.request("completion/complete", params)["result"]["completion"]
    assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 150, True)


def takes_a(a: str) -> str:
    return a


def test_a_completer_that_fails_is_an_error(box: Toolbox, bench: CoreHarness) -> None:
    prompt(name="p", complete={"a": lambda typed: 1 / 0}, toolbox=box)(takes_a)
    error = {"code": -32603, "message": "ZeroDivisionError: division by zero", "data": {"help": "TR113"}}
    assert complete(bench, "p", "a", "x") == error


async def test_a_completer_may_be_asynchronous(box: Toolbox, bench: CoreHarness) -> None:
    async def find(typed: str) -> list[str]:
        await asyncio.sleep(0)
        return [typed + "!"]

    prompt(name="p", complete={"a": find}, toolbox=box)(takes_a)
    params = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}
    assert (await bench.ask("m", "completion/complete", params))["completion"]["values"] == ["v!"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a"}},
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}, "context": 3},
    ],
)
def test_a_completion_request_that_is_none_is_refused(bench: CoreHarness, params: dict[str, Any]) -> None:
    bench.open()
    assert bench.request("completion/complete", params)["error"]["code"] == -32602


def test_a_completer_for_an_argument_that_is_not_there_is_refused() -> None:
    with pytest.raises(SchemaError, match="prompt takes_a: complete has 'b'"):
        declare_prompt(takes_a, complete={"b": []})
