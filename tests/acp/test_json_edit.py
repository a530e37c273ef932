"""JSON changed in one place: every other byte is unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabrelay.acp import json_edit
from tabrelay.payloads import json_spans

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=5)
LAYOUTS = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@settings(max_examples=40, deadline=None)
@given(OBJECTS, st.lists(st.text(max_size=5), min_size=1, max_size=3), VALUES, LAYOUTS)
def test_a_member_is_put_where_it_belongs(value: dict[str, Any], path: list[str], new: Any, layout: Any) -> None:
    text = " " + json.dumps(value, **layout) + " "
    changed = json.loads(json_edit.put(text, tuple(path), json.dumps(new)))
    here = value
    for key in path[:-1]:
        inside = here.get(key)
        here[key] = here = inside if isinstance(inside, dict) else {}
    here[path[-1]] = new
    assert changed == value


@settings(max_examples=40, deadline=None)
@given(OBJECTS, LAYOUTS)
def test_parts_are_the_text_that_was_written(value: dict[str, Any], layout: Any) -> None:
    text = json.dumps(value, **layout)
    for key, (_, start, end) in json_spans.members(text).items():
        assert json.loads(text[start:end]) == value[key]
        assert json_edit.raw(text, key) == text[start:end]


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, max_size=5), LAYOUTS)
def test_elements_are_the_text_that_was_written(value: list[Any], layout: Any) -> None:
    text = json.dumps(value, **layout)
    assert [json.loads(text[start:end]) for start, end in json_spans.elements(text)] == value


def test_nothing_else_is_touched() -> None:
    text = '{ "big" : 123456789012345678901234567890, "e": 1.50E+2,\t"params":{"x":[ 1 ],"\\u0061":"\\ud800"} }'
    changed = json_edit.put(text, ("params", "x"), "[2]")
    assert changed == text.replace("[ 1 ]", "[2]")


def test_a_path_that_leads_nowhere_finds_nothing() -> None:
    assert json_edit.raw('{"a": 1}', "a", "b") is None
    assert json_edit.raw('{"a": {}}', "a", "b") is None


@pytest.mark.parametrize("text", ["[1]", '{"a" 1}', '{"a": 1', "{1: 2}", '{"a": 1 "b": 2}', ""])
def test_a_value_that_is_not_an_object_is_reported(text: str) -> None:
    with pytest.raises(ValueError):
        json_spans.members(text)
