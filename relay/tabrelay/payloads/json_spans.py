"""Positions in JSON text: where the members of an object and the elements of an array begin and end.

For edits in place: parsing and serialising the whole text would lose what the parser does not keep, such as large
numbers and the spelling of unknown members. Pure functions; they do not validate what they skip.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

Found = TypeVar("Found")

# Lenient where that is harmless: the receiver validates the rest.
_value_at: Final = json.JSONDecoder(strict=False).raw_decode
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_BLANK: Final = re.compile("[ \t\r\n\ufeff]*")  # some programs write a byte order mark before the first message


class JsonMember(NamedTuple):
    """Positions of one member: of its name, and of its value's beginning and end."""

    name: int
    start: int
    end: int


def members(text: str, at: int = 0) -> dict[str, JsonMember]:
    """The members of an object; `at`: a position before its brace. Raises ValueError if there is none."""

    def member(at: int) -> tuple[tuple[str, JsonMember], int]:
        key, end = _value_at(text, at)
        colon = skip(text, end)
        if text[colon : colon + 1] != ":" or not isinstance(key, str):
            raise ValueError("an object with something that is no member")
        start = skip(text, colon + 1)
        end = end_of(text, start)
        return (key, JsonMember(at, start, end)), end

    return dict(_items(text, at, ("{", "}"), member))


def elements(text: str, at: int = 0) -> list[tuple[int, int]]:
    """The beginning and end of each element of an array. Raises ValueError if there is none."""

    def element(at: int) -> tuple[tuple[int, int], int]:
        end = end_of(text, at)
        return (at, end), end

    return list(_items(text, at, ("[", "]"), element))


def _items(text: str, at: int, brackets: tuple[str, str], read: Callable[[int], tuple[Found, int]]) -> Iterator[Found]:
    """`read` returns an item and its end."""
    opening, closing = brackets
    at = skip(text, at)
    if text[at : at + 1] != opening:
        raise ValueError(f"there is no {opening}")
    at = skip(text, at + 1)
    while text[at : at + 1] != closing:
        found, end = read(at)
        yield found
        at = skip(text, end)
        if text[at : at + 1] == ",":
            at = skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise ValueError(f"there is no {closing}")


def end_of(text: str, at: int) -> int:
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


def skip(text: str, at: int) -> int:
    """The position after blanks."""
    found: Any = _BLANK.match(text, at)
    return int(found.end())
