"""In-place edits of JSON text: one member is set or read, and every other byte stays unchanged.

The conductor rewrites four requests and one response, and puts messages into envelopes and takes them out. Parsing and
serialising the whole text would lose what the parser does not keep: large numbers, and the spelling of unknown members.
Pure functions; they do not validate what they skip.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Span = tuple[int, int]

# Lenient where that is harmless: the receiver validates the rest.
_value_at: Final = json.JSONDecoder(strict=False).raw_decode
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_BLANK: Final = " \t\r\n\ufeff"  # some programs write a byte order mark before the first message


def members(text: str, at: int = 0) -> dict[str, Span]:
    """The positions of an object's values; `at`: a position before its brace. Raises ValueError if there is none."""
    return dict(_members(text, at))


def elements(text: str, at: int = 0) -> list[Span]:
    """The positions of an array's elements."""
    at = _skip(text, at)
    if text[at : at + 1] != "[":
        raise ValueError("not an array")
    found = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        end = _end(text, at)
        found.append((at, end))
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise ValueError("an array without an end")
    return found


def put(text: str, path: tuple[str, ...], value: str, at: int = 0) -> str:
    """The text with `value` (JSON) as the member at `path`. Missing objects along the path are created."""
    here = members(text, at)
    key, rest = path[0], path[1:]
    if key in here:
        start, end = here[key]
        if rest and text[start] == "{":
            return put(text, rest, value, start)
        return text[:start] + _nested(rest, value) + text[end:]
    brace = _skip(text, at)
    member = f"{json.dumps(key)}:{_nested(rest, value)}" + ("," if here else "")
    return text[: brace + 1] + member + text[brace + 1 :]


def raw(text: str, *path: str) -> str | None:
    """The text of the member at `path`, or None."""
    at = 0
    end = len(text)
    for key in path:
        at = _skip(text, at)
        if text[at : at + 1] != "{":
            return None
        span = members(text, at).get(key)
        if span is None:
            return None
        at, end = span
    return text[at:end]


def build(parts: Mapping[str, str | None]) -> str:
    """An object with members that are JSON text; None omits a member."""
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in parts.items() if value is not None) + "}"


def _nested(path: tuple[str, ...], value: str) -> str:
    for key in reversed(path):
        value = f"{{{json.dumps(key)}:{value}}}"
    return value


def _members(text: str, at: int) -> Iterator[tuple[str, Span]]:
    at = _skip(text, at)
    if text[at : at + 1] != "{":
        raise ValueError("not an object")
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key: Any
        key, end = _value_at(text, at)
        at = _skip(text, end)
        if text[at : at + 1] != ":" or not isinstance(key, str):
            raise ValueError("an object with something that is no member")
        at = _skip(text, at + 1)
        end = _end(text, at)
        yield key, (at, end)
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError("an object without an end")


def _end(text: str, at: int) -> int:
    """The end of the value that begins here."""
    try:
        return _value_at(text, at)[1]
    except RecursionError:  # deeper than this parser goes; other programs may accept it
        depth = 0
        for token in _TOKEN.finditer(text, at):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            if depth == 0:
                return token.end()
        raise ValueError("a value without an end") from None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at
