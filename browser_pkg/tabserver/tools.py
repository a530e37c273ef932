"""Python functions as MCP tools: declaring them, checking their arguments, calling them, and shaping what they return.

    @tool
    def add(a: int, b: Annotated[int, "the second number"]) -> int:
        "Add two numbers."
        return a + b

Knows nothing of channels, eras or tabs: a call comes with a Context, and its result is one `done(...)`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, overload

from .schema import NotJson, SchemaError, Shapes, check, resolve, to_json
from .shapes import Anything, Described, Map, Reading, Record, Schema, Shape, summary
from .wire.frames import Caller
from .wire.jsonrpc import RequestId

Result = dict[str, Any]
Done = Callable[[Result], None]
Cancel = Callable[[str], None]
F = TypeVar("F", bound=Callable[..., Any])

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_KINDS_OF_CONTENT: Final = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource": ("resource",),
    "resource_link": ("uri", "name"),
}


class Context(Protocol):
    """What a running call may know and say. A parameter with this annotation is filled in; callers don't see it."""

    @property
    def caller(self) -> Caller: ...
    @property
    def request_id(self) -> RequestId: ...
    @property
    def is_cancelled(self) -> bool: ...
    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the call is. Reaches the caller only if it asked for progress; must rise from call to call."""

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the caller; `level` is one of the eight of syslog, `debug` to `emergency`."""


class UnknownTool(LookupError):
    """There is no tool of that name here."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class InvalidArguments(ValueError):
    """The arguments do not fit; the text has one line for each fault, with its path."""


def text_result(text: str, *, is_error: bool = False) -> Result:
    result: Result = {"content": [{"type": "text", "text": text}]}
    return result | {"isError": True} if is_error else result


def failure(error: BaseException) -> Result:
    """What a caller sees of a tool that raised: type and message, never a traceback."""
    text = str(error)
    return text_result(f"{type(error).__name__}: {text}" if text else type(error).__name__, is_error=True)


def to_result(value: Any) -> Result:
    """Any value as a CallToolResult. One that already is a result, or a list of content blocks, is taken as it is."""
    if isinstance(value, str):
        return text_result(value)
    if value is None:
        return {"content": []}
    plain = to_json(value, "result")
    if isinstance(plain, dict):
        if _is_content(plain.get("content")):
            return plain
        return text_result(_text(plain)) | {"structuredContent": plain}
    if plain and _is_content(plain):
        return {"content": plain}
    return text_result(_text(plain))


def _is_content(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(block, dict)
        and isinstance(kind := block.get("type"), str)
        and kind in _KINDS_OF_CONTENT
        and all(key in block for key in _KINDS_OF_CONTENT[kind])
        for block in value
    )


def _text(plain: Any) -> str:
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Tool:
    """One function with the schemas of its arguments and of what it returns (None: it promises nothing)."""

    name: str
    function: Callable[..., Any]
    arguments: Record
    context_name: str | None
    returns: Shape | None
    is_wrapped: bool
    description: dict[str, Any]

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        reading = Reading()
        made: dict[str, Any] = self.arguments.read(arguments, "arguments", reading)
        if reading.faults:
            raise InvalidArguments(summary(reading.faults))
        return made

    def shape(self, value: Any) -> Result:
        """The CallToolResult of a returned value, held to the return type that the tool declared."""
        try:
            if self.returns is None:
                return to_result(value)
            plain = to_json(value, "result")
        except NotJson as error:
            return text_result(f'Tool "{self.name}" returned what can\'t be sent: {error}', is_error=True)
        if faults := check(self.returns, plain, "result"):
            text = f'Tool "{self.name}" returned what its return type does not allow:\n{summary(faults)}'
            return text_result(text, is_error=True)
        return text_result(_text(plain)) | {"structuredContent": {"result": plain} if self.is_wrapped else plain}


def declare(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: dict[str, bool] | None = None,
) -> Tool:
    """Make a Tool of a function; raises SchemaError, naming function and parameter, for what has no JSON form."""
    name = name or function.__name__
    if not _NAME.fullmatch(name):
        raise SchemaError(f"tool name {name!r}: use 1 to 128 letters, digits, '_', '-' or '.'")
    hints, shapes = resolve(function), Shapes()
    record, context_name = Record(name, dict, noun="argument"), None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is Context:
            context_name = parameter.name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise SchemaError(
                f"tool {name}, parameter {parameter}: arguments are passed by name, so each needs its own"
            )
        try:
            record.properties[parameter.name] = shapes.prop(hint, parameter.default, parameter.empty)
        except SchemaError as error:
            raise SchemaError(f"tool {name}, parameter {parameter.name}: {error}") from None
    described: dict[str, Any] = {"name": name}
    if title:
        described["title"] = title
    if text := description or inspect.getdoc(function):
        described["description"] = text
    described["inputSchema"] = shapes.document(record)
    returns, output = _promise(name, hints.get("return", Any))
    if output is not None:
        described["outputSchema"] = output[0]
    if annotations:
        described["annotations"] = annotations
    return Tool(name, function, record, context_name, returns, output is not None and output[1], described)


def _promise(name: str, hint: Any) -> tuple[Shape | None, tuple[Schema, bool] | None]:
    """What a return annotation promises: its shape, its schema, and whether the value is wrapped in `{"result": …}`.

    A structured result is an object, so anything else is wrapped. `Any`, `None` and a bare `dict` promise nothing: such
    a tool may return text, content blocks or a ready result.
    """
    shapes = Shapes()
    try:
        shape = shapes.of(hint)
    except SchemaError as error:
        raise SchemaError(f"tool {name}, return type: {error}") from None
    inner = shape.shape if isinstance(shape, Described) else shape
    if isinstance(inner, Anything) or hint is type(None) or (isinstance(inner, Map) and not inner.value.schema()):
        return None, None
    schema = shapes.document(shape)
    if isinstance(inner, Record | Map):
        return shape, (schema, False)
    defs = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    wrapped = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "additionalProperties": False,
    }
    return shape, (wrapped | defs, True)


class Toolbox:
    """The tools of one place: the worker's own, or a page's. `on_change` is called when a tool comes or goes."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self.on_change: Callable[[], None] = lambda: None

    def add(self, tool: Tool) -> None:
        """Offer a tool. The same function declared again (its module was reloaded) replaces the old one."""
        old = self._tools.get(tool.name)
        if old is not None and _origin(old) != _origin(tool):
            raise ValueError(f'tool "{tool.name}" is already offered by {_origin(old)}; give one of them another name')
        self._tools[tool.name] = tool
        self.on_change()

    def remove(self, name: str) -> None:
        if self._tools.pop(name, None) is not None:
            self.on_change()

    def tools(self) -> list[dict[str, Any]]:
        return [tool.description for tool in self._tools.values()]

    def call(self, name: str, arguments: dict[str, Any], context: Context, done: Done) -> Cancel:
        """Start a call. `done` is called exactly once, for a plain function before this returns."""
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownTool(name)
        made = tool.read(arguments)
        if tool.context_name is not None:
            made[tool.context_name] = context
        try:
            value = tool.function(**made)
        except (Exception, SystemExit) as error:
            done(failure(error))
            return _nothing_to_cancel
        if not inspect.isawaitable(value):
            done(_finish(tool, value))
            return _nothing_to_cancel
        return _start(tool, value, done)


