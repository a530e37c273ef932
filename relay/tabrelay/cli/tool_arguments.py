"""Arguments of a tool from NAME=VALUE words: each value gets the type that the tool's schema names.

A value whose type is a string is taken as it is; other types are read as JSON. A name that is given several times
makes a list, if the schema has a list there. Without a schema, a value is JSON if it is, otherwise a string, and a
name that is given several times is a list. The server checks the arguments; this module reports only what can't be
meant. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

MAX_DEPTH: Final = 8  # of references and unions
_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class ArgumentError(ValueError):
    """A word that is no argument of the tool; the text says what was expected."""


def read(words: Sequence[str], schema: dict[str, Any] | None) -> dict[str, Any]:
    """The arguments of a call. Raises ArgumentError."""
    found: dict[str, Any] = {}
    properties = (schema or {}).get("properties")
    properties = properties if isinstance(properties, dict) else {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise ArgumentError(f"{word} is not NAME=VALUE.{_listed(properties)}")
        if name not in properties and (schema or {}).get("additionalProperties") is False:
            raise ArgumentError(f"The tool has no argument {name!r}.{_meant(name, properties)}")
        shapes = list(_shapes(properties.get(name, {}), schema or {}))
        items = [item for shape in shapes if "array" in _types(shape) and (item := shape.get("items")) is not None]
        if name in found or (items and not value.lstrip().startswith("[")):
            value_of = _value(name, value, list(_shapes(items[0] if items else {}, schema or {})))
            before = found.get(name, [])
            if schema is not None and not isinstance(before, list):
                raise ArgumentError(f"{name} is given twice, and is not a list.")
            found[name] = [*(before if isinstance(before, list) else [before]), value_of]
        else:
            found[name] = _value(name, value, shapes)
    return found


def _value(name: str, text: str, shapes: Sequence[dict[str, Any]]) -> Any:
    types = [kind for shape in shapes for kind in _types(shape)]
    choices = [choice for shape in shapes for choice in _choices(shape)]
    for choice in choices:
        if text == (choice if isinstance(choice, str) else json.dumps(choice)):
            return choice
    if not types:
        return _json_or_text(text)
    for kind in types:
        if kind == "string":
            continue
        value = _as(kind, text)
        if value is not None or (kind == "null" and text == "null"):
            return value
    if "string" in types:
        return text
    raise ArgumentError(f"{name}: {text!r} is not {' or '.join(_article(kind) for kind in types)}.")


def _as(kind: str, text: str) -> Any:
    """The value of this type; None if the text has another one."""
    if kind == "boolean" and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, bool):
        return None
    if kind == "integer":
        return value if isinstance(value, int) else None
    if kind == "number":
        return value if isinstance(value, int | float) else None
    return value if isinstance(value, {"object": dict, "array": list}.get(kind, ())) else None


def _json_or_text(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text  # a string needs no quotes


def parse_json(text: str) -> Any:
    """A value of JSON. Raises ValueError, also for NaN and for numbers that would be infinite, such as 1e400."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _shapes(schema: Any, root: dict[str, Any], depth: int = 0) -> Iterator[dict[str, Any]]:
    """The schema, or the alternatives of a union, without references."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        yield from _shapes(target, root, depth + 1)
        return
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            for option in options:
                yield from _shapes(option, root, depth + 1)
            return
    yield schema


def _types(shape: dict[str, Any]) -> list[str]:
    found = shape.get("type")
    if found is None and (choices := _choices(shape)):
        return ["string"] if all(isinstance(choice, str) for choice in choices) else []
    return [str(kind) for kind in found] if isinstance(found, list) else [found] if isinstance(found, str) else []


def _choices(shape: dict[str, Any]) -> list[Any]:
    if "const" in shape:
        return [shape["const"]]
    found = shape.get("enum")
    return found if isinstance(found, list) else []


def words_of(schema: dict[str, Any], given: str) -> list[str]:
    """For completion: the arguments as `NAME=`, or with `NAME=` given, the values that the schema lists."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    name, equals, _ = given.partition("=")
    if not equals:
        return [f"{each}=" for each in properties]
    shapes = list(_shapes(properties.get(name, {}), schema))
    values = [choice if isinstance(choice, str) else json.dumps(choice) for one in shapes for choice in _choices(one)]
    values += [word for one in shapes if "boolean" in _types(one) for word in ("true", "false")]
    return [f"{name}={value}" for value in values]


def _article(kind: str) -> str:
    return {"integer": "an integer", "object": "a JSON object", "array": "a JSON list", "null": "null"}.get(
        kind, f"a {kind}"
    )


def _meant(name: str, properties: dict[str, Any]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(properties), 1, 0.6)
    return f"\nDid you mean {close[0]}?" if close else _listed(properties)


def _listed(properties: dict[str, Any]) -> str:
    return f"\nThe arguments of the tool: {', '.join(map(str, properties))}" if properties else ""
