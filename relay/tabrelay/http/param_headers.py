"""Tool arguments in request headers (`x-mcp-header`, `Mcp-Param-*`): encoding, and comparison with the body.

A proxy may route by the header while the server acts on the body, so the two must be equal. A schema that breaks the
rules for such headers has none: clients that follow the specification do not even show the tool. Pure: does not read
the request and does not choose the schema.

The bridge and upstreams use the official SDK's functions for what they send. The relay checks every call, and keeps its
own: the SDK walks the schema again for each check. A test compares the two.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tabrelay import mcp_headers
from tabrelay.errors import BadRequest
from tabserver.wire import jsonrpc

KEY: Final = "x-mcp-header"
TYPES: Final = ("string", "integer", "boolean")
TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
PLAIN: Final = re.compile(r"[\x20-\x7e]*")
CARRIED: Final = re.compile(r"[\t\x20-\x7e]*")  # RFC 9110, 5.5; bytes above that have no agreed meaning
SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
NUMBER: Final = re.compile(r"(-?[0-9]{1,400})(\.0+)?")
# Other keywords that contain schemas. An annotation there can't be addressed by property names: it breaks the rules.
BRANCHES: Final = (
    *("items", "prefixItems", "contains", "additionalProperties", "propertyNames", "patternProperties"),
    *("unevaluatedItems", "unevaluatedProperties", "dependentSchemas", "contentSchema", "$defs", "definitions"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
)


@dataclass(frozen=True, slots=True)
class ParamHeader:
    """One argument that a header repeats: where it is in the arguments, and what type it has."""

    header: str
    path: tuple[str, ...]
    type: str


def param_headers(schema: Any) -> tuple[ParamHeader, ...]:
    """The arguments that a tool's inputSchema repeats in headers; none if it breaks a rule."""
    found: dict[str, ParamHeader] = {}
    layer: list[tuple[tuple[str, ...], Any, bool]] = [((), schema, True)]
    while layer:
        path, node, is_named = layer.pop()
        if not isinstance(node, dict):
            continue
        if KEY in node:
            name, type = node[KEY], node.get("type")
            if not path or not is_named or type not in TYPES or not isinstance(name, str) or not TOKEN.fullmatch(name):
                return ()
            if name.lower() in found:
                return ()
            found[name.lower()] = ParamHeader(mcp_headers.PARAM_PREFIX + name.lower(), path, type)
        properties = node.get("properties")
        if isinstance(properties, dict):
            layer += [((*path, name), value, is_named) for name, value in properties.items()]
        layer += [(path, value, False) for key in BRANCHES for value in _schemas(key, node.get(key))]
    return tuple(found.values())


def _schemas(key: str, value: Any) -> Iterable[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and key in ("patternProperties", "dependentSchemas", "$defs", "definitions"):
        return value.values()
    return (value,)


def check(wanted: Iterable[ParamHeader], arguments: Any, headers: Mapping[bytes, list[str]]) -> None:
    """Raises unless a header and its argument are both present and equal, or both absent."""
    for param in wanted:
        values = headers.get(param.header.encode(), [])
        argument = _at(arguments, param.path)
        where = ".".join(param.path)
        if len(values) > 1:
            raise mismatch(f"The header {param.header} is repeated.")
        text = _text(argument)
        if text is None:
            if values:
                raise mismatch(f"The header {param.header} is present, but the argument {where} is missing.")
        elif not values:
            raise mismatch(f"The header {param.header} is missing, but the argument {where} is present.")
        elif not _agrees(param.type, argument, text, decode(param.header, values[0])):
            raise mismatch(f"The header {param.header} and the argument {where} differ.")


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(name)
    return arguments


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _agrees(type: str, argument: Any, text: str, header_text: str) -> bool:
    number = NUMBER.fullmatch(header_text) if type == "integer" and not isinstance(argument, bool | str) else None
    if number is not None and (isinstance(argument, int) or argument.is_integer()):
        return int(number[1]) == int(argument)
    return header_text == text


def encode(text: str) -> str:
    """A header value. Base64 if a header can't carry the text unchanged, or if the text looks encoded."""
    if PLAIN.fullmatch(text) and text == text.strip() and not SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decode(header: str, value: str) -> str:
    """The text of a header value: base64 between `=?base64?` and `?=`, else literal."""
    if not CARRIED.fullmatch(value):
        raise mismatch(f"The header {header} has characters that are not ASCII: send them as =?base64?…?=.")
    found = SENTINEL.fullmatch(value)
    if found is None:
        return value
    inner = found[1]
    try:
        decoded = base64.b64decode(inner, validate=True)
        text = decoded.decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise mismatch(f"The header {header} has broken base64.") from None
    if base64.b64encode(decoded).decode() != inner:
        raise mismatch(f"The header {header} has base64 that is not canonical.")
    return text


def mismatch(text: str) -> BadRequest:
    return BadRequest(text, code=jsonrpc.HEADER_MISMATCH, reason="header_mismatch")
