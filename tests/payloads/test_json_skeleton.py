"""Skeleton of long JSON in slices: valid exactly when the whole is, wherever the slices begin."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tabrelay.payloads import json_skeleton
from tabrelay.payloads.json_skeleton import JsonSkeleton

# Characters with a meaning in JSON, and others that resemble them.
BITS = [
    '"',
    "\\",
    '\\"',
    "\\n",
    "\\x",
    "\\u00e9",
    "\\u12",
    "\\ud83e\\udd80",
    "\\ud83e",
    "\\udd80",
    "\n",
    "\x00",
    "\x7f",
]
BITS += ["{", "}", "[", "]", ",", ":", "1", "-", "null", " ", "a", "é", "🦀", '"k":', '"abcdefghijklmnop"', "x" * 20]
MOST = 100_000
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
    max_leaves=12,
)


def valid(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def written(value: Any, is_ascii: bool) -> str:
    return json.dumps(value, ensure_ascii=is_ascii)


def broken(text: str, at: int, bit: str) -> str:
    """JSON with a random insertion, which may make it invalid."""
    at %= len(text) + 1
    return text[:at] + bit + text[at:]


TEXTS = (
    st.builds(written, VALUES, st.booleans())
    | st.builds(broken, st.builds(written, VALUES, st.booleans()), st.integers(0, 500), st.sampled_from(BITS))
    | st.lists(st.sampled_from(BITS), max_size=14).map("".join)
)


def skeleton_of(text: str, cuts: list[int]) -> str | None:
    made = JsonSkeleton(MOST)
    cuts = sorted(min(cut, len(text)) for cut in cuts)
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        made.add(text[start:end])
    return made.text()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_skeleton, "SHORT", 8)


@settings(max_examples=1500, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 200), max_size=20))
@example('"\\ud83e\\udd80"', [3, 7, 9])
@example('"\\ud83e"', [3])
@example('["' + "x" * 40 + '\\"]', [5, 44])
@example('"abc\x00def"', [2])
def test_the_skeleton_is_valid_exactly_when_the_whole_is(text: str, cuts: list[int]) -> None:
    made = skeleton_of(text, cuts)
    assert (made is not None and valid(made)) is valid(text)


@settings(max_examples=500, deadline=None)
@given(VALUES, st.booleans(), st.lists(st.integers(0, 200), max_size=20))
def test_only_the_contents_of_long_strings_are_missing(value: Any, is_ascii: bool, cuts: list[int]) -> None:
    made = skeleton_of(written(value, is_ascii), cuts)
    assert made is not None
    assert _agree(value, orjson.loads(made))


def _agree(whole: Any, made: Any) -> bool:
    if isinstance(whole, str):
        return made == whole or (made == "" and len(json.dumps(whole)) > 8)
    if isinstance(whole, list):
        return len(whole) == len(made) and all(map(_agree, whole, made))
    if isinstance(whole, dict):
        return whole.keys() == made.keys() and all(_agree(whole[key], made[key]) for key in whole)
    # An integer of more than 64 bits is a float to orjson.
    return bool(whole == made) or (isinstance(whole, int) and float(whole) == made)


@pytest.mark.parametrize("step", [1, 7, 100, 3000])
def test_a_long_string_leaves_nothing_behind_and_a_short_one_stays(step: int) -> None:
    text = json.dumps({"id": "é\n", "long": "x\n" * 5000, "after": [1, "two"]})
    assert skeleton_of(text, list(range(0, len(text), step))) == '{"id": "\\u00e9\\n", "long": "", "after": [1, "two"]}'


def test_long_strings_in_one_slice_are_taken_out_too() -> None:
    assert skeleton_of(json.dumps(["x" * 5000, '"' * 5000]), []) == '["", ""]'


def test_text_that_can_not_become_json_is_not_scanned_further() -> None:
    made = JsonSkeleton(MOST)
    made.add('{"text": "' + "x" * 50 + "\x01")
    assert made.is_bad
    made.add('"}')
    assert made.text() is None
