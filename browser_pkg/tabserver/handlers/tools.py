"""Tools from Python functions: declaration, argument checks, and results from returned values.

    @tool
    def add(a: int, b: Annotated[int, "the second number"]) -> int:
        "Add two numbers."
        return a + b

Independent of channels, eras and tabs. `toolbox` has the table of tools; `execute` runs one.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from ..rpc import Refusal, quote
from ..schema.compounds import bare
from ..schema.shapes import SCALARS, Anything, Array, Map, Schema, SchemaError, Shape, summary
from ..schema.size_caps import check_caps
from ..schema.types import NotJson, Shapes, check, to_json
from ..wire.help_codes import BY_REASON
from .content import CONTENT, Content, is_block, to_block
from .context import Cancel, Done, Outcome, Request, Result
from .execute import run
from .failures import handler_failures
from .questions import InputRequired
from .signature import Signature, name_of, read_signature
from .target import META_ERROR

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class UnknownTool(LookupError):
    """There is no tool with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class ToolError(Exception):
    """Raised by a tool with a message for the caller, who gets the text unchanged."""


@dataclass(frozen=True, slots=True)
class ToolResult(Generic[T]):
    """A complete result: content for the model and structured content for programs, or an error with content.

    As a return type, `ToolResult[Weather]` promises that `structured` is a Weather.
    """

    content: str | Content | Sequence[str | Content] = ()
    structured: T | None = None
    is_error: bool = False
    meta: dict[str, Any] | None = None

    def to_dict(self) -> Result:
        """Raises NotJson."""
        result, plain = self.read()
        return result if plain is None else result | {"structuredContent": structured_object(plain)}

    def read(self) -> tuple[Result, Any]:
        """The result without its structured content, and that as JSON data. Raises NotJson."""
        items = [self.content] if isinstance(self.content, str | Content) else self.content
        blocks = [to_block(item) for item in items]
        plain = None if self.structured is None else to_json(self.structured, "result")
        if plain is not None and not blocks:
            blocks = [to_block(_text(plain))]
        result: Result = {"content": blocks}
        if self.is_error:
            result["isError"] = True
        return result | ({"_meta": self.meta} if self.meta else {}), plain


def text_result(text: str, *, is_error: bool = False) -> Result:
    result: Result = {"content": [{"type": "text", "text": text}]}
    return result | {"isError": True} if is_error else result


def error_result(text: str, reason: str, *, is_delivered: bool = False) -> Result:
    """An error that the tool itself did not report. `reason` is for programs, as in the errors of tabs."""
    data = {"reason": reason, "delivered": "unknown" if is_delivered else "no", "retryable": False}
    return text_result(text, is_error=True) | {"_meta": {META_ERROR: data | {"help": BY_REASON[reason]}}}


def invalid_arguments(name: str, faults: object) -> Result:
    return error_result(f'Invalid arguments for tool "{name}":\n{faults}', "invalid_arguments")


def failure(error: BaseException) -> Outcome:
    """The result of a tool that raised: type and message, never a traceback."""
    if isinstance(error, Refusal):
        return error
    text = str(error)
    if isinstance(error, ToolError | asyncio.CancelledError) and text:
        return text_result(text, is_error=True)
    return text_result(handler_failures.text_of(error), is_error=True)


def to_result(value: Any) -> Result:
    """Any value as a CallToolResult. A result or a list of content blocks stays unchanged."""
    if isinstance(value, ToolResult):
        return value.to_dict()
    if isinstance(value, str | Content):
        return {"content": [to_block(value)]}
    if value is None:
        return {"content": []}
    if isinstance(value, list | tuple) and any(isinstance(item, CONTENT) for item in value):
        return {"content": [_any_block(item) for item in value]}
    plain = to_json(value, "result")
    if isinstance(plain, dict):
        if _is_content(plain.get("content")):
            return with_structured_object(plain)
        return text_result(_text(plain)) | {"structuredContent": plain}
    if plain and _is_content(plain):
        return {"content": plain}
    return text_result(_text(plain))


def _any_block(item: Any) -> dict[str, Any]:
    if isinstance(item, str | Content) or is_block(item):
        return to_block(item)
    return to_block(_text(to_json(item, "result")))


def _is_content(value: Any) -> bool:
    return isinstance(value, list) and all(is_block(block) for block in value)


def _structured(value: Any) -> tuple[Result, Any]:
    plain = to_json(value, "result")
    return text_result(_text(plain)), plain


def structured_object(value: Any) -> dict[str, Any]:
    """An object, which structured content must be for most clients; any other value becomes its member `result`."""
    return value if isinstance(value, dict) else {"result": value}


def with_structured_object(result: Result) -> Result:
    """The result, with an object as structured content if it has any."""
    value = result.get("structuredContent", result)
    return result if isinstance(value, dict) else result | {"structuredContent": structured_object(value)}


def object_schema(schema: Schema) -> Schema:
    """The schema of an object that has the value as its member `result`. `$defs` stay at the root, where references
    find them."""
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    outer = {key: schema[key] for key in ("$defs", "$schema") if key in schema}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"]} | outer


