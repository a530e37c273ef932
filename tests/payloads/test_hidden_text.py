"""Hidden characters and names that look alike: pure functions on texts."""

from __future__ import annotations

import json
from time import thread_time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabrelay.payloads import hidden_text
from tabrelay.payloads.confusables import skeleton
from tabrelay.payloads.hidden_text import DEFAULT_IGNORABLE, has_hidden_in_json

HIDDEN = {
    "an escape sequence": "a\x1b[31mred",
    "a C1 control sequence": "a\x9b31mred",
    "a null": "a\x00b",
    "a backspace": "a\bb",
    "a form feed": "a\fb",
    "a delete": "a\x7fb",
    "tag characters": "ok\U000e0069\U000e0067\U000e006e",
    "a right-to-left override": "a\u202eb",
    "an isolate": "a\u2066b",
    "a direction mark": "a\u200fb",
    "an Arabic letter mark": "a\u061cb",
    "a zero-width space": "a\u200bb",
    "a word joiner": "a\u2060b",
    "an invisible operator": "a\u2063b",
    "a soft hyphen": "a\u00adb",
    "a byte order mark": "a\ufeffb",
    "a Hangul filler": "a\u3164b",
    "a combining grapheme joiner": "a\u034fb",
    "a joiner between ASCII characters": "a\u200db",
    "two joiners": "ن\u200c\u200cه",
    "a joiner at the end": "é\u200d",
    "a variation selector after a letter": "a\ufe0fb",
    "selectors that encode bytes": "😀\U000e0154\U000e0161",
    "two selectors": "✔\ufe0f\ufe0e",
    "an ideographic selector after a letter": "é\U000e0100",
    "a supplementary selector after a symbol": "✔\U000e0100",
    "private use": "a\ue000b",
    "supplementary private use": "a\U000f0000b",
    "musical formatting": "a\U0001d173b",
    "an interlinear annotation": "a\ufff9b",
}
SEEN = [
    "Counts words.\n\tOne tab, two lines.\r\n",
    "Größe — “quoted” … 50 °C ± 2",
    "✔\ufe0f done, ❤\ufe0e, 1\ufe0f\u20e3, 👩\u200d💻, 👩🏽\u200d🚀, 🏳\ufe0f\u200d🌈, ❤\ufe0f\u200d🔥",
    "می\u200cخواهم",
    "क्\u200dष",
    "日本語 葛\U000e0100城市",
    "עברית",
    "ไทย ខ្មែរ",
    r"a literal \u0000, \b, \f and \x1b in a pattern: [\u0000-\u001f]",
    "C:\\bin\\files\\new",
    '"quotes" and \\\\ backslashes \\\\\\u0007',
]


def has_hidden(text: str) -> bool:
    return hidden_text._HIDDEN.search(text) is not None


def has_hidden_in_value(value: Any) -> bool:
    return has_hidden_in_json(orjson.dumps(value).decode())


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_what_is_not_seen_is_found_in_text_and_wherever_it_is_in_a_value(text: str) -> None:
    assert has_hidden(text)
    for value in (text, {"a": [{"b": text}]}, {text: 1}, {"properties": {"x": {"enum": ["\\", text]}}}):
        assert has_hidden_in_value(value)


@pytest.mark.parametrize("text", SEEN)
def test_what_is_seen_is_left_alone(text: str) -> None:
    assert not has_hidden(text)
    assert not has_hidden_in_value({"a": [text], text: 1})


@given(st.text())
def test_a_text_and_its_json_are_judged_alike(text: str) -> None:
    assert has_hidden(text) == has_hidden_in_value([text])
    assert orjson.loads(orjson.dumps(text)) == json.loads(json.dumps(text)) == text


@pytest.mark.parametrize("letter", ["\\", "\\n", "é", "é\u200d", "✔\ufe0f", "\u200d", "1\ufe0f", "a"])
def test_a_long_text_of_any_kind_takes_little_time(letter: str) -> None:
    text = letter * (256 * 1024 // len(letter.encode()))

    def once() -> float:
        start = thread_time()
        has_hidden_in_value([text])
        return thread_time() - start

    assert min(once() for _ in range(5)) < 0.05


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("scope", "sсоре"),  # Cyrillic
        ("paypal", "раураl"),
        ("form", "forrn"),
        ("tool1", "tooll"),
        ("get_0", "get_O"),
        ("list", "lіst"),
        ("naïve", "nai\u0308ve"),
        ("a", "\u0251"),
        ("read", "re\u200bad"),
        ("delete", "𝐝𝐞𝐥𝐞𝐭𝐞"),
    ],
)
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    assert one != other and skeleton(one) == skeleton(other)


def test_names_that_look_different_have_different_skeletons() -> None:
    names = ["read", "write", "get_1", "get_2", "liste", "größe", "grosse", "日本", "日木", "a-b", "a_b", "a.b"]
    assert len({skeleton(name) for name in names}) == len(names)


@given(st.text(max_size=40))
def test_a_skeleton_is_its_own_skeleton_and_has_nothing_hidden(name: str) -> None:
    once = skeleton(name)
    assert skeleton(once) == once and not DEFAULT_IGNORABLE.search(once)
