"""Tools: schemas from signatures, faults that name their path, results, and calls that end exactly once."""

from __future__ import annotations

import ast
import asyncio
import datetime
import enum
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict

import pytest

from tabserver.handlers import execute
from tabserver.handlers.content import Image, Link
from tabserver.handlers.context import Context, Outcome, Result
from tabserver.handlers.toolbox import Toolbox, default_toolbox, tool
from tabserver.handlers.tools import ToolError, ToolResult, UnknownTool, declare, failure, to_result
from tabserver.rpc import Refusal
from tabserver.schema.shapes import SchemaError
from tests.support.fake_request import RecordingRequest
from tests.support.toolbox_calls import boxed, call, faults, read, schema_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    price: float
    count: int = 1
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count must not be negative")


@dataclass
class Node:
    name: str
    children: list[Node]


class Address(TypedDict):
    street: str
    zip: NotRequired[str]


@dataclass
class Total:
    amount: float


UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (UserId, {"type": "integer"}),
        (
            Address,
            {
                "type": "object",
                "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
                "required": ["street"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_a_type_has_its_schema(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema


def test_a_dataclass_shows_its_defaults_and_what_it_requires() -> None:
    assert schema_of(Item) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "price": {"type": "number"},
            "count": {"type": "integer", "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "price"],
        "additionalProperties": False,
    }


def test_a_type_that_contains_itself_is_referred_to() -> None:
    def f(root: Node) -> None: ...

    schema = declare(f).description["inputSchema"]
    assert schema["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    tree = {"name": "a", "children": [{"name": "b", "children": []}]}
    assert declare(f).read({"root": tree})["root"] == Node("a", [Node("b", [])])
    tree["children"][0]["children"] = [3]  # type: ignore[index]
    assert faults(f, root=tree) == "arguments.root.children[0].children[0]: expected object, got number 3"


@pytest.mark.parametrize(
    ("hint", "value", "made"),
    [
        (float, 3, 3.0),
        (int, 3.0, 3),
        (Color, "blue", Color.BLUE),
        (set[str], ["a", "b"], {"a", "b"}),
        (tuple[int, str], [1, "x"], (1, "x")),
        (datetime.datetime, "2026-07-28T12:00:00Z", datetime.datetime(2026, 7, 28, 12, tzinfo=datetime.UTC)),
        (Item, {"name": "n", "price": 2}, Item("n", 2.0)),
        (Address, {"street": "s"}, {"street": "s"}),
        (int | str, "5", "5"),
        (bool | int, True, True),
        (datetime.date | str, "soon", "soon"),
        (Item | None, None, None),
    ],
)
def test_a_json_value_becomes_the_python_value(hint: Any, value: Any, made: Any) -> None:
    got = read(hint, value)
    assert (type(got), got) == (type(made), made)


@pytest.mark.parametrize(
    ("hint", "value", "fault"),
    [
        (int, True, "expected integer, got boolean true"),
        (int, 1.5, "expected integer, got number 1.5"),
        (float, "x", 'expected number, got string "x"'),
        (float, float("inf"), "expected number, got number Infinity"),
        (str, None, "expected string, got null"),
        (bool, 1, "expected boolean, got number 1"),
        (list[int], {}, "expected array, got object"),
        (tuple[int, str], [1], "expected array of 2 items, got array of 1"),
        (set[int], [1, 1], "the items must differ from each other"),
        (Literal["a", 1], True, 'expected one of "a", 1, got boolean true'),
        (Color, "bleu", 'expected one of "red", "blue", got string "bleu"; did you mean "blue"?'),
        (int | None, "x", 'expected integer or null, got string "x"'),
        (datetime.date, "today", 'expected date string, got string "today"'),
        (Item, {"name": "n", "price": 1, "count": -1}, "count must not be negative"),
        (str | int, [1], "expected string or integer, got array"),
    ],
)
def test_the_error_of_a_wrong_value_names_what_was_expected(hint: Any, value: Any, fault: str) -> None:
    def f(x: Any) -> None: ...

    f.__annotations__ = {"x": hint}
    assert faults(f, x=value) == f"arguments.x: {fault}"


def test_a_fault_names_the_path_down_to_the_value() -> None:
    def order(items: list[Item]) -> None: ...

    good = {"name": "a", "price": 1}
    assert (
        faults(order, items=[good, good, {"name": "c", "price": "x"}])
        == 'arguments.items[2].price: expected number, got string "x"'
    )


def test_the_faults_of_an_optional_object_are_those_of_the_object() -> None:
    def order(item: Item | None) -> None: ...

    assert faults(order, item={"name": "a"}) == "arguments.item.price: missing, expected number"


def test_an_unknown_argument_is_refused_with_a_suggestion_and_every_fault_is_reported() -> None:
    def add(left: int, right: int) -> int:
        return left + right

    text = faults(add, left=1, rigth=2)
    assert text.splitlines() == [
        'arguments.rigth: unknown argument; did you mean "right"?',
        "arguments.right: missing, expected integer",
    ]


def test_a_key_that_is_no_identifier_is_quoted_in_the_path() -> None:
    def f(x: dict[str, int]) -> None: ...

    assert faults(f, x={"a b": "y"}) == 'arguments.x["a b"]: expected integer, got string "y"'


def test_many_faults_are_cut_short() -> None:
    def f(x: list[int]) -> None: ...

    lines = faults(f, x=["a"] * 20).splitlines()
    assert len(lines) == 9 and lines[-1] == "… and 12 more"


def test_defaults_are_used_for_what_is_absent() -> None:
    def f(a: int, b: int = 5, c: Color = Color.RED) -> str:
        return f"{a} {b} {c.name}"

    assert declare(f).description["inputSchema"]["properties"]["c"]["default"] == "red"
    assert call(boxed(f), a=1)["content"][0]["text"] == "1 5 RED"


def test_the_description_comes_from_the_docstring_and_hints_from_the_decorator() -> None:
    box = Toolbox()

    @tool(title="Wipe", destructive=True, read_only=False, idempotent=True, open_world=False, toolbox=box)
    def wipe(really: bool) -> None:
        """Delete everything.

        There is no way back.
        """

    assert box.tools() == [
        {
            "name": "wipe",
            "title": "Wipe",
            "description": "Delete everything.\n\nThere is no way back.",
            "inputSchema": {
                "type": "object",
                "properties": {"really": {"type": "boolean"}},
                "required": ["really"],
                "additionalProperties": False,
            },
            "annotations": {
                "readOnlyHint": False,
                "destructiveHint": True,
                "idempotentHint": True,
                "openWorldHint": False,
            },
        }
    ]


def test_the_bare_decorator_registers_in_the_default_toolbox_and_leaves_the_function_alone() -> None:
    @tool
    def plain_add(a: int, b: int) -> int:
        return a + b

    try:
        assert plain_add(1, 2) == 3
        assert [t["name"] for t in default_toolbox.tools()] == ["plain_add"]
    finally:
        default_toolbox.remove("plain_add")


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (complex, "tool f, parameter x: complex has no JSON form"),
        (dict[float, str], "the keys of a JSON object are strings"),
        (list[memoryview], "memoryview has no JSON form"),
    ],
)
def test_a_type_without_a_json_form_is_refused_when_the_tool_is_declared(hint: Any, text: str) -> None:
    def f(x: Any) -> None: ...

    f.__annotations__ = {"x": hint}
    with pytest.raises(SchemaError, match=text.replace("(", r"\(")):
        declare(f)


def test_parameters_that_have_no_name_of_their_own_are_refused() -> None:
    def f(*args: int) -> None: ...

    with pytest.raises(SchemaError, match="tool f, parameter"):
        declare(f)


def test_a_name_that_clients_could_not_use_is_refused() -> None:
    with pytest.raises(SchemaError, match="tool name 'a b'"):
        declare(lambda: None, name="a b")


def test_an_annotation_that_can_not_be_resolved_is_named() -> None:
    def f(x: Any) -> None: ...

    f.__annotations__ = {"x": "Nowhere"}
    with pytest.raises(SchemaError, match="annotation 'Nowhere' can't be found"):
        declare(f)


def test_the_same_function_may_be_declared_again_but_another_may_not_take_its_name() -> None:
    def f() -> None: ...

    box = Toolbox()
    changes: list[int] = []
    box.listen(lambda: changes.append(len(box.tools())), lambda uri: None)
    box.add(declare(f, name="t"))
    box.add(declare(f, name="t"))
    with pytest.raises(ValueError, match=r'tool "t" is already offered by .*give one of them another name'):
        box.add(declare(lambda: None, name="t"))
    box.remove("t")
    box.remove("t")
    assert changes == [1, 1, 0]


def test_an_object_is_its_own_structured_content() -> None:
    def f() -> Total:
        return Total(1.5)

    assert boxed(f).tools()[0]["outputSchema"]["properties"] == {"amount": {"type": "number"}}
    assert call(boxed(f)) == {
        "content": [{"type": "text", "text": '{"amount": 1.5}'}],
        "structuredContent": {"amount": 1.5},
    }


def test_a_result_that_is_not_an_object_is_the_member_result_of_one() -> None:
    def f() -> list[int]:
        return [1, 2]

    schema = {"type": "array", "items": {"type": "integer"}}
    assert boxed(f).tools()[0]["outputSchema"] == {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
    }
    assert call(boxed(f)) == {"content": [{"type": "text", "text": "[1, 2]"}], "structuredContent": {"result": [1, 2]}}


def test_a_value_that_may_be_an_object_or_null_has_one_form() -> None:
    values: list[Total | None] = [Total(1.5), None]

    def f() -> Total | None:
        return values.pop(0)

    assert boxed(f).tools()[0]["outputSchema"]["required"] == ["result"]
    box = boxed(f)
    assert call(box)["structuredContent"] == {"result": {"amount": 1.5}}
    assert call(box)["structuredContent"] == {"result": None}


def test_structured_content_of_a_complete_result_is_an_object() -> None:
    assert to_result({"content": [], "structuredContent": 5}) == {"content": [], "structuredContent": {"result": 5}}
    assert to_result(ToolResult("five", structured=5))["structuredContent"] == {"result": 5}


def test_text_stays_text() -> None:
    def f() -> str:
        return "é"

    assert call(boxed(f)) == {"content": [{"type": "text", "text": "é"}], "structuredContent": {"result": "é"}}


def test_a_recursive_return_type_refers_to_its_definitions_from_the_root() -> None:
    def one() -> Node:
        return Node("a", [])

    def many() -> list[Node]:
        return []

    assert declare(one).description["outputSchema"]["type"] == "object"
    schema = declare(many).description["outputSchema"]
    assert schema["properties"]["result"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["type"] == "object"


def test_a_result_that_breaks_the_promise_is_an_error_that_names_the_path() -> None:
    def f() -> list[int]:
        return [1, "x"]  # type: ignore[list-item]

    result = call(boxed(f))
    assert result["isError"] is True
    assert 'result[1]: expected integer, got string "x"' in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, float("nan")]}, "result.a[1]: nan has no JSON form"),
        ({"a": object()}, "result.a: an object has no JSON form"),
        ({(1, 2): 3}, "result: a tuple can't be the key of a JSON object. Use texts as keys, such as str(key)."),
        ({None: 3}, "result: None can't be the key of a JSON object. Use texts as keys, such as str(key)."),
        (
            object(),
            "result: an object has no JSON form. Return a dict, a list or a dataclass with the values that matter.",
        ),
    ],
)
def test_a_result_that_json_can_not_hold_is_a_clear_error(value: Any, text: str) -> None:
    def f():  # type: ignore[no-untyped-def]
        return value

    result = call(boxed(f))
    assert result["isError"] is True and text in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, {"content": []}),
        ("hi", {"content": [{"type": "text", "text": "hi"}]}),
        ([1], {"content": [{"type": "text", "text": "[1]"}]}),
        ([], {"content": [{"type": "text", "text": "[]"}]}),
        ({"a": {2, 1}}, {"content": [{"type": "text", "text": '{"a": [1, 2]}'}], "structuredContent": {"a": [1, 2]}}),
        ([{"type": "text", "text": "x"}], {"content": [{"type": "text", "text": "x"}]}),
        (
            {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "isError": False},
            {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "isError": False},
        ),
    ],
)
def test_a_value_without_a_promise_becomes_content(value: Any, result: Result) -> None:
    assert to_result(value) == result


