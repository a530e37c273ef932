"""Python functions as MCP resources: fixed ones, and templates whose URI has arguments.

    @resource("notes://{name}", mime_type="text/markdown")
    def note(name: str) -> str:
        "One note."
        return notes[name]

A template's arguments are those of its function. `{name}` is one path segment; `{name*}` may have slashes in it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from .completion import Completer, Completions
from .content import Audio, Embedded, Image, Text
from .context import Cancel, Done, Outcome, Request
from .messages import Refusal
from .questions import InputRequired
from .running import run
from .schema import SchemaError, to_json
from .signature import InvalidArguments, Signature, read_signature
from .wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

_VARIABLE: Final = re.compile(r"\{([A-Za-z_]\w*)(\*?)\}")
# Whoever calls chooses the URI: a pattern must not be made to work on a novel.
LONGEST_URI: Final = 4096
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class ResourceNotFound(Refusal):
    """There is no such resource. A template's function raises it for an argument that leads nowhere."""

    def __init__(self, uri: str) -> None:
        super().__init__(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
        self.uri = uri


@dataclass(frozen=True, slots=True)
class Resource:
    """One function that gives the contents of one URI, or of all that fit a template."""

    uri: str
    signature: Signature
    completions: Completions
    description: dict[str, Any]
    pattern: re.Pattern[str] | None

    @property
    def function(self) -> Callable[..., Any]:
        return self.signature.function

    @property
    def is_template(self) -> bool:
        return self.pattern is not None

    def match(self, uri: str) -> dict[str, str] | None:
        """The arguments that a URI has for this resource, or None if it is another one's."""
        if self.pattern is None:
            return {} if uri == self.uri else None
        found = self.pattern.fullmatch(uri) if len(uri) <= LONGEST_URI else None
        return {name: unquote(text) for name, text in found.groupdict().items()} if found else None

    def start(self, uri: str, arguments: Mapping[str, str], request: Request, done: Done) -> Cancel:
        try:
            made = self.signature.read_texts(arguments)
        except InvalidArguments as error:
            raise Refusal(INVALID_PARAMS, f"Resource {uri} does not fit its template:\n{error}", {"uri": uri}) from None

        def shape(value: Any) -> Outcome:
            if isinstance(value, InputRequired):
                return value
            return to_contents(uri, value, self.description.get("mimeType"))

        def fail(error: BaseException) -> Outcome:
            if isinstance(error, Refusal):
                return error
            return Refusal(INTERNAL_ERROR, f"Reading {uri} failed: {type(error).__name__}: {error}")

        return run(f"resource {uri}", lambda: self.signature.call(made, request), shape, fail, done)


def to_contents(uri: str, value: Any, mime_type: str | None) -> dict[str, Any]:
    """Whatever a resource's function returned as a ReadResourceResult."""
    if isinstance(value, dict) and isinstance(value.get("contents"), list):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(item, Embedded) for item in value):
        return {"contents": [item.contents() for item in value]}
    return {"contents": [_content(uri, value, mime_type)]}


def _content(uri: str, value: Any, mime_type: str | None) -> dict[str, Any]:
    if isinstance(value, Embedded):
        return value.contents()
    if isinstance(value, Image | Audio):
        return {"uri": uri, "mimeType": value.mime_type, "blob": value.block()["data"]}
    if isinstance(value, Text):
        value = value.text
    if isinstance(value, bytes | bytearray | memoryview):
        return Embedded(uri, bytes(value), mime_type or "application/octet-stream").contents()
    if isinstance(value, str):
        return Embedded(uri, value, mime_type or "text/plain").contents()
    text = json.dumps(to_json(value, uri), ensure_ascii=False, allow_nan=False)
    return Embedded(uri, text, mime_type or "application/json").contents()


def declare_resource(
    uri: str,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: dict[str, Any] | None = None,
    complete: Mapping[str, Completer] | None = None,
) -> Resource:
    """Make a Resource of a function; raises SchemaError if URI and signature do not belong together."""
    if not _SCHEME.match(uri):
        raise SchemaError(f"resource {uri!r}: a URI begins with a scheme, such as notes://")
    owner = f"resource {uri}"
    signature, variables = read_signature(function, owner), [found[1] for found in _VARIABLE.finditer(uri)]
    _compare(owner, variables, signature)
    described: dict[str, Any] = {"uriTemplate" if variables else "uri": uri, "name": name or function.__name__}
    optional = {
        "title": title,
        "description": description or inspect.getdoc(function),
        "mimeType": mime_type,
        "size": size,
        "annotations": annotations,
    }
    described |= {key: value for key, value in optional.items() if value is not None}
    pattern = _pattern(uri) if variables else None
    return Resource(uri, signature, Completions(owner, signature, complete), described, pattern)


def _compare(owner: str, variables: list[str], signature: Signature) -> None:
    if len(set(variables)) < len(variables):
        raise SchemaError(f"{owner}: an argument stands in the URI twice")
    if owner.count("*}") > 1:
        raise SchemaError(f"{owner}: only one argument may have slashes in it")
    for name in variables:
        if name not in signature.properties:
            raise SchemaError(f"{owner}: the function has no parameter {name!r}")
    for name, prop in signature.properties.items():
        if prop.is_required and name not in variables:
            raise SchemaError(f"{owner}: parameter {name!r} does not stand in the URI")


def _pattern(uri: str) -> re.Pattern[str]:
    """What stands between the arguments is literal."""
    text, end = "", 0
    for found in _VARIABLE.finditer(uri):
        text += re.escape(uri[end : found.start()]) + f"(?P<{found[1]}>{'.+' if found[2] else '[^/?#]+'})"
        end = found.end()
    return re.compile(text + re.escape(uri[end:]), re.DOTALL)
