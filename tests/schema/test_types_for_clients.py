"""Schemas that clients support: unions, optional values, enums and collections in `tools/list`.

One `type` for each value, no list of types, items for each array, no empty schema where a type is known. The reader
accepts what the schema states.
"""

import datetime
import enum
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest

from tabserver.handlers.tools import declare
from tabserver.schema.bounds import Bounds
from tabserver.schema.shapes import Reading
from tests.schema.test_types import declared, fault, read, schema_of

INTEGER, NUMBER, STRING, BOOLEAN = ({"type": kind} for kind in ("integer", "number", "string", "boolean"))
NULL = {"type": "null"}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Place:
    name: str
    note: str | None = None


class Trip(TypedDict):
    start: Place
    end: Place
    via: NotRequired[list[Place]]


PLACE = {
    "type": "object",
    "properties": {"name": STRING, "note": STRING},
    "required": ["name"],
    "additionalProperties": False,
}
COLORS = {"type": "string", "enum": ["red", "blue"]}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int | float, NUMBER),
        (float | int, NUMBER),
        (int | bool, {"anyOf": [INTEGER, BOOLEAN]}),
        (int | str, {"anyOf": [INTEGER, STRING]}),
        (None | int | str, {"anyOf": [INTEGER, STRING, NULL]}),
        (int | float | None, {"anyOf": [NUMBER, NULL]}),
        (bool | None, {"anyOf": [BOOLEAN, NULL]}),
        (Color | None, {"anyOf": [COLORS, NULL]}),
        (Color | Level, {"anyOf": [COLORS, {"type": "integer", "enum": [1, 2]}]}),
        (Literal["a"] | Literal["b", "a"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", None], {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}),
        (Literal[1, 2.5], {"type": "number", "enum": [1, 2.5]}),
        (Literal[True, False], BOOLEAN),
        (Literal["auto"] | int, {"anyOf": [{"type": "string", "enum": ["auto"]}, INTEGER]}),
        (Literal["auto"] | str, STRING),
        (str | datetime.date, STRING),
        (Any | None, {}),
        (list[int | str], {"type": "array", "items": {"anyOf": [INTEGER, STRING]}}),
        (list[int | float], {"type": "array", "items": NUMBER}),
        (tuple[float, float], {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}),
        (dict[str, Place], {"type": "object", "additionalProperties": PLACE}),
        (dict[str, int | None], {"type": "object", "additionalProperties": {"anyOf": [INTEGER, NULL]}}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (
            Annotated[int, "a"] | Annotated[str, "b"],
            {"anyOf": [INTEGER | {"description": "a"}, STRING | {"description": "b"}]},
        ),
        (Annotated[float | None, Bounds(ge=0)], {"anyOf": [NUMBER | {"minimum": 0}, NULL]}),
    ],
)
def test_a_union_has_the_simplest_equivalent_schema(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema


@pytest.mark.parametrize(
    ("hint", "schema", "value"),
    [
        (Optional[int], INTEGER, 2),  # noqa: UP045  a form of its own in older Pythons
        (bool | None, BOOLEAN, False),
        (int | float | None, NUMBER, 2.5),
        (Color | None, COLORS, "red"),
        (Literal["a", None], {"type": "string", "enum": ["a"]}, "a"),
        (list[str] | None, {"type": "array", "items": STRING}, ["a"]),
        (Place | None, PLACE, {"name": "n"}),
        (int | str | None, {"anyOf": [INTEGER, STRING]}, "a"),
    ],
)
def test_an_argument_that_is_none_by_default_has_its_own_type_and_may_be_left_out(
    hint: Any, schema: Any, value: Any
) -> None:
    tool = declared(hint, None)
    assert tool.description["inputSchema"] == {
        "type": "object",
        "properties": {"x": schema},
        "additionalProperties": False,
    }
    assert tool.read({}) == {}
    assert tool.read({"x": None}) == {"x": None}  # models send it too
    assert tool.read({"x": value})["x"] is not None


def test_null_stays_where_it_means_something_else_than_the_default() -> None:
    assert schema_of(int | None, 5) == {"anyOf": [INTEGER, NULL], "default": 5}


def test_the_schema_of_a_result_has_the_places_of_null() -> None:
    def f() -> Place: ...  # type: ignore[empty-body]

    tool = declare(f)
    note = tool.description["outputSchema"]["properties"]["note"]
    assert note == {"anyOf": [STRING, NULL], "default": None}
    shaped = tool.shape(Place("n"))
    assert isinstance(shaped, dict) and shaped["structuredContent"] == {"name": "n", "note": None}


def test_a_record_is_written_where_it_is_used() -> None:
    schema = declared(Trip).description["inputSchema"]
    assert "$defs" not in schema and "$ref" not in json.dumps(schema)
    assert schema["properties"]["x"]["properties"]["via"]["items"] == PLACE


def test_bytes_are_base64() -> None:
    assert read(bytes, "aGk=") == b"hi"
    assert "expected base64 string, got string" in fault(bytes, "no base64")

    def f() -> bytes:
        return b"hi"

    shaped = declare(f).shape(b"hi")
    assert isinstance(shaped, dict) and shaped["structuredContent"] == {"result": "aGk="}


def nodes(schema: Any) -> list[dict[str, Any]]:
    """Every schema in a schema."""
    if isinstance(schema, list):
        return [node for one in schema for node in nodes(one)]
    if not isinstance(schema, dict):
        return []
    inner = [schema.get(key) for key in ("items", "additionalProperties", "anyOf", "prefixItems")]
    return [schema, *nodes(inner), *nodes(list(schema.get("properties", {}).values()))]


def test_each_type_is_one_word_and_each_array_has_items() -> None:
    hints = (int | None, list, tuple[int, str], tuple, set[Color], Trip, dict[str, int | None], list[Place | None])
    for hint in hints:
        for node in nodes(schema_of(hint)):
            assert isinstance(node.get("type", ""), str)
            assert node.get("type") != "array" or "items" in node
            assert "enum" not in node or "type" in node


def test_the_reader_takes_what_the_schema_says() -> None:
    values = [None, True, 1, 1.5, "a", "red", [1], ["a", None], [1, "a"], {"name": "n"}, {"name": "n", "note": "m"}]
    hints = (
        *(int | float, int | str, int | None, bool | None, Color | Level, Literal["a", 1, None], Any),
        *(list[int | str], list[str | None], tuple[int, str], dict[str, str | None], Place, Place | int, str | None),
    )
    jsonschema = pytest.importorskip("jsonschema")
    for hint in hints:
        tool = declared(hint)
        validator = jsonschema.Draft202012Validator(tool.description["inputSchema"])
        for value in values:
            reading = Reading(builds=False)
            tool.signature.record.read({"x": value}, "arguments", reading)
            assert validator.is_valid({"x": value}) is (not reading.faults), (hint, value, reading.faults)
