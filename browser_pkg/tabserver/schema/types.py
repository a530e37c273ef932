"""JSON Schema from Python types, and JSON values from Python values.

Covers what a tool's signature needs: scalars, collections, Literal, Enum, unions, dataclasses, TypedDict, NamedTuple,
dates, bytes, generics, types that contain themselves, and Annotated[..., "a description", Bounds(ge=1)]. Other types
are refused when the tool is declared, never during a call. Values are read by the shapes themselves.
"""

from __future__ import annotations

import base64
import collections.abc as abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import math
import re
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from .bounds import keywords_of
from .compounds import Described, Either, Named, Property, Record
from .generics import fill, parameters_of, resolve
from .params import written
from .shapes import SCALARS, Anything, Array, Choice, FixedTuple, Json, Map, Reading, Schema, SchemaError, Shape, at

# Containers inside one another.
MAX_LEVELS: Final = 100
_SHOWN_PATH: Final = 100  # characters


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
    """Builds the shapes of one signature. Named ones are cached, so that a type may contain itself.

    `is_result`: of what a function returns. Its schema says where null may be; clients check results by it.
    """

    is_result: bool = False
    _named: dict[Any, Record | Named] = field(default_factory=dict)
    _open: set[Any] = field(default_factory=set)

    def of(self, hint: Any) -> Shape:
        if isinstance(hint, dict):
            return written(hint)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hint in (Any, object):
            return Anything()
        if origin is typing.Annotated:
            return self._annotated(args[0], args[1:])
        if origin in (typing.Union, types.UnionType):
            return Either(tuple(self.of(arg) for arg in args))
        if origin is typing.Literal:
            return self._literal(args)
        if hint is None or hint in SCALARS:
            return SCALARS[type(None) if hint is None else hint]
        if isinstance(hint, typing.TypeVar):
            return self._variable(hint)
        kind = origin or hint
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return self._enum(kind)
        if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
            return self._record(hint, kind)
        if hasattr(kind, "__value__"):  # type X = ...
            return self._alias(hint, kind)
        return self._collection(hint, kind, args)

    def document(self, shape: Shape) -> Schema:
        """The schema of a whole value: the root in full, and recursive types under `$defs`."""
        inner = shape.shape if isinstance(shape, Described) else shape
        schema = inner.expanded() if isinstance(inner, Record) else shape.schema()
        loops = {named.name: named.expanded() for named in self._named.values() if named.is_recursive}
        return schema | ({"$defs": loops} if loops else {})

    def _annotated(self, hint: Any, notes: tuple[Any, ...]) -> Shape:
        shape, text = self.of(hint), None
        keywords: Schema = {}
        for note in notes:
            # A plain text, or typing_extensions.Doc.
            said = note if isinstance(note, str) else getattr(note, "documentation", None)
            text = text or (said if isinstance(said, str) else None)
            try:
                keywords |= keywords_of(note, shape.kinds)
            except ValueError as error:
                raise SchemaError(str(error)) from None
        return Described(shape, text, keywords) if text or keywords else shape

    def _variable(self, hint: typing.TypeVar) -> Shape:
        """A type variable without a value: its bound or constraints, or any value."""
        if hint.__constraints__:
            return Either(tuple(self.of(one) for one in hint.__constraints__))
        return self.of(Any if hint.__bound__ is None else hint.__bound__)

    def _literal(self, args: tuple[Any, ...]) -> Shape:
        if any(isinstance(arg, bytes) for arg in args):
            raise SchemaError("a Literal of bytes has no JSON form; use text")
        return Choice(tuple((arg.value if isinstance(arg, enum.Enum) else arg, arg) for arg in args))

    def _enum(self, hint: type[enum.Enum]) -> Shape:
        members = tuple((member.value, member) for member in hint)
        if not members or not all(isinstance(value, str | int | float | bool | None) for value, _ in members):
            raise SchemaError(f"the values of enum {hint.__name__} must be strings, numbers or booleans")
        return Choice(members)

    def _collection(self, hint: Any, origin: Any, args: tuple[Any, ...]) -> Shape:
        if origin is tuple:
            if not args:  # any tuple, or the one with nothing in it
                return Array(Anything(), tuple) if not isinstance(hint, types.GenericAlias) else FixedTuple(())
            if len(args) == 2 and args[1] is Ellipsis:
                return Array(self.of(args[0]), tuple)
            return FixedTuple(tuple(self.of(arg) for arg in args))
        if origin in _ARRAYS:
            item = self.of(args[0]) if args else Anything()
            return Array(item, _ARRAYS[origin], is_set=origin in (set, frozenset, abc.Set))
        if origin in _MAPS:
            return Map(self.of(args[1]), self._key(hint, args[0])) if args else Map(Anything())
        if isinstance(origin, type) and issubclass(origin, tuple) and hasattr(origin, "_fields"):  # NamedTuple
            hints = resolve(origin)
            return FixedTuple(
                tuple(self.of(hints.get(name, Any)) for name in origin._fields), lambda items: origin(*items)
            )
        if hasattr(hint, "__supertype__"):  # NewType
            return self.of(hint.__supertype__)
        raise SchemaError(
            f"{_name(hint)} has no JSON form; use str, int, float, bool, list, dict, tuple, set, Literal, Enum, "
            "datetime, a dataclass or a TypedDict"
        )

    def _key(self, hint: Any, key: Any) -> Shape | None:
        """The shape of the names of a JSON object. None: any text."""
        if key in (str, Any):
            return None
        shape = self.of(key)
        is_text = isinstance(shape, Choice) and shape.kinds == {"string"}
        if not is_text and key is not int:
            raise SchemaError(
                f"{_name(hint)} has no JSON form: the keys of a JSON object are strings; use str, int, or a Literal or "
                "Enum of strings"
            )
        return shape

    def _alias(self, hint: Any, alias: Any) -> Shape:
        if (known := self._met(hint)) is not None:
            return known
        named = self._named[hint] = Named(self._new_name(hint), Anything())
        self._open.add(hint)
        try:
            named.shape = self.of(fill(alias.__value__, parameters_of(hint)))
            named.kinds  # noqa: B018  raises for a type that is defined by itself alone
        except RecursionError:
            raise SchemaError(f"type {named.name} is defined by nothing but itself") from None
        finally:
            self._open.discard(hint)
        return named

    def _record(self, hint: Any, origin: Any) -> Shape:
        if (known := self._met(hint)) is not None:
            return known
        is_dict = typing.is_typeddict(origin)
        make = dict if is_dict else lambda values: origin(**values)
        record = self._named[hint] = Record(self._new_name(hint), make, about=_about(origin))
        self._open.add(hint)
        try:
            given = parameters_of(hint)
            hints = {name: fill(inner, given) for name, inner in resolve(origin).items()}
            record.properties = self._typed_dict(origin, hints) if is_dict else self._dataclass(origin, hints)
        finally:
            self._open.discard(hint)
        return record

    def _met(self, hint: Any) -> Record | Named | None:
        """A type that occurred before; if its shape is not complete yet, it contains itself."""
        known = self._named.get(hint)
        if known is not None:
            known.is_recursive = known.is_recursive or hint in self._open
        return known

    def _new_name(self, hint: Any) -> str:
        taken = {named.name for named in self._named.values()}
        name = "_".join([_short(typing.get_origin(hint) or hint), *map(_short, typing.get_args(hint))])
        while name in taken:
            name += "_"
        return name

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
            # With string annotations `__required_keys__` lacks NotRequired: the resolved hint has it.
            while (qualifier := getattr(typing.get_origin(inner), "_name", None)) in _QUALIFIERS:
                is_required = {"Required": True, "NotRequired": False}.get(str(qualifier), is_required)
                inner = typing.get_args(inner)[0]
            properties[name] = Property(self.of(inner), is_required)
        return properties

    def prop(self, hint: Any, default: Any, missing: Any, is_made: bool = False) -> Property:
        """One property. A default without a JSON form works, but is not in the schema."""
        shape = self.of(hint)
        if default is missing:
            return Property(shape, is_required=not is_made)
        if default is None and check(shape, None, ""):
            shape = Either((shape, SCALARS[type(None)]))  # x: int = None allows None
        if default is None and not self.is_result:
            return Property(shape, False, omits_null=True)
        try:
            return Property(shape, False, to_json(default, "default"), True)
        except NotJson:
            return Property(shape, False)