def test_a_tool_that_raises_gives_type_and_message_and_no_traceback() -> None:
    def f() -> int:
        raise KeyError("no such note")

    assert call(boxed(f)) == {"content": [{"type": "text", "text": "KeyError: 'no such note'"}], "isError": True}


def test_a_tool_that_exits_does_not_take_the_worker_with_it() -> None:
    def f() -> int:
        sys.exit(3)

    assert call(boxed(f))["content"][0]["text"] == "SystemExit: 3"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), BaseException("odd")])
@pytest.mark.parametrize("is_late", [False, True])
async def test_whatever_a_tool_raises_its_call_ends(error: BaseException, is_late: bool) -> None:
    async def late() -> None:
        await asyncio.sleep(0)
        raise error

    def now() -> None:
        raise error

    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    execute.run("f", late if is_late else now, to_result, failure, ended.set_result)
    async with asyncio.timeout(5):
        found = await ended
    assert found["isError"] and found["content"][0]["text"].startswith(type(error).__name__)


def test_an_unknown_tool_is_named() -> None:
    with pytest.raises(UnknownTool) as caught:
        Toolbox().call("nope", {}, RecordingRequest(), lambda result: None)
    assert caught.value.name == "nope"


def test_a_context_parameter_is_filled_in_and_hidden() -> None:
    def f(a: int, context: Context) -> int:
        context.progress(1, 2, "half")
        return a

    box, said, results = boxed(f), RecordingRequest(), list[Any]()
    assert list(box.tools()[0]["inputSchema"]["properties"]) == ["a"]
    box.call("t", {"a": 1}, said, results.append)
    assert said.said == [("progress", 1, 2, "half")]
    assert results[0]["structuredContent"] == {"result": 1}


