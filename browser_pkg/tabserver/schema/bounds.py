"""Bounds of a value beside its type, as JSON Schema keywords, and the check of a value against them.

    number: Annotated[int, "how many", Bounds(ge=1, le=10)]

The names are those of `annotated-types`, whose own objects work as well. A dict in the place of `Bounds` has JSON
Schema keywords: the known ones are checked, the others are only in the schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ..wire.jsonrpc import kind_of, show
from .shapes import Json, Schema

_NUMBERS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS: Final = {"string": "Length", "array": "Items", "object": "Properties"}
_UNITS: Final = {"string": "characters", "array": "items", "object": "properties"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """At least, more than, at most, less than; for text, lists and objects their length; for text a pattern."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


def keywords_of(note: object, kinds: frozenset[str]) -> Schema:
    """The keywords of a note in Annotated; none for a note of another library.

    `kinds`: of the type that is annotated (empty: any). Raises ValueError for a bound that such values can't have.
    """
    if isinstance(note, dict):
        check_pattern(note.get("pattern"))
        return note
    found: Schema = {}
    for name, keyword in _NUMBERS.items():
        if (limit := _given(note, name)) is not None:
            if (kinds and "number" not in kinds) or isinstance(limit, bool) or not isinstance(limit, int | float):
                raise ValueError(f"{name}={limit!r} is for numbers")
            found[keyword] = limit
    for name, word in (("min_length", "min"), ("max_length", "max")):
        limit = _given(note, name)
        if limit is None or (name == "min_length" and limit == 0):
            continue
        units = [unit for kind, unit in _LENGTHS.items() if not kinds or kind in kinds]
        if not units or not isinstance(limit, int):
            raise ValueError(f"{name}={limit!r} is for strings, arrays and objects")
        found |= {word + unit: limit for unit in units}
    if (pattern := _given(note, "pattern")) is not None:
        if kinds and "string" not in kinds:
            raise ValueError(f"pattern={pattern!r} is for strings")
        check_pattern(pattern)
        found["pattern"] = pattern
    return found


def _given(note: object, name: str) -> Any:
    # Only of an instance: a class or a function in Annotated belongs to another library.
    value = None if isinstance(note, type | str) else getattr(note, name, None)
    return None if callable(value) else value


def check_pattern(pattern: object) -> None:
    if isinstance(pattern, str):
        try:
            _compiled(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r}: {error}") from None


def check_bounds(keywords: Mapping[str, Any], value: Json) -> list[str]:
    """The bounds that a value violates, a sentence each."""
    kind, faults = kind_of(value), []
    if kind == "number":
        for keyword, words, holds in _LIMITS:
            limit = keywords.get(keyword)
            if isinstance(limit, int | float) and not holds(value, limit):
                faults.append(f"expected {words} {limit}, got {show(value)}")
    if kind in _LENGTHS:
        unit, count = _UNITS[kind], len(value)
        least, most = (keywords.get(word + _LENGTHS[kind]) for word in ("min", "max"))
        if isinstance(least, int) and count < least:
            faults.append(f"expected at least {least} {unit}, got {count}")
        if isinstance(most, int) and count > most:
            faults.append(f"expected at most {most} {unit}, got {count}")
    pattern = keywords.get("pattern")
    if kind == "string" and isinstance(pattern, str) and not _compiled(pattern).search(value):
        faults.append(f"expected a string that matches {pattern}, got {show(value)}")
    return faults


def _is_multiple(value: float, step: float) -> bool:
    if not step:
        return True
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    # 0.3 is a multiple of 0.1 in decimals, though not in binary fractions.
    return math.isclose(value / step, round(value / step), rel_tol=1e-9)


_LIMITS: Final = (
    ("minimum", "at least", lambda value, limit: value >= limit),
    ("exclusiveMinimum", "more than", lambda value, limit: value > limit),
    ("maximum", "at most", lambda value, limit: value <= limit),
    ("exclusiveMaximum", "less than", lambda value, limit: value < limit),
    ("multipleOf", "a multiple of", _is_multiple),
)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
