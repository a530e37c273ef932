"""Python types as JSON Schema: permitted types of a signature, how values are read, and faults that name the path.

Runs on CPython and, unchanged, inside Pyodide, whose Python is newer. Whole tools are in tests/handlers.
"""

import datetime
import enum
import functools
import sys
import uuid
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar

import pytest

from tabserver.handlers.context import Context
from tabserver.handlers.signature import InvalidArguments
from tabserver.handlers.tools import ToolResult, declare
from tabserver.schema.bounds import Bounds
from tabserver.schema.shapes import SchemaError
from tabserver.schema.types import NotJson, to_json

T = TypeVar("T")
U = TypeVar("U", bound=int)


def declared(hint: Any, default: Any = ...) -> Any:
    """A tool with one argument x of that type."""

    def f(x: Any) -> None: ...

    def g(x: Any = default) -> None: ...

    function = f if default is ... else g
    function.__annotations__ = {"x": hint}
    return declare(function)


def schema_of(hint: Any, default: Any = ...) -> Any:
    return declared(hint, default).description["inputSchema"]["properties"]["x"]


def read(hint: Any, value: Any, default: Any = ...) -> Any:
    return declared(hint, default).read({"x": value})["x"]


def fault(hint: Any, value: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        declared(hint).read({"x": value})
    return str(caught.value)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: float
    y: float = 0.0


@dataclass
class Circle:
    kind: Literal["circle"]
    radius: Annotated[float, Bounds(gt=0)]


@dataclass
class Square:
    kind: Literal["square"]
    side: float


@dataclass
class Place:
    """Somewhere on the map."""

    at: Point
    name: str = ""


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: Optional["Page[T]"] = None


@dataclass
class Names(Page[str]):
    total: int = 0


class Pair(TypedDict, Generic[T]):
    left: T
    right: T


class Tree(TypedDict):
    name: str
    children: "list[Tree]"


# -- scalars -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "text", "value", "format"),
    [
        (datetime.datetime, "2026-11-16T21:00:00+01:00", None, "date-time"),
        (
            datetime.datetime,
            "2026-11-16T20:00:00Z",
            datetime.datetime(2026, 11, 16, 20, tzinfo=datetime.UTC),
            "date-time",
        ),
        (datetime.date, "2026-11-16", datetime.date(2026, 11, 16), "date"),
        (datetime.time, "21:00:30", datetime.time(21, 0, 30), "time"),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678123456781234567812345678"), "uuid"),
    ],
)
def test_dates_times_and_uuids_are_strings_with_a_format(hint: Any, text: str, value: Any, format: str) -> None:
    assert schema_of(hint) == {"type": "string", "format": format}
    made = read(hint, text)
    assert isinstance(made, hint) and (value is None or made == value)
    assert read(hint, to_json(made, "x")) == made
    assert "arguments.x: expected" in fault(hint, "yesterday")


@pytest.mark.parametrize(
    ("hint", "value"),
    [(int, True), (float, False), (str, 1), (bool, 1), (None, 0), (int, 1.5), (float, "1"), (int, None)],
)
def test_no_kind_passes_for_another(hint: Any, value: Any) -> None:
    assert "arguments.x: expected" in fault(hint, value)


def test_an_empty_tuple_is_not_any_tuple() -> None:
    assert schema_of(tuple[()]) == {"type": "array", "items": {}, "minItems": 0, "maxItems": 0}
    assert read(tuple[()], []) == () and "expected array of 0 items, got array of 1" in fault(tuple[()], [1])
    assert schema_of(tuple) == {"type": "array", "items": {}} and read(tuple, [1, "a"]) == (1, "a")


def test_an_enum_is_its_values_and_gives_its_members() -> None:
    assert schema_of(Level) == {"type": "integer", "enum": [1, 2]}
    assert read(Level, 2) is Level.HIGH and read(Color, "red") is Color.RED
    assert 'expected one of "red", "blue", got string "rot"' in fault(Color, "rot")
    assert schema_of(Literal[Color.RED, "none"]) == {"type": "string", "enum": ["red", "none"]}
    assert read(Literal[Color.RED, "none"], "red") is Color.RED


