"""Explicit parameters (`params=`), for pages that also run in MicroPython, which keeps no annotations.

    @tool(params={"text": str, "times": (int, 1), "tone": {"type": "string", "enum": ["kind", "stern"]}})

A type means what it means as an annotation, in a pair it has a default, and a dict is a JSON Schema. Its common
keywords are checked; the others are only sent to the client, as with a whole `input_schema`.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from .compounds import Described
from .shapes import SCALARS, Anything, Array, Choice, Map, Schema, SchemaError, Shape

# The value of `inspect`, so that both are interchangeable.
MISSING: Final[Any] = inspect.Parameter.empty
_SCALARS: Final = {shape.label: shape for shape in SCALARS.values() if not shape.extra}


def split(given: Any) -> tuple[Any, Any]:
    """The type or schema of a parameter, and its default or MISSING."""
    if isinstance(given, tuple):
        if len(given) != 2:
            raise SchemaError(f"expected a type, or (type, default), not {given!r}")
        return given
    return given, given.get("default", MISSING) if isinstance(given, dict) else MISSING


def written(schema: Schema) -> Shape:
    """The shape of a JSON Schema that the author wrote."""
    kind, items = schema.get("type"), schema.get("items")
    shape: Shape = Anything()
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        shape = Choice(tuple((value, value) for value in schema["enum"]))
    elif isinstance(kind, str) and kind in _SCALARS:
        shape = _SCALARS[kind]
    elif kind == "array":
        shape = Array(written(items) if isinstance(items, dict) else Anything(), list)
    elif kind == "object":
        shape = Map(Anything())
    text = schema.get("description")
    rest = {key: value for key, value in schema.items() if key not in ("default", "description")}
    return Described(shape, text if isinstance(text, str) else None, rest)
