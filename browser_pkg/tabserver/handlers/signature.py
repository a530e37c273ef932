"""Signature of a handler: its arguments with their schema shapes, and the parameter that receives the Context.

Tools have JSON arguments; prompts and resource templates have text arguments, which are parsed. Results are not read
here.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..schema.compounds import Described, Either, Named, Property, Record
from ..schema.generics import resolve
from ..schema.params import MISSING, split
from ..schema.shapes import Choice, Reading, Scalar, Schema, SchemaError, Shape, summary
from ..schema.types import Shapes
from .context import Context, Request


class InvalidArguments(ValueError):
    """The arguments do not fit; the text has one line per error, with its path."""


@dataclass(frozen=True, slots=True)
class Signature:
    """`record` is None when the author wrote the schema: the arguments are then passed unchanged.

    `returns`: the return annotation as a type. `filled`: defaults that the function itself does not have. `simple`: the
    types of the arguments, if none of them needs conversion.
    """

    function: Callable[..., Any]
    record: Record | None
    schema: Schema
    context_name: str | None
    returns: Any
    filled: dict[str, Any] = field(default_factory=dict)
    simple: dict[str, type] | None = None

    @property
    def properties(self) -> dict[str, Property]:
        return {} if self.record is None else self.record.properties

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as Python values; raises InvalidArguments."""
        if self.record is None or (self.simple is not None and _are(arguments, self.simple)):
            return arguments
        reading = Reading()
        made: dict[str, Any] = self.record.read(arguments, "arguments", reading)
        if reading.faults:
            raise InvalidArguments(summary(reading.faults))
        return made

    def read_texts(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """The same for text arguments: a number or a list is written as JSON."""
        known = self.properties
        # Unknown arguments stay: reading the record reports them.
        return self.read({k: _from_text(known[k].shape, text) if k in known else text for k, text in texts.items()})

    def call(self, made: dict[str, Any], request: Request | None) -> Any:
        if self.context_name is None or request is None:
            return self.function(**{**self.filled, **made} if self.filled else made)
        return self.function(**{**self.filled, **made}, **{self.context_name: Context(request)})


def _are(arguments: dict[str, Any], types: dict[str, type]) -> bool:
    """Whether exactly these arguments are present, each of exactly its type."""
    if arguments.keys() != types.keys():
        return False
    for name, value in arguments.items():  # noqa: SIM110 - a generator takes longer than all that it would do
        if type(value) is not types[name]:
            return False
    return True


def _from_text(shape: Shape, text: str) -> Any:
    if not shape.kinds or "string" in shape.kinds:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # and the shape says what it expected instead


def read_signature(
    function: Callable[..., Any], owner: str, schema: Schema | None = None, params: Mapping[str, Any] | None = None
) -> Signature:
    """`owner` begins the text of a SchemaError, such as "tool add". `params` are spelt out: see `params`."""
    hints, shapes = resolve(_written(function)), Shapes()
    parameters, spelt = inspect.signature(function).parameters, _spelt(params or {}, owner)
    if strangers := sorted(set(spelt) - set(parameters)):
        raise SchemaError(f"{owner}, params: the function has no parameter {', '.join(strangers)}")
    record, context_name = Record(owner, dict, noun="argument"), None
    for parameter in parameters.values():
        hint, default = spelt.get(parameter.name, (hints.get(parameter.name, Any), MISSING))
        if hint is Context or Context in typing.get_args(hint):  # Context | None, for functions that are also called
            context_name = parameter.name
            continue
        if schema is not None:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SchemaError(f"{owner}, parameter {parameter}: arguments are passed by name, so each needs its own")
        try:
            default = parameter.default if default is MISSING else default
            record.properties[parameter.name] = shapes.prop(hint, default, MISSING)
        except SchemaError as error:
            raise SchemaError(f"{owner}, parameter {parameter.name}: {error}") from None
    returns = hints.get("return", Any)
    if schema is not None:
        return Signature(function, None, schema, context_name, returns)
    filled = {name: default for name, (_, default) in spelt.items() if default is not MISSING}
    document = shapes.document(record)
    return Signature(function, record, document, context_name, returns, filled, _simple(record))


def _simple(record: Record) -> dict[str, type] | None:
    """The types of its properties, if all are scalars whose values are taken as they are."""
    types: dict[str, type] = {}
    for name, prop in record.properties.items():
        if not isinstance(prop.shape, Scalar) or prop.shape.fits is None:
            return None
        types[name] = prop.shape.fits
    return types


def _spelt(params: Mapping[str, Any], owner: str) -> dict[str, tuple[Any, Any]]:
    try:
        return {name: split(given) for name, given in params.items()}
    except SchemaError as error:
        raise SchemaError(f"{owner}, params: {error}") from None


def _written(function: Callable[..., Any]) -> Any:
    """Where its annotations are: of a `partial` in what it wraps, of an object that can be called in its class."""
    while isinstance(function, functools.partial):
        function = function.func
    is_plain = inspect.isroutine(function) or isinstance(function, type)
    return function if is_plain else type(function).__call__


def name_of(function: Callable[..., Any], name: str | None, noun: str) -> str:
    """The name that was given, else the function's own; a `functools.partial`, for one, has none."""
    found = name or getattr(function, "__name__", None)
    if not found:
        raise SchemaError(f"{noun}: {function!r} has no name of its own; give it one: name=…")
    return str(found)


def describe(shape: Shape) -> str | None:
    """The text of Annotated[..., "text"]."""
    return shape.text if isinstance(shape, Described) else None


def choices(shape: Shape) -> list[str]:
    """The texts that a Literal or an Enum allows, also inside a union."""
    if isinstance(shape, Described) or (isinstance(shape, Named) and not shape.is_recursive):
        return choices(shape.shape)
    if isinstance(shape, Either):
        return [text for member in shape.members for text in choices(member)]
    return [value for value, _ in shape.members if isinstance(value, str)] if isinstance(shape, Choice) else []