def test_a_default_of_none_means_that_null_may_be_given() -> None:
    for hint in (int, int | None):
        assert schema_of(hint, None) == {"type": "integer"}
        assert "required" not in declared(hint, None).description["inputSchema"]
        assert read(hint, None, None) is None and read(hint, 3, None) == 3


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "keywords", "good", "bad", "text"),
    [
        (Annotated[int, Bounds(ge=1, le=3)], {"minimum": 1, "maximum": 3}, 3, 4, "at most 3, got number 4"),
        (Annotated[int, Bounds(ge=1)], {"minimum": 1}, 1, 0, "at least 1, got number 0"),
        (Annotated[float, Bounds(gt=0)], {"exclusiveMinimum": 0}, 0.1, 0, "more than 0"),
        (Annotated[float, Bounds(lt=1)], {"exclusiveMaximum": 1}, 0.9, 1.0, "less than 1"),
        (Annotated[int, Bounds(multiple_of=5)], {"multipleOf": 5}, 10, 12, "a multiple of 5"),
        (Annotated[float, Bounds(multiple_of=0.1)], {"multipleOf": 0.1}, 0.3, 0.35, "a multiple of 0.1"),
        (Annotated[str, Bounds(min_length=2)], {"minLength": 2}, "ab", "a", "at least 2 characters, got 1"),
        (Annotated[str, Bounds(max_length=2)], {"maxLength": 2}, "ab", "abc", "at most 2 characters, got 3"),
        (Annotated[str, Bounds(pattern="^a+$")], {"pattern": "^a+$"}, "aa", "ab", "a string that matches ^a+$"),
        (Annotated[list[int], Bounds(max_length=1)], {"maxItems": 1}, [1], [1, 2], "at most 1 items, got 2"),
        (Annotated[set[int], Bounds(min_length=1)], {"minItems": 1}, [1], [], "at least 1 items, got 0"),
        (Annotated[dict[str, int], Bounds(max_length=1)], {"maxProperties": 1}, {}, {"a": 1, "b": 2}, "at most 1 prop"),
        (Annotated[int, {"minimum": 1}], {"minimum": 1}, 1, 0, "at least 1"),
    ],
)
def test_bounds_are_shown_and_kept(hint: Any, keywords: Any, good: Any, bad: Any, text: str) -> None:
    shown = schema_of(hint)
    assert {key: shown[key] for key in keywords} == keywords
    read(hint, good)
    assert f"arguments.x: expected {text}" in fault(hint, bad)


def test_bounds_of_an_optional_number_leave_null_alone() -> None:
    hint = Annotated[int | None, "how many", Bounds(ge=1)]
    number = {"type": "integer", "minimum": 1}
    assert schema_of(hint) == {"anyOf": [number, {"type": "null"}], "description": "how many"}
    assert schema_of(hint, None) == number | {"description": "how many"}
    assert read(hint, None) is None
    assert "at least 1" in fault(hint, 0)


def test_bounds_hold_inside_of_things() -> None:
    assert "arguments.x[1]: expected at least 0" in fault(list[Annotated[int, Bounds(ge=0)]], [1, -1])
    assert "arguments.x.radius: expected more than 0" in fault(Circle, {"kind": "circle", "radius": 0})


def test_objects_in_the_manner_of_annotated_types_are_bounds_too() -> None:
    class Ge:
        def __init__(self, ge: int) -> None:
            self.ge = ge

    class Doc:
        documentation = "how many"

    hint = Annotated[int, Ge(3), Doc(), object()]
    assert schema_of(hint) == {"type": "integer", "description": "how many", "minimum": 3}
    assert "at least 3" in fault(hint, 2)


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Annotated[str, Bounds(ge=1)], "ge=1 is for numbers"),
        (Annotated[int, Bounds(min_length=1)], "min_length=1 is for strings, arrays and objects"),
        (Annotated[int, Bounds(pattern="a")], "pattern='a' is for strings"),
        (Annotated[str, Bounds(pattern="(")], "pattern '('"),
        (Annotated[str, {"pattern": "("}], "pattern '('"),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused_when_the_tool_is_declared(hint: Any, text: str) -> None:
    with pytest.raises(SchemaError) as refused:
        declared(hint)
    assert "tool f, parameter x" in str(refused.value) and text in str(refused.value)


# -- collections -------------------------------------------------------------------------------------------------------


def test_the_names_of_an_object_may_be_numbers_or_choices() -> None:
    assert read(dict[int, str], {"1": "a", "-2": "b"}) == {1: "a", -2: "b"}
    assert schema_of(dict[int, str])["propertyNames"] == {"pattern": "^-?[0-9]+$"}
    assert 'arguments.x.one: expected integer, got string "one"' in fault(dict[int, str], {"one": "a"})
    assert read(Mapping[Color, int], {"red": 1}) == {Color.RED: 1}
    assert schema_of(dict[Literal["a", "b"], int])["propertyNames"] == {"enum": ["a", "b"]}
    assert "arguments.x.c: expected one of" in fault(dict[Literal["a", "b"], int], {"c": 1})
    assert to_json({Color.RED: 1, 2: 3}, "x") == {"red": 1, "2": 3}


