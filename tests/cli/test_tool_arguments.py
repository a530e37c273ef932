"""NAME=VALUE words become values of the types in a tool's schema."""

from __future__ import annotations

from typing import Any

import pytest

from tabrelay.cli import tool_arguments
from tabrelay.cli.tool_arguments import ArgumentError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "is_on": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "place": {"$ref": "#/$defs/Place"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "kind": {"enum": ["small", "large", 3]},
        "any": {},
    },
    "additionalProperties": False,
    "$defs": {"Place": {"type": "object"}},
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["text=2"], {"text": "2"}),
        (["text=a=b"], {"text": "a=b"}),
        (["text="], {"text": ""}),
        (["count=2", "ratio=2"], {"count": 2, "ratio": 2}),
        (["ratio=-0.5"], {"ratio": -0.5}),
        (["is_on=true"], {"is_on": True}),
        (["is_on=no"], {"is_on": False}),
        (["tags=a", "tags=2"], {"tags": ["a", "2"]}),
        (["tags=a"], {"tags": ["a"]}),
        (['tags=["a", "b"]'], {"tags": ["a", "b"]}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (['place={"x": 1}'], {"place": {"x": 1}}),
        (["maybe=null"], {"maybe": None}),
        (["maybe=7"], {"maybe": 7}),
        (["either=7"], {"either": 7}),
        (["either=seven"], {"either": "seven"}),
        (["kind=large", "any=[1]"], {"kind": "large", "any": [1]}),
        (["kind=3"], {"kind": 3}),
        (["any=plain words"], {"any": "plain words"}),
    ],
)
def test_values_get_the_types_of_the_schema(words: list[str], arguments: dict[str, Any]) -> None:
    assert tool_arguments.read(words, SCHEMA) == arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["count=x"], "count: 'x' is not an integer."),
        (["count=2.5"], "count: '2.5' is not an integer."),
        (["ratio=1e400"], "ratio: '1e400' is not a number."),
        (["ratio=NaN"], "ratio: 'NaN' is not a number."),
        (["numbers=[1e400]"], "numbers: '[1e400]' is not a JSON list."),
        (["count=true"], "count: 'true' is not an integer."),
        (["place=here"], "place: 'here' is not a JSON object."),
        (["maybe=x"], "maybe: 'x' is not an integer or null."),
        (["coun=2"], "The tool has no argument 'coun'.\nDid you mean count?"),
        (["text"], "text is not NAME=VALUE.\nThe arguments of the tool: text, count"),
        (["text=a", "text=b"], "text is given twice, and is not a list."),
    ],
)
def test_arguments_that_are_probably_mistakes_are_reported_before_the_call(words: list[str], said: str) -> None:
    with pytest.raises(ArgumentError) as problem:
        tool_arguments.read(words, SCHEMA)
    assert str(problem.value).startswith(said)


def test_without_a_schema_a_value_is_json_or_a_string() -> None:
    words = ["a=2", "b=two", "c=[1]", "d=NaN", "e=x", "e=2", "e=y", "f=null", "f=1"]
    expected = {"a": 2, "b": "two", "c": [1], "d": "NaN", "e": ["x", 2, "y"], "f": [None, 1]}
    assert tool_arguments.read(words, None) == expected


def test_a_schema_that_refers_to_itself_has_an_end() -> None:
    assert tool_arguments.read(["a=2"], {"properties": {"a": {"$ref": "#/properties/a"}}}) == {"a": 2}


def test_completion_offers_names_and_the_values_that_a_schema_lists() -> None:
    assert tool_arguments.words_of(SCHEMA, "te")[:2] == ["text=", "count="]
    assert tool_arguments.words_of(SCHEMA, "kind=") == ["kind=small", "kind=large", "kind=3"]
    assert tool_arguments.words_of(SCHEMA, "is_on=t") == ["is_on=true", "is_on=false"]
