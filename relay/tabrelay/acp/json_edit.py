"""In-place edits of JSON text: one member is set or read, and every other byte stays unchanged.

The conductor rewrites four requests and one response, and puts messages into envelopes and takes them out. Parsing and
serialising the whole text would lose what the parser does not keep: large numbers, and the spelling of unknown members.
Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tabrelay.payloads.json_spans import JsonMember, members, skip

Find = Callable[[str, int], Mapping[str, JsonMember]]
"""Finds the members of the object at a position, as `members` does."""


def put(text: str, path: tuple[str, ...], value: str, at: int = 0, find: Find = members) -> str:
    """The text with `value` (JSON) as the member at `path`. Missing objects along the path are created."""
    here = find(text, at)
    key, rest = path[0], path[1:]
    if key in here:
        _, start, end = here[key]
        if rest and text[start] == "{":
            return put(text, rest, value, start, find)
        return text[:start] + _nested(rest, value) + text[end:]
    brace = skip(text, at)
    member = f"{json.dumps(key)}:{_nested(rest, value)}" + ("," if here else "")
    return text[: brace + 1] + member + text[brace + 1 :]


def raw(text: str, *path: str, find: Find = members) -> str | None:
    """The text of the member at `path`, or None."""
    at = 0
    end = len(text)
    for key in path:
        at = skip(text, at)
        if text[at : at + 1] != "{":
            return None
        span = find(text, at).get(key)
        if span is None:
            return None
        _, at, end = span
    return text[at:end]


def build(parts: Mapping[str, str | None]) -> str:
    """An object with members that are JSON text; None omits a member."""
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in parts.items() if value is not None) + "}"


def _nested(path: tuple[str, ...], value: str) -> str:
    for key in reversed(path):
        value = f"{{{json.dumps(key)}:{value}}}"
    return value
