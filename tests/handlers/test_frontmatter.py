"""Frontmatter of skills, compared with the values that YAML 1.2 gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tabserver.handlers.frontmatter import FrontmatterError, parse_frontmatter, split_frontmatter, write_frontmatter

READ: dict[str, Any] = {
    "name: pdf-tools\ndescription: Extract, fill and assemble PDF files.": {
        "name": "pdf-tools",
        "description": "Extract, fill and assemble PDF files.",
    },
    "a: 1\nb: -2.5\nc: true\nd: null\ne:\nf: ~\ng: 1.0\nh: yes\ni: 2026-01-01\nj: 1e3": {
        "a": 1,
        "b": -2.5,
        "c": True,
        "d": None,
        "e": None,
        "f": None,
        "g": 1,
        "h": "yes",
        "i": "2026-01-01",
        "j": 1000,
    },
    "a: \"x: y # z\\n\\u00e9\"  # comment\nb: 'it''s'\n# whole line\nc: x # y\nd: x#y": {
        "a": "x: y # z\né",
        "b": "it's",
        "c": "x",
        "d": "x#y",
    },
    "metadata:\n  version: '2.1'\n  author: Ada\n\nallowed-tools: Read Write": {
        "metadata": {"version": "2.1", "author": "Ada"},
        "allowed-tools": "Read Write",
    },
    "tags:\n  - one\n  - 2\n  - 'three: 3'\nmore:\n- a\n- b": {"tags": ["one", 2, "three: 3"], "more": ["a", "b"]},
    'flow: [a, b c, 3]\njson: {"k": ["v", 1]}\nempty: []': {
        "flow": ["a", "b c", 3],
        "json": {"k": ["v", 1]},
        "empty": [],
    },
    "description: >\n  One\n  two\n\n  three\nx: y": {"description": "One two\nthree\n", "x": "y"},
    "description: |-\n  One\n    two\n\n  three\n": {"description": "One\n  two\n\nthree"},
    "description: >-\n  One\n  two": {"description": "One two"},
    "description: A long text\n  that goes on\n  here.\nx: y": {
        "description": "A long text that goes on here.",
        "x": "y",
    },
    "url: https://a.example/b?c=d\ntime: 12:30": {"url": "https://a.example/b?c=d", "time": "12:30"},
    "": {},
}


@pytest.mark.parametrize("text", READ)
def test_what_skills_contain_is_read(text: str) -> None:
    assert parse_frontmatter(text) == READ[text]
    assert parse_frontmatter(text.replace("\n", "\r\n")) == READ[text]


@pytest.mark.parametrize(
    "text",
    [
        *("just text", "- a list", "a: b: c", "a: &x 1", "a: *x", "a: !tag b", "? a\n: b", "a: 'open", 'a: "x" y'),
        *("a: 1\na: 2", "a:\n  b:\n    c: d", "  a: 1\nb: 2", "a: [b", "a: {b: c}", "a: %x", "a: `x`", "a:\n  - b: c"),
        *("a: x\n  b: c", "\ta: 1", "a:\n  b: |\n    text"),
    ],
)
def test_another_form_is_an_error_that_names_the_line(text: str) -> None:
    with pytest.raises(FrontmatterError, match=r"line \d+ of the SKILL\.md"):
        parse_frontmatter(text)


def test_the_frontmatter_is_the_text_between_the_first_two_lines() -> None:
    assert split_frontmatter("---\na: 1\n---\n# Text\n---\n") == ("a: 1\n", "# Text\n---\n")
    assert split_frontmatter("\ufeff---  \r\na: 1\r\n---\r\nx") == ("a: 1\r\n", "x")
    assert split_frontmatter("---\n---") == ("", "")
    for text in ("# Text", "", "---\na: 1", " ---\na: 1\n---\n"):
        assert split_frontmatter(text) == (None, text)


@pytest.mark.parametrize("value", ["a: b", "#", "it's", 'say "x"', "line\nbreak", "\u2028", 3, ["a"], {"k": "v"}, None])
def test_what_is_written_is_read_again(value: Any) -> None:
    lines, rest = split_frontmatter(write_frontmatter({"name": "x", "value": value}) + "text")
    assert parse_frontmatter(lines or "") == {"name": "x", "value": value} and rest == "text"
    assert json.loads(json.dumps(value)) == value
