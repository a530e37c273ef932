"""Configuration files of other programs, changed in place: every other byte is unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabrelay.cli.client_files import jsonc, toml
from tabrelay.cli.client_files.jsonc import JsoncError
from tabrelay.cli.client_files.toml import TomlError

ZED = """\
// Zed settings
{
    "theme": "One", /* mine */
    "context_servers": {
        // the first
        "a": {"command": "x"}, // short
    },
    "vim": true,
}
"""


def test_a_member_is_put_behind_the_others_with_their_indentation() -> None:
    assert jsonc.put(ZED, ("context_servers", "b"), {"command": "y", "args": ["1"]}) == ZED.replace(
        '"a": {"command": "x"}, // short\n',
        '"a": {"command": "x"}, // short\n        "b": {\n            "command": "y",\n            "args": [\n'
        '                "1"\n            ]\n        },\n',
    )


def test_a_comma_goes_before_the_comment() -> None:
    text = '{\n  "a": 1 // one\n}\n'
    assert jsonc.put(text, ("b",), 2) == '{\n  "a": 1, // one\n  "b": 2\n}\n'


def test_a_member_that_is_there_is_replaced_and_nothing_else() -> None:
    assert jsonc.put(ZED, ("context_servers", "a"), 5) == ZED.replace('{"command": "x"}', "5")


def test_what_is_on_the_way_is_made() -> None:
    assert jsonc.put("", ("mcpServers", "n"), {}) == '{\n  "mcpServers": {\n    "n": {}\n  }\n}\n'
    assert jsonc.put('{"x": 1}', ("a", "b"), 1) == '{"x": 1,\n"a": {\n  "b": 1\n}}'
    assert jsonc.put("{ // empty\n}", ("a",), 1) == '{ // empty\n  "a": 1\n}'


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ('{"a": 1, "b": 2, "c": 3}', ("b",), '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2}', ("b",), '{"a": 1}'),
        ('{\n  "a": 1, // a\n  "b": 2\n}', ("b",), '{\n  "a": 1 // a\n}'),
        ('{\n  "a": 1, // a\n  "b": 2, // b\n  // c\n  "c": 3\n}', ("b",), '{\n  "a": 1, // a\n  // c\n  "c": 3\n}'),
        ('{"a": 1, "b": 2}', ("a",), '{"b": 2}'),
        ('{\n  "a": 1\n}\n', ("a",), "{}\n"),
        ('{\n  // note\n  "a": 1,\n}\n', ("a",), "{\n  // note\n  \n}\n"),
        ('{"s": {"a": 1}}', ("s", "a"), '{"s": {}}'),
        ('{"s": {"a": 1}}', ("t", "a"), '{"s": {"a": 1}}'),
        ('{"s": {"a": 1}}', ("s", "b"), '{"s": {"a": 1}}'),
    ],
)
def test_a_member_is_taken_out(text: str, path: tuple[str, ...], after: str) -> None:
    assert jsonc.remove(text, path) == after


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"a"}',
        '{"a": }',
        '{"a": 1 "b": 2}',
        "[1 2]",
        "{} {}",
        "{'a': 1}",
        '{"a": 01}',
        "nul",
        '{"a":"\\x"}',
    ],
)
def test_invalid_json_is_reported_with_its_place(text: str) -> None:
    with pytest.raises(JsoncError, match="Line 1, column"):
        jsonc.parse(text)


def test_what_is_no_object_is_not_written_into() -> None:
    with pytest.raises(JsoncError, match="mcpServers is not an object"):
        jsonc.put('{"mcpServers": []}', ("mcpServers", "a"), 1)
    with pytest.raises(JsoncError, match="too deep"):
        jsonc.parse("[" * 500_000)
    with pytest.raises(JsoncError, match='"a" twice'):
        jsonc.parse('{"a": 1, "a": 2}')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@settings(deadline=None)
@given(OBJECTS, st.text(max_size=3), VALUES, st.sampled_from([None, 2, "\t"]))
def test_a_value_that_is_put_and_removed_leaves_the_others(
    before: dict[str, Any], name: str, value: Any, indent: Any
) -> None:
    text = json.dumps({"s": before, "z": 1}, indent=indent)
    put = jsonc.put(text, ("s", name), value)
    assert json.loads(put) == jsonc.parse(put) == {"s": {**before, name: value}, "z": 1}
    gone = jsonc.remove(put, ("s", name))
    assert json.loads(gone) == {"s": {key: one for key, one in before.items() if key != name}, "z": 1}


# -- TOML --------------------------------------------------------------------------------------------------------------

CODEX = """\
# Codex
model = "o9"

[mcp_servers.other] # theirs
command = "x"

[mcp_servers.other.env]
A = "1"

[tui]
theme = "dark"
"""


def test_a_table_is_put_beside_the_others_and_taken_out_again() -> None:
    put = toml.put(CODEX, ("mcp_servers", "my notes"), {"command": "t", "args": ["stdio", "ä\\n"]})
    before, after = CODEX.split("[tui]")
    assert put == f'{before}[mcp_servers."my notes"]\ncommand = "t"\nargs = ["stdio", "ä\\\\n"]\n\n[tui]{after}'
    assert toml.remove(put, ("mcp_servers", "my notes")) == CODEX
    assert toml.put("", ("a", "b"), {"c": "d"}) == '[a.b]\nc = "d"\n'
    last = toml.put("x = 1\n", ("a", "b"), {"c": "d"})
    assert last == 'x = 1\n\n[a.b]\nc = "d"\n'
    assert toml.remove(last, ("a", "b")) == "x = 1\n"
    assert toml.remove(CODEX, ("mcp_servers", "none")) == toml.remove(CODEX, ("none", "none")) == CODEX


def test_a_table_goes_with_all_that_is_below_it() -> None:
    gone = toml.remove(CODEX, ("mcp_servers", "other"))
    assert toml.parse(gone) == {"model": "o9", "tui": {"theme": "dark"}}
    assert "# Codex" in gone
    put = toml.put(CODEX, ("mcp_servers", "other"), {"command": "new"})
    assert toml.parse(put)["mcp_servers"] == {"other": {"command": "new"}}


def test_an_inline_table_is_changed_too() -> None:
    text = 'mcp_servers = {a = {command = "x"}, b = {}} # mine\n'
    put = toml.put(text, ("mcp_servers", "a"), {"command": "y"})
    assert put == 'mcp_servers = {a = {command = "y"}, b = {}} # mine\n'
    added = toml.put(text, ("mcp_servers", "c"), {"command": "z"})
    assert added == 'mcp_servers = {a = {command = "x"}, b = {}, c = {command = "z"}} # mine\n'
    assert toml.parse(toml.remove(text, ("mcp_servers", "a"))) == {"mcp_servers": {"b": {}}}
    in_table = toml.put('[mcp_servers]\na = {command = "x"}\nb = {}\n', ("mcp_servers", "a"), {"command": "y"})
    assert toml.parse(in_table) == {"mcp_servers": {"a": {"command": "y"}, "b": {}}}


def test_a_file_that_is_not_toml_is_reported() -> None:
    with pytest.raises(TomlError, match="line 1"):
        toml.put("= 1", ("a",), {})
