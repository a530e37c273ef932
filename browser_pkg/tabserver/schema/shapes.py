"""Shapes of scalars and collections: each has a JSON Schema and reads a JSON value, with errors that name the path.

Composite shapes are in `compounds`; `types` decides which Python type has which shape. This is deliberately not a
general JSON Schema validator: a page checks the schemas that it wrote by hand.
"""

from __future__ import annotations

import base64
import datetime
import difflib
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ..wire.jsonrpc import kind_of, show
from .unions import NULL, Schema, union_of

__all__ = ["Schema"]

Json = Any

FAULTS_SHOWN: Final = 8


class SchemaError(TypeError):
    """A type has no JSON form."""


@dataclass(slots=True)
class Reading:
    """One value being read. With `builds` False it is only checked: no dataclass is made, no `__post_init__` runs."""

    builds: bool = True
    faults: list[str] = field(default_factory=list)

    def fault(self, path: str, text: str) -> None:
        self.faults.append(f"{path}: {text}")


class Shape(Protocol):
    """One type. `kinds`: the JSON kinds it accepts (empty: any), by which a union selects a member."""

    @property
    def kinds(self) -> frozenset[str]: ...
    @property
    def label(self) -> str: ...
    def schema(self) -> Schema: ...
    def read(self, value: Json, path: str, reading: Reading) -> Any: ...


