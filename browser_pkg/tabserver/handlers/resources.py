"""Resources from Python functions: fixed URIs, and templates whose URI has arguments.

    @resource("notes://{name}", mime_type="text/markdown")
    def note(name: str) -> str:
        "One note."
        return notes[name]

A template's arguments are those of its function. `{name}` is one path segment; `{name*}` may have slashes in it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..rpc import Refusal
from ..schema.shapes import SchemaError
from ..schema.types import NotJson, to_json
from ..wire.help_codes import BY_CODE
from ..wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from .completion import Completer, Completions
from .content import Audio, Embedded, Image, Text
from .context import Cancel, Done, Outcome, Request
from .execute import run
from .failures import handler_failures
from .questions import InputRequired
from .signature import InvalidArguments, Signature, name_of, read_signature
from .uri_templates import check_uri, match


class ResourceNotFound(Refusal):
    """There is no such resource. A template's function raises it for an argument without a resource."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri, "help": BY_CODE[RESOURCE_NOT_FOUND]}
        )
        self.uri = uri


@dataclass(frozen=True, slots=True)
class ResourceHandler:
    """One function that returns the contents of one URI, or of all URIs of a template."""

    uri: str
    signature: Signature
    completions: Completions
    description: dict[str, Any]
    is_template: bool

    @property
    def function(self) -> Callable[..., Any]:
        return self.signature.function

    def match(self, uri: str) -> dict[str, str] | None:
        """The arguments in a URI of this resource; None for the URI of another one."""
        if self.is_template:
            return match(self.uri, uri)
        return {} if uri == self.uri else None

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
            if isinstance(error, NotJson):
                return Refusal(INTERNAL_ERROR, f"Resource {uri} returned what can't be sent: {error}")
            return Refusal(INTERNAL_ERROR, f"Reading {uri} failed: {handler_failures.text_of(error)}")

        return run(f"resource {uri}", lambda: self.signature.call(made, request), shape, fail, done)


def to_contents(uri: str, value: Any, mime_type: str | None) -> dict[str, Any]:
    """The returned value of a resource's function as a ReadResourceResult."""
    if isinstance(value, dict) and isinstance(value.get("contents"), list):
        to_json(value, "result")
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
    text = json.dumps(to_json(value, "result"), ensure_ascii=False, allow_nan=False)
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
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
) -> ResourceHandler:
    """Make a Resource of a function; raises SchemaError if URI and signature do not belong together."""
    try:
        variables = check_uri(uri)
    except ValueError as error:
        raise SchemaError(f"resource {error}") from None
    owner = f"resource {uri}"
    signature = read_signature(function, owner)
    _compare(owner, variables, signature)
    described: dict[str, Any] = {"uriTemplate" if variables else "uri": uri, "name": name_of(function, name, owner)}
    optional = {
        "title": title,
        "description": description or inspect.getdoc(function),
        "mimeType": mime_type,
        "size": size,
        "annotations": annotations,
        "icons": icons,
        "_meta": meta,
    }
    described |= {key: value for key, value in optional.items() if value is not None}
    return ResourceHandler(uri, signature, Completions(owner, signature, complete), described, bool(variables))


def _compare(owner: str, variables: list[str], signature: Signature) -> None:
    for name in variables:
        if name not in signature.properties:
            raise SchemaError(f"{owner}: the function has no parameter {name!r}")
    for name, prop in signature.properties.items():
        if prop.is_required and name not in variables:
            raise SchemaError(f"{owner}: parameter {name!r} is not in the URI")