class Frame:
    """A table like that of pandas: its length is that of its columns."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(["column"])

    def __contains__(self, name: object) -> bool:
        return name == "column"

    def to_dict(self) -> dict[str, list[int]]:
        return {"column": [1]}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (array("d", [1.0]), "Return value.tolist()."),
        (Frame(), "Return value.to_dict()."),
        (range(3), "Return list(value)."),
        ({"a": 1}.keys(), "Return list(value)."),
        (iter([1]), "Return list(value)."),
        (datetime.timedelta(1), "Return value.total_seconds(), or str(value)."),
        (Frame, "Return what it returns."),
        (object(), "Return a dict, a list or a dataclass"),
    ],
)
def test_a_value_without_a_json_form_is_named_with_what_to_return(value: Any, told: str) -> None:
    with pytest.raises(NotJson) as refused:
        to_json({"a": value}, "result")
    assert str(refused.value).startswith("result.a: a") and told in str(refused.value)


def test_a_named_tuple_is_an_array_of_its_fields() -> None:
    assert schema_of(Point) == {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    made = read(Point, [1, 2])
    assert made == Point(1.0, 2.0) and isinstance(made, Point)
    assert "arguments.x.at[1]: expected number" in fault(Place, {"at": [1, "2"]})


def test_a_set_gives_its_items_once_and_a_tuple_its_length() -> None:
    assert read(set[int], [1, 2]) == {1, 2} and read(frozenset[str], ["a"]) == frozenset("a")
    assert "differ" in fault(set[int], [1, 1])
    assert read(tuple[int, str], [1, "a"]) == (1, "a")
    assert "expected array of 2 items, got array of 1" in fault(tuple[int, str], [1])


# -- records and unions ------------------------------------------------------------------------------------------------


def test_the_docstring_of_a_class_describes_it_and_a_made_up_one_does_not() -> None:
    assert schema_of(Place)["description"] == "Somewhere on the map."
    assert "description" not in schema_of(Square)


def test_of_several_records_the_one_with_the_fault_has_the_error() -> None:
    assert read(Circle | Square, {"kind": "square", "side": 2}) == Square("square", 2.0)
    text = fault(Circle | Square, {"kind": "circle", "radius": "large"})
    assert text == 'arguments.x.radius: expected number, got string "large"'
    # Without a tag, it is the one with the fewest faults.
    assert fault(Place | Tree, {"name": "oak"}) in (
        "arguments.x.children: missing, expected array",
        "arguments.x.at: missing, expected array of 2 items",
    )


def test_a_union_of_scalars_names_all_of_them_once() -> None:
    assert "expected integer or string, got null" in fault(int | str, None)
    assert "expected object or null, got number 3" in fault(Circle | Square | None, 3)


# -- types that contain themselves, and generic ones -------------------------------------------------------------------


def test_a_type_may_contain_itself() -> None:
    tool = declared(Tree)
    schema = tool.description["inputSchema"]
    assert schema["properties"]["x"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert read(Tree, {"name": "a", "children": [{"name": "b", "children": []}]})["children"][0]["name"] == "b"
    text = fault(Tree, {"name": "a", "children": [{"name": 3, "children": []}]})
    assert text == "arguments.x.children[0].name: expected string, got number 3"


def make_alias() -> Any:
    """`type Json = …`, which only newer Pythons support; for the others an object with the same members."""
    scope: dict[str, Any] = {}
    if sys.version_info >= (3, 12):
        exec("type Json = dict[str, Json] | list[Json] | str | int | None", scope)
        return scope["Json"]

    class Alias:
        __name__ = "Json"

        @property
        def __value__(self) -> Any:
            return dict[str, self] | list[self] | str | int | None  # type: ignore[valid-type]

    return Alias()


def test_a_type_alias_may_contain_itself() -> None:
    alias = make_alias()
    schema = declared(alias).description["inputSchema"]
    assert schema["properties"]["x"] == {"$ref": "#/$defs/Json"}
    assert schema["$defs"]["Json"]["anyOf"][0] == {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/Json"},
    }
    assert read(alias, {"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}
    assert "arguments.x.a[0]" in fault(dict[str, list[alias]], {"a": [1.5]})  # type: ignore[valid-type]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older Pythons have no such syntax; Pyodide's has")
def test_aliases_with_variables_and_without_sense() -> None:
    scope: dict[str, Any] = {}
    exec("type Two[T] = tuple[T, T]\ntype Loop = Loop | None", scope)
    assert read(scope["Two"][int], [1, 2]) == (1, 2)
    assert "arguments.x[1]: expected integer" in fault(scope["Two"][int], [1, "2"])
    with pytest.raises(SchemaError, match="nothing but itself"):
        declared(scope["Loop"])


def test_a_generic_class_is_read_with_what_it_was_given() -> None:
    assert read(Page[int], {"items": [1], "next": {"items": [2]}}) == Page([1], Page([2]))
    assert "arguments.x.next.items[0]: expected integer" in fault(Page[int], {"items": [], "next": {"items": ["a"]}})
    assert read(Pair[str], {"left": "a", "right": "b"}) == {"left": "a", "right": "b"}
    assert "arguments.x.items[0]: expected string" in fault(Names, {"items": [1]})
    both = declare(lambda a, b: None, name="both")
    assert both.description["inputSchema"]["required"] == ["a", "b"]
    # Without an argument, a variable is its bound, or anything.
    assert read(Page, {"items": [1, "a"]}).items == [1, "a"]
    assert "expected integer" in fault(list[U], ["a"])  # type: ignore[valid-type]


def test_two_uses_of_one_generic_class_have_two_names() -> None:
    def f(a: Page[int], b: Page[str]) -> None: ...

    schema = declare(f).description["inputSchema"]
    assert sorted(schema["$defs"]) == ["Page_int", "Page_str"]


# -- functions ---------------------------------------------------------------------------------------------------------


def test_a_context_may_be_optional_and_is_never_an_argument() -> None:
    def f(x: int, ctx: Context | None = None) -> None: ...

    assert list(declare(f).description["inputSchema"]["properties"]) == ["x"]


class Adder:
    """Adds to what it has."""

    def __call__(self, x: int) -> int:
        return x + 1

    def method(self, x: int) -> int:
        return x


def test_whatever_can_be_called_can_be_a_tool() -> None:
    for function in (Adder(), functools.partial(Adder().method)):
        schema = declare(function, name="add").description["inputSchema"]
        assert schema["properties"] == {"x": {"type": "integer"}}
    assert declare(Adder().method).description["name"] == "method"
    with pytest.raises(SchemaError, match="has no name of its own"):
        declare(functools.partial(Adder().method))


# -- results -----------------------------------------------------------------------------------------------------------


@dataclass
class Weather:
    degrees: float
    seen: datetime.datetime
    colors: set[Color] = field(default_factory=set)


NOW = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)


def test_a_whole_result_has_words_for_the_model_and_values_for_programs() -> None:
    def f() -> ToolResult[Weather]:
        raise NotImplementedError

    tool = declare(f)
    assert sorted(tool.description["outputSchema"]["properties"]) == ["colors", "degrees", "seen"]
    result = tool.shape(ToolResult("Warm.", Weather(20, NOW, {Color.RED}), meta={"x/y": 1}))
    assert result == {
        "content": [{"type": "text", "text": "Warm."}],
        "structuredContent": {"degrees": 20, "seen": "2026-11-16T00:00:00+00:00", "colors": ["red"]},
        "_meta": {"x/y": 1},
    }
    spelt = tool.shape(ToolResult(structured=Weather(20, NOW)))
    assert isinstance(spelt, dict) and spelt["content"][0]["text"].startswith('{"degrees": 20')
    assert tool.shape(ToolResult("No weather.", is_error=True)) == {
        "content": [{"type": "text", "text": "No weather."}],
        "isError": True,
    }
    broken = tool.shape(ToolResult("Warm.", "20"))
    assert isinstance(broken, dict) and broken["isError"] and "result: expected object" in broken["content"][0]["text"]


def test_a_whole_result_without_a_type_promises_nothing() -> None:
    def f() -> ToolResult:  # type: ignore[type-arg]
        raise NotImplementedError

    tool = declare(f)
    assert "outputSchema" not in tool.description
    assert tool.shape(ToolResult(structured=[1]))["structuredContent"] == {"result": [1]}  # type: ignore[index]


def test_an_author_may_write_the_schema_of_the_result() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = declare(lambda: {"n": 1}, name="f", output_schema=schema, icons=[{"src": "data:,"}], meta={"a/b": 1})
    assert tool.description["outputSchema"] is schema
    assert (tool.description["icons"], tool.description["_meta"]) == ([{"src": "data:,"}], {"a/b": 1})
    result = tool.shape({"n": 1})
    assert isinstance(result, dict) and result["structuredContent"] == {"n": 1}