def _finish(tool: Tool, value: Any) -> Result:
    try:
        return tool.shape(value)
    except Exception as error:  # a value whose own code fails while it is read
        return failure(error)


# asyncio keeps only weak references to tasks; a call must not vanish because nobody else holds it.
_running: Final[set[asyncio.Task[Result]]] = set()


def _start(tool: Tool, value: Awaitable[Any], done: Done) -> Cancel:
    """One task for an asynchronous call; cancelling it raises CancelledError inside the function."""
    task = asyncio.get_running_loop().create_task(_run(tool, value), name=f"tool {tool.name}")
    _running.add(task)

    def ended(task: asyncio.Task[Result]) -> None:
        _running.discard(task)
        if inspect.iscoroutine(value):
            value.close()  # cancelled before its first step, it would complain that nobody awaited it
        done(text_result("The call was cancelled.", is_error=True) if task.cancelled() else task.result())

    def cancel(reason: str) -> None:
        task.cancel(reason)

    task.add_done_callback(ended)
    return cancel


async def _run(tool: Tool, value: Awaitable[Any]) -> Result:
    try:
        return _finish(tool, await value)
    except (Exception, SystemExit) as error:
        return failure(error)


def _nothing_to_cancel(reason: str) -> None:
    """A plain function has run to its end before anybody could cancel it."""


def _origin(tool: Tool) -> str:
    module, name = getattr(tool.function, "__module__", "?"), getattr(tool.function, "__qualname__", "?")
    return f"{module}.{name}"


default_toolbox: Final = Toolbox()


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    toolbox: Toolbox | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    toolbox: Toolbox | None = None,
) -> F | Callable[[F], F]:
    """Offer a function as a tool. The function itself stays as it is and can be called as before."""
    hints = {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
    annotations = {key: value for key, value in hints.items() if value is not None}

    def register(function: F) -> F:
        declared = declare(function, name=name, title=title, description=description, annotations=annotations)
        (default_toolbox if toolbox is None else toolbox).add(declared)
        return function

    return register if function is None else register(function)
