"""js/schema: the JavaScript validator agrees with the JSON Schema reference and with Python's validator."""

from __future__ import annotations

import datetime
import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tabserver.handlers.signature import InvalidArguments
from tabserver.handlers.tools import declare
from tabserver.schema.bounds import Bounds
from tests.support.nodejs import node
from tests.support.paths import SUPPORT

HERE = SUPPORT / "schema.mjs"
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}},
    "$ref": "#/$defs/node",
}
# A schema, and values for its keywords. The reference implementation decides which of them are valid.
KEYWORDS: list[tuple[Any, list[Any]]] = [
    (True, [1, {}]),
    (False, [1, {}]),
    ({"type": ["string", "null"]}, ["a", None, 1, []]),
    ({"type": "integer"}, [1, 1.0, 1.5, True, "1"]),
    ({"type": "number"}, [1, 1.5, True, "1"]),
    ({"enum": [1, {"a": [1, 2], "b": None}]}, [1, {"b": None, "a": [1, 2]}, {"a": [2, 1], "b": None}, 2]),
    ({"const": {"a": 1, "b": [True]}}, [{"b": [True], "a": 1}, {"a": 1}, {"a": 1, "b": [1]}]),
    ({"multipleOf": 5}, [10, 0, -5, 12, "x"]),
    ({"minimum": 1, "maximum": 3}, [0, 1, 3, 3.5]),
    ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [1, 1.01, 2.99, 3]),
    ({"minLength": 2, "maxLength": 3}, ["a", "ab", "äöü", "abcd", "👍👍👍", 5]),
    ({"type": "string", "minLength": 1}, ["", "a", "👍"]),
    ({"type": "string", "minLength": 3}, ["👍👍", "👍👍👍", "👍👍👍👍👍👍", "abc", "abcdef"]),
    ({"type": "string", "maxLength": 2}, ["👍👍", "👍👍👍", "ab", "abc"]),
    ({"pattern": "^[a-z]+$"}, ["abc", "Abc", 7]),
    ({"pattern": "b"}, ["abc", "ac"]),
    ({"minItems": 1, "maxItems": 2}, [[], [1], [1, 2, 3]]),
    ({"items": {"type": "integer"}}, [[1, 2], [1, "2"], "no array"]),
    ({"items": False}, [[], [1]]),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}]}, [[1, "a"], ["a", 1], [1], [1, "a", None]]),
    ({"prefixItems": [{"type": "integer"}], "items": False}, [[1], [1, 2], []]),
    ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [[1, "a"], [1, 2]]),
    ({"uniqueItems": True}, [[1, 2], [1, 1], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[1], [2]], [1, True], [0, False]]),
    ({"contains": {"type": "integer"}}, [[1, "a"], ["a"], []]),
    ({"contains": {"type": "integer"}, "minContains": 2, "maxContains": 3}, [[1], [1, 2], [1, 2, 3, 4], ["a", 1, 2]]),
    ({"contains": {"type": "integer"}, "minContains": 0}, [[], ["a"]]),
    ({"required": ["a", "b"]}, [{"a": 1}, {"a": 1, "b": None}, [], "x"]),
    ({"properties": {"a": {"type": "integer"}}}, [{"a": 1}, {"a": "1"}, {"b": 1}, {}]),
    ({"properties": {"a": True, "b": False}}, [{"a": 1}, {"b": 1}]),
    ({"properties": {"a": True}, "additionalProperties": False}, [{"a": 1}, {"a": 1, "c": 2}]),
    ({"additionalProperties": {"type": "integer"}}, [{"a": 1}, {"a": "1"}]),
    ({"additionalProperties": False}, [{}, {"a": 1}, 1, [1]]),
    ({"additionalProperties": True, "required": ["a"]}, [{"a": 1, "b": 2}, {"b": 2}, [], "x"]),
    (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "d", "enum": ["a", "b"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 3, "default": 1},
                "is_on": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "toString": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                "never": False,
            },
            "required": ["text"],
            "additionalProperties": False,
        },
        [
            {"text": "a", "count": 2, "is_on": False, "tags": ["x"], "toString": {"x": 0.5}},
            {"text": "a"},
            {"text": "c"},
            {"text": "a", "count": 4},
            {"text": "a", "count": 0},
            {"text": "a", "count": 1.5},
            {"text": "a", "is_on": 1},
            {"text": "a", "tags": [1]},
            {"text": "a", "tags": {}},
            {"text": "a", "toString": {}},
            {"text": "a", "toString": None},
            {"text": "a", "constructor": 1},
            {"text": "a", "never": 1},
            {"count": 1},
            {},
            [],
            None,
        ],
    ),
    (
        {"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False},
        [{"x-a": 1}, {"x-a": ""}, {"a": 1}],
    ),
    ({"propertyNames": {"pattern": "^[a-z]+$"}}, [{"a": 1}, {"A": 1}]),
    ({"minProperties": 1, "maxProperties": 2}, [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}]),
    ({"dependentRequired": {"a": ["b"]}}, [{"a": 1}, {"a": 1, "b": 2}, {"b": 1}]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{"a": 1}, {"a": 1, "b": 2}, {}]),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 2, 4]),
    ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]}, ["a", 6, 4, None]),
    ({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]}, [9, 10, 15, 7]),
    ({"not": {"type": "string"}}, ["a", 1]),
    ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 5}}, ["a", "ab", 4, 5]),
    ({"if": {"type": "string"}, "then": {"minLength": 2}}, ["a", 4]),
    (TREE, [{"next": {"next": {"n": 1}}}, {"next": {"next": {"n": "1"}}}, 5]),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, [1, "1"]),
    ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "integer"}}}, [1, "1"]),
    ({"$ref": "#/$defs/x", "minimum": 2, "$defs": {"x": {"type": "integer"}}}, [1, 2, "2"]),
    (
        {"properties": {"self": {"$ref": "#"}}, "additionalProperties": False},
        [{"self": {"self": {}}}, {"self": {"b": 1}}],
    ),
    ({"format": "date-time"}, ["yesterday"]),
    ({"title": "T", "description": "d", "default": 1, "examples": [1], "x-mine": 7}, [1, None]),
]


