"""JSON text changed in one place, with every other byte left as it was. Pure.

A conductor rewrites four requests and one answer, and puts messages into envelopes and takes them out. Reading all of
it and writing it anew would lose what our reader does not keep: large numbers, the spelling of what we don't know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

Span = tuple[int, int]

# Lenient where it does no harm: what is not ours to judge passes.
_value_at: Final = json.JSONDecoder(strict=False).raw_decode
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_BLANK: Final = " \t\r\n\ufeff"  # a byte order mark stands before the first message of some programs


def members(text: str, at: int = 0) -> dict[str, Span]:
    """Where the values of an object stand; `at`: somewhere before its brace. Raises ValueError if there is none."""
    return dict(_members(text, at))


def elements(text: str, at: int = 0) -> list[Span]:
    """Where the elements of an array stand."""
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
    """The same text, with `value` (JSON) as the member at `path`. Objects on the way are made where there are none."""
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
    """The text of the member at `path`, if there is one."""
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
    """An object of members that are JSON already; None leaves one out."""
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
    """Where the value ends that begins here."""
    try:
        return _value_at(text, at)[1]
    except RecursionError:  # our reader goes less deep than others do
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