def at(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or empty if no name is similar."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def summary(faults: list[str]) -> str:
    shown = faults[:FAULTS_SHOWN]
    if len(faults) > FAULTS_SHOWN:
        shown.append(f"… and {len(faults) - FAULTS_SHOWN} more")
    return "\n".join(shown)


@dataclass(frozen=True, slots=True)
class Anything:
    kinds: frozenset[str] = frozenset()
    label: str = "any value"

    def schema(self) -> Schema:
        return {}

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Scalar:
    """str, int, float, bool or None. `take` returns the Python value, or raises ValueError with what is wrong.

    `fits`: a value of exactly this type needs no conversion.
    """

    label: str
    kinds: frozenset[str]
    take: Callable[[Json], Any]
    extra: tuple[tuple[str, str], ...] = ()
    fits: type | None = None

    def schema(self) -> Schema:
        return {"type": "string" if self.extra else self.label} | dict(self.extra)

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        if kind_of(value) in self.kinds:
            try:
                return self.take(value)
            except (ValueError, OverflowError):
                pass
        reading.fault(path, f"expected {self.label}, got {show(value)}")
        return None


def _take_integer(value: int | float) -> int:
    # JSON has one kind of number: 3.0 is an integer in it, and JavaScript writes it as 3.
    if isinstance(value, int):
        return value
    if not value.is_integer():
        raise ValueError
    return int(value)


def _take_number(value: int | float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _take_bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


_STRING: Final = frozenset({"string"})
_NUMBER: Final = frozenset({"number"})
SCALARS: Final[dict[Any, Scalar]] = {
    str: Scalar("string", _STRING, str, fits=str),
    bool: Scalar("boolean", frozenset({"boolean"}), bool, fits=bool),
    int: Scalar("integer", _NUMBER, _take_integer, fits=int),
    float: Scalar("number", _NUMBER, _take_number),
    type(None): Scalar("null", frozenset({"null"}), lambda value: value),
    datetime.datetime: Scalar("date-time string", _STRING, datetime.datetime.fromisoformat, (("format", "date-time"),)),
    datetime.date: Scalar("date string", _STRING, datetime.date.fromisoformat, (("format", "date"),)),
    datetime.time: Scalar("time string", _STRING, datetime.time.fromisoformat, (("format", "time"),)),
    uuid.UUID: Scalar("UUID string", _STRING, uuid.UUID, (("format", "uuid"),)),
    bytes: Scalar("base64 string", _STRING, _take_bytes, (("contentEncoding", "base64"),)),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Literal or Enum: a few values, compared together with their kind so that True is not 1."""

    members: tuple[tuple[Json, Any], ...]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(kind_of(value) for value, _ in self.members)

    @property
    def label(self) -> str:
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value, _ in self.members)

    def schema(self) -> Schema:
        by_type: dict[str, list[Json]] = {}
        has_fraction = any(isinstance(value, float) for value, _ in self.members)
        for value, _ in self.members:
            kind = kind_of(value)
            by_type.setdefault("integer" if kind == "number" and not has_fraction else kind, []).append(value)
        return union_of(_enum(kind, values) for kind, values in by_type.items())

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        for known, member in self.members:
            if kind_of(known) == kind_of(value) and known == value:
                return member
        hint = suggest(value, [v for v, _ in self.members if isinstance(v, str)]) if isinstance(value, str) else ""
        reading.fault(path, f"expected {self.label}, got {show(value)}{hint}")
        return None


def _enum(kind: str, values: list[Json]) -> Schema:
    if kind == "null":
        return NULL
    return {"type": kind} if kind == "boolean" and len(values) == 2 else {"type": kind, "enum": values}


_ARRAY: Final = frozenset({"array"})


@dataclass(frozen=True, slots=True)
class Array:
    """list, set, frozenset, Sequence, and tuple[X, ...]."""

    item: Shape
    make: Callable[[list[Any]], Any]
    is_set: bool = False
    kinds: frozenset[str] = _ARRAY
    label: str = "array"

    def schema(self) -> Schema:
        schema: Schema = {"type": "array", "items": self.item.schema()}  # clients refuse an array without items
        if self.is_set:
            schema["uniqueItems"] = True
        return schema

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        if not isinstance(value, list):
            reading.fault(path, f"expected array, got {show(value)}")
            return None
        before = len(reading.faults)
        items = [self.item.read(item, f"{path}[{index}]", reading) for index, item in enumerate(value)]
        if len(reading.faults) > before or not reading.builds:
            return None
        try:
            made = self.make(items)
        except TypeError:
            reading.fault(path, "the items of a set must be simple values")
            return None
        if self.is_set and len(made) < len(items):
            reading.fault(path, "the items must differ from each other")
        return made


@dataclass(frozen=True, slots=True)
class FixedTuple:
    """tuple[X, Y] and NamedTuple: a fixed number of items, each of its own type."""

    items: tuple[Shape, ...]
    make: Callable[[list[Any]], Any] = tuple
    kinds: frozenset[str] = _ARRAY

    @property
    def label(self) -> str:
        return f"array of {len(self.items)} items"

    def schema(self) -> Schema:
        count = len(self.items)
        items = [item.schema() for item in self.items]
        schema: Schema = {"type": "array"}
        if any(item != items[0] for item in items):
            schema["prefixItems"] = items
        # `items` also for clients that do not know `prefixItems`, and take it for the type of each item.
        return schema | {"items": union_of(items) if items else {}, "minItems": count, "maxItems": count}

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        if not isinstance(value, list) or len(value) != len(self.items):
            got = f"array of {len(value)}" if isinstance(value, list) else show(value)
            reading.fault(path, f"expected {self.label}, got {got}")
            return None
        pairs = enumerate(zip(self.items, value, strict=True))
        return self.make([shape.read(item, f"{path}[{index}]", reading) for index, (shape, item) in pairs])


OBJECT: Final = frozenset({"object"})
_INTEGER: Final = re.compile(r"-?[0-9]{1,100}")


@dataclass(frozen=True, slots=True)
class Map:
    """dict[str, X]; `key`: what the names must be, if not any string."""

    value: Shape
    key: Shape | None = None
    kinds: frozenset[str] = OBJECT
    label: str = "object"

    def schema(self) -> Schema:
        inner = self.value.schema()
        schema: Schema = {"type": "object"} | ({"additionalProperties": inner} if inner else {})
        if self.key is None:
            return schema
        names = {"pattern": r"^-?[0-9]+$"} if "number" in self.key.kinds else {"enum": self.key.schema()["enum"]}
        return schema | {"propertyNames": names}

    def read(self, value: Json, path: str, reading: Reading) -> Any:
        if not isinstance(value, dict):
            reading.fault(path, f"expected object, got {show(value)}")
            return None
        return {
            self._read_key(key, at(path, key), reading): self.value.read(item, at(path, key), reading)
            for key, item in value.items()
        }

    def _read_key(self, key: str, path: str, reading: Reading) -> Any:
        if self.key is None:
            return key
        # A name is always text, also where its type is a number.
        is_number = "number" in self.key.kinds and _INTEGER.fullmatch(key)
        return self.key.read(int(key) if is_number else key, path, reading)