def _text(plain: Any) -> str:
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Tool:
    """One function with the schemas of its arguments and its result (`returns` None: no output schema).

    `is_wrapped`: results are not objects, so structured content has them as its member `result`.
    """

    name: str
    signature: Signature
    returns: Shape | None
    description: dict[str, Any]
    is_wrapped: bool

    @property
    def function(self) -> Callable[..., Any]:
        return self.signature.function

    @property
    def is_plain(self) -> bool:
        """Whether it takes no Context and is synchronous, as far as its signature shows."""
        return self.signature.context_name is None and not inspect.iscoroutinefunction(self.function)

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.signature.read(arguments)

    def start(self, arguments: dict[str, Any], request: Request | None, done: Done) -> Cancel:
        """Raises InvalidArguments before anything runs."""
        made = self.read(arguments)
        return self.start_by(lambda: self.signature.call(made, request), done)

    def start_by(self, begin: Callable[[], Any], done: Done) -> Cancel:
        """Run it by a function that calls it."""
        return run(f"tool {self.name}", begin, self.shape, failure, done)

    def call(self, made: dict[str, Any]) -> Any:
        """Call a plain tool, with arguments that were read."""
        return self.signature.call(made, None)

    def written(self, value: Any) -> str | None:
        """Like `shape`, as JSON text, for a returned text. None for other values."""
        if type(value) is not str:
            return None
        text = quote(value)
        content = f'"content":[{{"type":"text","text":{text}}}]'
        if self.returns is None:
            return f"{{{content}}}"
        return f'{{{content},"structuredContent":{{"result":{text}}}}}' if self.returns is SCALARS[str] else None

    def shape(self, value: Any) -> Outcome:
        """The CallToolResult of a returned value, checked against the declared return type."""
        if isinstance(value, InputRequired):
            return value
        try:
            if self.returns is None:
                return to_result(value)
            result, plain = value.read() if isinstance(value, ToolResult) else _structured(value)
        except NotJson as error:
            handler_failures.report(f"tool {self.name}", error)
            text = f'Tool "{self.name}" returned what can\'t be sent: {error}'
            return error_result(text, "invalid_result", is_delivered=True)
        if "isError" in result:
            return result if plain is None else result | {"structuredContent": structured_object(plain)}
        if faults := check(self.returns, plain, "result"):
            text = f'Tool "{self.name}" returned what its return type does not allow:\n{summary(faults)}'
            return error_result(text, "invalid_result", is_delivered=True)
        if self.is_wrapped:
            return result | {"structuredContent": {"result": plain}}
        return result if plain is None else result | {"structuredContent": plain}


def declare(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: dict[str, bool] | None = None,
    params: Mapping[str, Any] | None = None,
    input_schema: Schema | None = None,
    output_schema: Schema | None = None,
    icons: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
    task: bool | Literal["optional", "required"] = False,
) -> Tool:
    """Make a Tool of a function; raises SchemaError, naming function and parameter, for what has no JSON form.

    A schema that the author wrote is offered unchanged, and its arguments are passed unchanged.
    """
    name = name_of(function, name, "tool")
    if not _NAME.fullmatch(name):
        raise SchemaError(f"tool name {name!r}: use 1 to 128 letters, digits, '_', '-' or '.'")
    signature = read_signature(function, f"tool {name}", input_schema, params)
    described: dict[str, Any] = {"name": name}
    if title:
        described["title"] = title
    if text := description or inspect.getdoc(function):
        described["description"] = text
    described["inputSchema"] = signature.schema
    returns = (Anything(), output_schema) if output_schema is not None else _promise(name, signature.returns)
    is_wrapped = returns is not None and returns[1].get("type") != "object"
    if returns is not None:
        described["outputSchema"] = object_schema(returns[1]) if is_wrapped else returns[1]
    optional = {"annotations": annotations, "icons": icons, "_meta": meta}
    described |= {key: value for key, value in optional.items() if value}
    if task not in (False, True, "optional", "required"):
        raise SchemaError(f'tool {name}: task must be True, "optional" or "required", not {task!r}')
    if task:
        described["execution"] = {"taskSupport": "optional" if task is True else task}
    try:
        check_caps(described)
    except ValueError as error:
        raise SchemaError(f"tool {name}: {error}") from None
    return Tool(name, signature, None if returns is None else returns[0], described, is_wrapped)


def _promise(name: str, hint: Any) -> tuple[Shape, Schema] | None:
    """The shape and schema of a return annotation.

    `Any`, `None`, a bare `dict` or `list` and content have no schema: such a tool may return text, content or a
    ToolResult.
    """
    if hint is ToolResult or _is_open(hint):
        return None
    if typing.get_origin(hint) is ToolResult:
        hint = typing.get_args(hint)[0]
    shapes = Shapes(is_result=True)
    try:
        shape = shapes.of(hint)
    except SchemaError as error:
        raise SchemaError(f"tool {name}, return type: {error}") from None
    inner = bare(shape)
    if isinstance(inner, Anything) or (isinstance(inner, Map) and not inner.value.schema()):
        return None
    if isinstance(inner, Array) and not inner.is_set and not inner.item.schema():
        return None
    return shape, shapes.document(shape)


def _is_open(hint: Any) -> bool:
    return (
        hint is type(None) or hint in CONTENT or hint is InputRequired or any(map(_is_open_arm, typing.get_args(hint)))
    )


def _is_open_arm(hint: Any) -> bool:
    """Content anywhere in a list or union makes all of it content. None in it is a value."""
    return hint is not type(None) and _is_open(hint)
