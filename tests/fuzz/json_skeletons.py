"""JSON in slices (`tabrelay.payloads.json_skeleton`) against the standard library.

The same texts are valid, wherever they are cut.

Known differences, where `tabrelay` refuses more than `json` does:

- half of a surrogate pair, written as an escape or as such: there is no UTF-8 for it
- NaN, Infinity and -Infinity
- more levels than orjson reads
"""

from __future__ import annotations

import json
import re
from typing import Final
from unittest.mock import patch

import orjson

from tabrelay.payloads import json_skeleton
from tests.fuzz.slicing import sliced

# Short strings are kept, long ones are omitted: with this length, small inputs have both.
SHORT: Final = 8
MAX_DEPTH: Final = 200
_LONE: Final = re.compile(r"[\ud800-\udfff]")


def check(data: bytes) -> None:
    pieces = sliced(data)
    text = b"".join(pieces).decode("utf-8", "replace")
    made = json_skeleton.JsonSkeleton(10**9)
    with patch.object(json_skeleton, "SHORT", SHORT):
        for start, end in _cuts(pieces, text):
            made.add(text[start:end])
    skeleton = made.text()
    is_taken = skeleton is not None and _reads(skeleton)
    assert is_taken == _is_json(text), f"{text!r} was {'taken' if is_taken else 'refused'}"
    if skeleton is not None and is_taken:
        assert _is_skeleton(_read(skeleton), _read(text)), f"{text!r} became {skeleton!r}"


def _cuts(pieces: list[bytes], text: str) -> list[tuple[int, int]]:
    """Where the text is cut: at as many characters as the pieces have bytes."""
    ends: list[int] = []
    for piece in pieces:
        ends.append(min(len(text), (ends[-1] if ends else 0) + len(piece)))
    starts = [0, *ends]
    return [*zip(starts, ends, strict=False), (starts[-1], len(text))]


def _reads(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _is_json(text: str) -> bool:
    """Whether the standard library reads it, without the known differences."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    if _depth(value) > MAX_DEPTH:
        return _reads(text)
    return not _LONE.search(json.dumps(value, ensure_ascii=False))


def _refuse(name: str) -> None:
    raise ValueError(name)


def _depth(value: object) -> int:
    deepest, layer = 0, [value]
    while layer := [item for node in layer for item in _items(node)]:
        deepest += 1
    return deepest


def _items(node: object) -> list[object]:
    return list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []


def _read(text: str) -> object:
    """With every pair of an object: a repeated name counts twice."""
    return json.loads(text, object_pairs_hook=_Pairs)


class _Pairs(list[object]):
    """An object's pairs, in order."""


def _is_skeleton(made: object, whole: object) -> bool:
    """Whether it is the same, except for omitted strings."""
    if isinstance(whole, str):
        return made in (whole, "")
    if isinstance(whole, list | tuple):
        if type(made) is not type(whole) or len(made) != len(whole):
            return False
        return all(map(_is_skeleton, made, whole))
    return type(made) is type(whole) and made == whole