def check(shape: Shape, value: Json, path: str) -> list[str]:
    """The errors of a JSON value against a shape, without building a Python value."""
    reading = Reading(builds=False)
    shape.read(value, path, reading)
    return reading.faults


def to_json(value: Any, path: str, levels: int = MAX_LEVELS) -> Json:
    """A Python value as plain JSON values; raises NotJson with the path of what JSON can't hold, and what to return."""
    if type(value) is str:  # the most common values
        return value
    if isinstance(value, enum.Enum):
        return to_json(value.value, path, levels)
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{path}: {value} has no JSON form. Return a finite number, None or a text.")
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if levels == 0:
        # Python's own limit of nested calls would end the worker: its stack in a browser is small.
        raise NotJson(
            f"{path[:_SHOWN_PATH]}…: it contains itself, or nests deeper than {MAX_LEVELS} levels, so it has no JSON "
            "form. Return a copy without the part that leads back."
        )
    inner = levels - 1
    if isinstance(value, abc.Mapping):
        return {_key(key, path): to_json(item, at(path, str(key)), inner) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item, f"{path}[{index}]", inner) for index, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        # A set has no order of its own; a stable one makes equal results equal text.
        items = [to_json(item, path, inner) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: to_json(getattr(value, f.name), at(path, f.name), inner)
            for f in dataclasses.fields(value)
            if f.init
        }
    raise NotJson(f"{path}: {_kind(value)} has no JSON form. {_advice(value)}")