async def test_an_asynchronous_tool_ends_with_its_task() -> None:
    gate = asyncio.Event()

    async def f(a: int) -> int:
        await gate.wait()
        return a * 2

    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    boxed(f).call("t", {"a": 4}, RecordingRequest(), ended.set_result)
    assert not ended.done()
    gate.set()
    assert (await ended)["structuredContent"] == {"result": 8}


async def test_an_asynchronous_tool_that_raises_is_a_failed_result() -> None:
    async def f() -> int:
        raise RuntimeError("broken")

    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    boxed(f).call("t", {}, RecordingRequest(), ended.set_result)
    assert (await ended) == {"content": [{"type": "text", "text": "RuntimeError: broken"}], "isError": True}


@pytest.mark.parametrize("has_started", [False, True])
async def test_cancelling_raises_inside_the_tool_and_ends_it_once(has_started: bool) -> None:
    seen: list[str] = []
    running = asyncio.Event()

    async def f() -> int:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen.append(str(error))
            raise
        return 1

    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    cancel = boxed(f).call("t", {}, RecordingRequest(), ended.set_result)
    if has_started:
        await running.wait()
    cancel("the caller left")
    assert (await ended)["isError"] is True
    assert seen == (["the caller left"] if has_started else [])


def test_importing_the_wire_loads_nothing_else_of_the_package() -> None:
    code = "import sys, tabserver.wire.link; print(sorted(m for m in sys.modules if m.startswith('tabserver.')))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "tabserver.wire.link" in modules
    assert all(name.startswith("tabserver.wire") for name in ast.literal_eval(modules))


