"""Which Python type has which shape, the JSON Schema of a whole value, and Python values turned into JSON.

Covers what a tool's signature needs: scalars, collections, Literal, Enum, unions, dataclasses, TypedDict, dates, and
Annotated[..., "a description"]. A type outside that list is refused when the tool is declared, never during a call.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import datetime
import enum
import json
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from .shapes import (
    SCALARS,
    Anything,
    Array,
    Choice,
    Described,
    Either,
    Json,
    Map,
    Property,
    Reading,
    Record,
    Row,
    Schema,
    Shape,
    at,
)


class SchemaError(TypeError):
    """A type that has no JSON form."""


class NotJson(ValueError):
    """A value that JSON can't hold; the text names the path."""


_ARRAYS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.Iterable: list,
    abc.Collection: list,
    abc.Set: frozenset,
}
_MAPS: Final = (dict, abc.Mapping, abc.MutableMapping)
_QUALIFIERS: Final = ("Required", "NotRequired", "ReadOnly")


@dataclass(slots=True)
class Shapes:
    """Builds the shapes of one signature, and remembers the records so that a type may contain itself."""

    _records: dict[Any, Record] = field(default_factory=dict)
    _open: set[Any] = field(default_factory=set)

    def of(self, hint: Any) -> Shape:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hint in (Any, object):
            return Anything()
        if origin is typing.Annotated:
            text = next((note for note in args[1:] if isinstance(note, str)), None)
            keywords = {key: value for note in args[1:] if isinstance(note, dict) for key, value in note.items()}
            return Described(self.of(args[0]), text, keywords) if text or keywords else self.of(args[0])
        if origin in (typing.Union, types.UnionType):
            return Either(tuple(self.of(arg) for arg in args))
        if origin is typing.Literal:
            return self._literal(args)
        if hint is None or hint in SCALARS:
            return SCALARS[type(None) if hint is None else hint]
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._enum(hint)
        if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
            return self._record(hint)
        return self._collection(hint, origin or hint, args)

    def document(self, shape: Shape) -> Schema:
        """The schema of a whole value: the root spelt out, and what refers to itself under `$defs`."""
        inner = shape.shape if isinstance(shape, Described) else shape
        schema = inner.expanded() if isinstance(inner, Record) else shape.schema()
        loops = {record.name: record.expanded() for record in self._records.values() if record.is_recursive}
        return schema | ({"$defs": loops} if loops else {})

    def _literal(self, args: tuple[Any, ...]) -> Shape:
        if any(isinstance(arg, bytes | enum.Enum) for arg in args):
            raise SchemaError("a Literal of bytes or enum members has no JSON form; use the Enum itself")
        return Choice(tuple((arg, arg) for arg in args))

    def _enum(self, hint: type[enum.Enum]) -> Shape:
        members = tuple((member.value, member) for member in hint)
        if not members or not all(isinstance(value, str | int | float | bool | None) for value, _ in members):
            raise SchemaError(f"the values of enum {hint.__name__} must be strings, numbers or booleans")
        return Choice(members)

    def _collection(self, hint: Any, origin: Any, args: tuple[Any, ...]) -> Shape:
        if origin is tuple:
            if not args:
                return Array(Anything(), tuple)
            if len(args) == 2 and args[1] is Ellipsis:
                return Array(self.of(args[0]), tuple)
            return Row(tuple(self.of(arg) for arg in args))
        if origin in _ARRAYS:
            item = self.of(args[0]) if args else Anything()
            return Array(item, _ARRAYS[origin], is_set=origin in (set, frozenset, abc.Set))
        if origin in _MAPS:
            if args and args[0] not in (str, Any):
                raise SchemaError(f"{_name(hint)} has no JSON form: the keys of a JSON object are strings")
            return Map(self.of(args[1]) if args else Anything())
        if hasattr(hint, "__supertype__"):  # NewType
            return self.of(hint.__supertype__)
        if hasattr(hint, "__value__"):  # type X = ...
            return self.of(hint.__value__)
        raise SchemaError(
            f"{_name(hint)} has no JSON form; use str, int, float, bool, list, dict, tuple, set, Literal, Enum, "
            "datetime, a dataclass or a TypedDict"
        )

    def _record(self, hint: Any) -> Record:
        if hint in self._records:
            record = self._records[hint]
            record.is_recursive = record.is_recursive or hint in self._open
            return record
        taken = {record.name for record in self._records.values()}
        name = hint.__name__
        while name in taken:
            name += "_"
        is_dict = typing.is_typeddict(hint)
        record = self._records[hint] = Record(name, dict if is_dict else lambda values: hint(**values))
        self._open.add(hint)
        try:
            hints = resolve(hint)
            record.properties = self._typed_dict(hint, hints) if is_dict else self._dataclass(hint, hints)
        finally:
            self._open.discard(hint)
        return record

    def _dataclass(self, hint: Any, hints: dict[str, Any]) -> dict[str, Property]:
        properties: dict[str, Property] = {}
        for item in dataclasses.fields(hint):
            if item.init:
                made = item.default_factory is not dataclasses.MISSING
                properties[item.name] = self.prop(hints[item.name], item.default, dataclasses.MISSING, made)
        return properties

    def _typed_dict(self, hint: Any, hints: dict[str, Any]) -> dict[str, Property]:
        properties: dict[str, Property] = {}
        for name, inner in hints.items():
            is_required = name in hint.__required_keys__
            # With string annotations `__required_keys__` does not know of NotRequired: the resolved hint does.
            while (qualifier := getattr(typing.get_origin(inner), "_name", None)) in _QUALIFIERS:
                is_required = {"Required": True, "NotRequired": False}.get(str(qualifier), is_required)
                inner = typing.get_args(inner)[0]
            properties[name] = Property(self.of(inner), is_required)
        return properties

    def prop(self, hint: Any, default: Any, missing: Any, is_made: bool = False) -> Property:
        """One property. A default that JSON can't hold still works; it is just not shown in the schema."""
        if default is missing:
            return Property(self.of(hint), is_required=not is_made)
        try:
            return Property(self.of(hint), False, to_json(default, "default"), True)
        except NotJson:
            return Property(self.of(hint), False)


def resolve(owner: Any) -> dict[str, Any]:
    """The annotations of a function or class as types, whether they were written as strings or not."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"{_name(owner)}: annotation {error.name!r} can't be found; define or import it at the top of the module, "
            "outside `if TYPE_CHECKING`"
        ) from None


def check(shape: Shape, value: Json, path: str) -> list[str]:
    """The faults of a JSON value against a shape; builds nothing."""
    reading = Reading(builds=False)
    shape.read(value, path, reading)
    return reading.faults


def to_json(value: Any, path: str) -> Json:
    """A Python value as plain JSON values; raises NotJson with the path of what JSON can't hold."""
    if isinstance(value, enum.Enum):
        return to_json(value.value, path)
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{path}: {value} has no JSON form")
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, abc.Mapping):
        return {_key(key, path): to_json(item, at(path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        # A set has no order of its own; a stable one makes equal results equal text.
        items = [to_json(item, path) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name), at(path, f.name)) for f in dataclasses.fields(value) if f.init}
    raise NotJson(f"{path}: a {type(value).__name__} has no JSON form")


def _key(key: object, path: str) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise NotJson(f"{path}: a {type(key).__name__} can't be the key of a JSON object")


def _name(hint: Any) -> str:
    return getattr(hint, "__qualname__", None) or str(hint)