def _kind(value: object) -> str:
    name = type(value).__name__
    return str(value) if value is None or value is ... else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _advice(value: Any) -> str:
    """What to return instead of a value that JSON can't hold."""
    if isinstance(value, memoryview):
        return "Return bytes(value)."
    if inspect.iscoroutine(value) or inspect.isawaitable(value):
        return "Await it first."
    if callable(value):
        return "Return what it returns."
    if isinstance(value, BaseException):
        return "Raise it, or return str(error)."
    if hasattr(value, "to_py"):  # a JavaScript object
        return "Return value.to_py()."
    for method in ("tolist", "to_dict", "model_dump"):  # NumPy, pandas, Pydantic
        if hasattr(value, method):
            return f"Return value.{method}()."
    if isinstance(value, abc.Iterator | abc.Collection):
        return "Return list(value)."
    if isinstance(value, datetime.timedelta):
        return "Return value.total_seconds(), or str(value)."
    if isinstance(value, complex | decimal.Decimal):
        return "Return float(value) or str(value)." if isinstance(value, decimal.Decimal) else "Return str(value)."
    return "Return a dict, a list or a dataclass with the values that matter."


def _key(key: object, path: str) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise NotJson(f"{path}: {_kind(key)} can't be the key of a JSON object. Use texts as keys, such as str(key).")


def _name(hint: Any) -> str:
    return getattr(hint, "__qualname__", None) or str(hint)


def _short(hint: Any) -> str:
    return re.sub(r"\W+", "_", getattr(hint, "__name__", None) or str(hint)).strip("_")


def _about(hint: Any) -> str | None:
    """The docstring that the author wrote; a dataclass without one has its signature there."""
    text = hint.__dict__.get("__doc__")
    return inspect.cleandoc(text) if text and not text.startswith(f"{hint.__name__}(") else None