def test_the_public_names_are_there() -> None:
    import tabserver

    assert tabserver.tool is tool and tabserver.Context is Context
    assert set(tabserver.__all__) <= set(dir(tabserver))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = tabserver.nonsense


# -- content and hand-written schemas ---------------------------------------------------------------------------------


def test_content_promises_nothing_and_is_sent_as_it_is() -> None:
    def one() -> Image:
        return Image(b"\x00")

    def many() -> list[str | Image | Link]:
        return ["x", Image(b"\x00"), Link("a:b", "n")]

    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    assert "outputSchema" not in declare(one).description and "outputSchema" not in declare(many).description
    assert call(boxed(one)) == {"content": [image]}
    link = {"type": "resource_link", "uri": "a:b", "name": "n"}
    assert call(boxed(many)) == {"content": [{"type": "text", "text": "x"}, image, link]}


def test_a_mixed_list_may_hold_values_too() -> None:
    result = to_result([Image("AA=="), {"type": "text", "text": "t"}, Total(2.0)])
    assert [block.get("text") for block in result["content"]] == [None, "t", '{"amount": 2.0}']


def test_a_tool_may_return_an_error_in_its_own_words() -> None:
    def f() -> int:
        raise ToolError("There is no note of that name.")

    assert call(boxed(f)) == {
        "content": [{"type": "text", "text": "There is no note of that name."}],
        "isError": True,
    }


def test_a_tool_may_refuse_with_an_error_of_the_protocol() -> None:
    def f() -> int:
        raise Refusal(-32602, "no")

    results: list[Outcome] = []
    boxed(f).call("t", {}, RecordingRequest(), results.append)
    assert isinstance(results[0], Refusal) and results[0].code == -32602
