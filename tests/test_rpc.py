"""JSON text: what is parsed, what is refused, and what is never written."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabserver.rpc import MAX_DEPTH, dump, load, loggable
from tabserver.wire.frames import depth

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='[]{}"\\aé\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[{"\\}]', max_size=3), inner),
)


def deepest(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(deepest, value.values()), default=0)
    return 1 + max(map(deepest, value), default=0) if isinstance(value, list) else 0


@settings(deadline=None)
@given(VALUES, st.booleans())
def test_depth_is_that_of_the_value_whatever_its_strings_hold(value: object, ascii_only: bool) -> None:
    assert depth(json.dumps(value, ensure_ascii=ascii_only)) == deepest(value)


@pytest.mark.parametrize("text", ['"', '"\\', '"\\"', '"' + '\\"' * 200_000, '["a', "[" * 3 + '"]]]'])
def test_a_text_that_ends_inside_a_string_is_measured_in_one_pass(text: str) -> None:
    assert depth(text) == text.partition('"')[0].count("[")


def test_nesting_up_to_the_limit_is_read_and_one_more_is_refused() -> None:
    def nested(levels: int) -> str:
        return "[" * levels + "]" * levels

    assert dump(load(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(ValueError, match="nested deeper than 256 levels"):
        load(nested(MAX_DEPTH + 1))


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(load("[" + "[]," * 5000 + "[]]")) == 5001


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":-Infinity}'])
def test_what_only_python_takes_for_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no JSON value"):
        load(text)


@settings(deadline=None)
@given(VALUES)
def test_what_is_written_is_one_line_and_reads_back(value: object) -> None:
    text = dump(value)
    assert not re.search("[\\n\\r]", text) and load(text) == value


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert json.loads(dump(["a\ud800b", "\udfff"])) == ["a\ufffdb", "\ufffd"]
    text = dump("\ud83d" + "x")
    assert text.encode()


def test_a_log_takes_anything() -> None:
    assert loggable({"a": 1}) == {"a": 1}
    assert loggable({1, 2}) == "{1, 2}"
    assert loggable(float("nan")) == "nan"