async def faults_of(cases: list[tuple[Any, Any]], folder: Path) -> list[list[str]]:
    file = folder / "cases.json"
    file.write_text(json.dumps(cases))
    ended = await node(HERE, file)
    assert ended.code == 0, ended.err
    found: list[list[str]] = json.loads(ended.out)
    return found


async def test_every_keyword_decides_as_the_reference_does(tmp_path: Path) -> None:
    cases = [(schema, value) for schema, values in KEYWORDS for value in values]
    for schema, _ in KEYWORDS:
        Draft202012Validator.check_schema(schema)
    wrong = [
        (schema, value, faults)
        for (schema, value), faults in zip(cases, await faults_of(cases, tmp_path), strict=True)
        if (faults == []) is not Draft202012Validator(schema).is_valid(value)
    ]
    assert wrong == []


async def test_references_in_a_circle_and_patterns_of_other_languages_end(tmp_path: Path) -> None:
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    strange = {"type": "string", "pattern": "(?P<name>a)"}
    external = {"$ref": "https://example.com/other.json"}
    deep, unknown, other = await faults_of([(circle, 1), (strange, "b"), (external, 1)], tmp_path)
    assert deep == ["arguments: nested too deeply"]
    assert (unknown, other) == ([], [])


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Circle:
    kind: Literal["circle"]
    radius: Annotated[float, Bounds(gt=0)]


@dataclass
class Square:
    kind: Literal["square"]
    side: float
    label: str = ""


class Options(TypedDict):
    name: str
    tags: NotRequired[set[str]]


Shape = Circle | Square
# A type, and valid and invalid values for it.
SAME: list[tuple[Any, list[Any]]] = [
    (str, ["a", 1, None]),
    (int, [1, 1.5, True, "1", None]),
    (float, [1, 1.5, "1", False]),
    (bool, [True, 1, "true"]),
    (None, [None, 0]),
    (int | None, [1, None, "1"]),
    (int | str, [1, "a", None, 1.5]),
    (list[int], [[1], [1, "2"], {}, "12"]),
    (dict[str, int], [{"a": 1}, {"a": "1"}, []]),
    (tuple[int, str], [[1, "a"], [1], [1, "a", 2], ["a", 1]]),
    (tuple[int, ...], [[], [1, 2], ["a"]]),
    (set[int], [[1, 2], [1, 1], ["a"]]),
    (Literal["a", "b"], ["a", "b", "c", 2]),
    (Colour, ["red", "rot", 1]),
    (Options, [{"name": "n"}, {"name": "n", "tags": ["a"]}, {"tags": []}, {"name": 1}, {"name": "n", "tags": [1]}]),
    (Circle, [{"kind": "circle", "radius": 1}, {"kind": "circle", "radius": 0}, {"kind": "square", "radius": 1}, {}]),
    (Shape, [{"kind": "square", "side": 1}, {"kind": "square"}, {"kind": "circle", "radius": -1}, {"kind": "dot"}, 3]),
    (list[Shape | None], [[None, {"kind": "square", "side": 2, "label": "l"}], [{"kind": "square", "side": "2"}]]),
    (dict[str, list[Options] | int], [{"a": [{"name": "n"}], "b": 1}, {"a": [{"name": 2}]}, {"a": "b"}]),
    (Annotated[int, Bounds(ge=1, le=3)], [1, 3, 0, 4]),
    (Annotated[int, Bounds(gt=1, lt=3)], [2, 1, 3]),
    (Annotated[int, Bounds(multiple_of=5)], [10, 12]),
    (Annotated[str, Bounds(min_length=1, max_length=2, pattern="^a")], ["a", "ab", "b", "", "abc"]),
    (Annotated[list[int], Bounds(min_length=1)], [[1], []]),
    (Annotated[dict[str, int], Bounds(max_length=1)], [{}, {"a": 1, "b": 2}]),
    (datetime.datetime, ["2026-11-16T20:00:00Z", 5]),
]


def declared(hint: Any) -> Any:
    def f(x: Any) -> None: ...

    f.__annotations__ = {"x": hint}
    return declare(f)


def faults_in_python(tool: Any, value: Any) -> list[str]:
    try:
        tool.read({"x": value})
    except InvalidArguments as refused:
        return [line for line in str(refused).splitlines() if line.startswith("arguments")]
    return []


async def test_the_same_arguments_have_the_same_faults_in_python_and_in_javascript(tmp_path: Path) -> None:
    tools = [(declared(hint), value) for hint, values in SAME for value in values]
    here = [faults_in_python(tool, value) for tool, value in tools]
    there = await faults_of([(tool.description["inputSchema"], {"x": value}) for tool, value in tools], tmp_path)
    for (tool, value), mine, other in zip(tools, here, there, strict=True):
        case = (tool.description["inputSchema"], value, mine, other)
        assert mine == other, case
    assert sum(bool(faults) for faults in here) > 30
