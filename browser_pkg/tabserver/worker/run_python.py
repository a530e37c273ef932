"""Tool that executes Python code like a notebook: `offer_run_python()`, or `connect({ runPython: true })`.

Off unless a page turns it on, and no sandbox: any client that may call it can do all that this Python can, with the
page's origin, its logins and its connection. Each caller has a separate namespace, kept as long as `ctx.state`; modules
and the rest of the interpreter are shared. Asynchronous code ends when its caller cancels or its time is up. Plain code
holds the only thread and can't be cancelled; where `sys.monitoring` exists (Pyodide has it), the time limit still
applies, at the next loop or call.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
import time
import traceback
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from ..handlers.content import CONTENT, Content, Image
from ..handlers.context import Context
from ..handlers.failures import handler_failures
from ..handlers.toolbox import Toolbox, default_toolbox, tool
from ..handlers.tools import ToolResult
from .module_files import find_imports
from .output_streams import CapturedOutput, captured_output, left_out, replace_streams

_FILE: Final = "<run_python"
_LINES_KEPT: Final = 200  # pieces of code whose lines tracebacks can show
_MOST_FRAMES: Final = 1_000  # of a traceback: Python's own default limit of nested calls
_CHECK_EVERY: Final = 64  # jumps and calls between two readings of the clock
# Modules whose state would be left inconsistent by an exception: code that is over its time is not interrupted in them.
_NEVER_INTERRUPTED: Final = ("asyncio", "contextlib", "pyodide", "tabserver")


Install = Callable[[Iterable[str]], Awaitable[None]]


class RunTimeout(BaseException):
    """Derived from BaseException: code that catches every Exception must not outlive its time limit."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of running a piece of code."""

    stdout: str
    stderr: str
    result: Annotated[str | None, "the repr of the last expression, if it is not None"]
    error: Annotated[str | None, "the traceback, if it failed"] = None


def offer_run_python(
    *,
    name: str = "run_python",
    timeout_s: float = 30.0,
    max_output: int = 100_000,
    toolbox: Toolbox | None = None,
    install: Install | None = None,
) -> None:
    """Offer a tool that runs any Python code. **Any client that may call it can do all that this page can.**

    It returns what was printed, the last expression and, as an error, the traceback. `await` works at the top level;
    names are kept from call to call, separately for each caller. `timeout_s` ends one run; `max_output` is the most
    characters of each of these in a result. `install` gets the names that the code imports, before it runs.
    """
    if not timeout_s > 0 or not max_output > 0:
        raise ValueError(f"timeout_s={timeout_s} and max_output={max_output} must be more than 0")
    runner = PythonRunner(timeout_s, max_output, install)

    async def run_python(
        code: Annotated[str, "any Python; the value of a last expression is the result"],
        ctx: Context,
        reset: Annotated[bool, "forget all names first"] = False,
    ) -> ToolResult[Ran]:
        return await runner.run(code, ctx.state, reset=reset)

    described = (
        "Run Python in the browser and get what it prints, the value of its last expression, or its traceback. Names "
        "are kept for your next call; top-level await works. It has Python's standard library, and JavaScript by "
        f"`import js`. Must not block: it shares its thread. Ends after {timeout_s:g} s."
    )
    declare = tool(
        name=name,
        title="Run Python",
        description=described,
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
        toolbox=default_toolbox if toolbox is None else toolbox,
    )
    declare(run_python)


@dataclass(slots=True)
class CallerNamespace:
    """One caller's names, and the lock that makes its runs follow one another."""

    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__", "__builtins__": __builtins__})
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PythonRunner:
    """Runs code for callers. Each caller's namespace is in its `ctx.state`."""

    def __init__(self, timeout_s: float, max_output: int, install: Install | None = None) -> None:
        self._install = install
        self._timeout_s = timeout_s
        self._max_output = max_output
        self._count = 0

    async def run(self, code: str, state: dict[str, Any], *, reset: bool = False) -> ToolResult[Ran]:
        namespace: CallerNamespace = state.setdefault("tabserver.worker.run_python", CallerNamespace())
        async with namespace.lock:
            if reset:
                namespace.names = CallerNamespace().names
            self._count += 1
            replace_streams()
            output = CapturedOutput(self._max_output)
            token = captured_output.set(output)
            try:
                value, error = await self._run(code, f"{_FILE} {self._count}>", namespace.names)
            finally:
                captured_output.reset(token)
        return self._result(output, value, error)

    async def _run(self, code: str, file: str, names: dict[str, Any]) -> tuple[Any, str | None]:
        _cache_source(file, code)
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                if self._install is not None:
                    sure, _ = find_imports(ast.parse(code, file), "")
                    await self._install({name for name in sure if "." not in name})
                return await _evaluate(code, file, names, time.monotonic() + self._timeout_s), None
        except BaseException as error:  # also SystemExit: it ends the code, not the worker
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            if isinstance(error, RunTimeout) or (isinstance(error, TimeoutError) and limit.expired()):
                return None, f"TimeoutError: the code was stopped after {self._timeout_s:g} s"
            advice = handler_failures.advice(error)
            return None, _traceback(error) + (f"{advice}\n" if advice else "")

    def _result(self, output: CapturedOutput, value: Any, error: str | None) -> ToolResult[Ran]:
        shown: list[str | Content] = []
        result = None
        try:  # the code of the value's class may fail too
            if isinstance(value, CONTENT):
                shown.append(value)
            elif callable(png := getattr(type(value), "_repr_png_", None)):
                shown.append(Image(bytes(png(value))))
            if value is not None:
                result = truncate(repr(value), self._max_output)
        except Exception as failed:
            error = _traceback(failed)
        ran = Ran(output.text("stdout"), output.text("stderr"), result, error and truncate(error, self._max_output))
        parts = [part for part in (ran.stdout, ran.stderr, None if shown else ran.result, ran.error) if part]
        text = "\n".join(part.rstrip("\n") for part in parts)
        return ToolResult([*([text] if text or not shown else []), *shown], ran, is_error=error is not None)


# -- running ----------------------------------------------------------------------------------------------------------


async def _evaluate(code: str, file: str, names: dict[str, Any], deadline: float) -> Any:
    tree = ast.parse(code, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if tree.body:
        await _execute(tree, "exec", file, names, deadline)
    if isinstance(last, ast.Expr):
        return await _execute(ast.Expression(last.value), "eval", file, names, deadline)
    return None


async def _execute(
    tree: ast.Module | ast.Expression, kind: str, file: str, names: dict[str, Any], deadline: float
) -> Any:
    made = compile(tree, file, kind, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    is_awaited = made.co_flags & inspect.CO_COROUTINE
    with _watched(deadline):
        value = eval(made, names)
    return await _step(value, deadline) if is_awaited else value


@types.coroutine
def _step(work: Coroutine[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
    """Await a coroutine, and watch the time in each step of plain code in it."""
    send: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            with _watched(deadline):
                waits_for = work.send(send) if thrown is None else work.throw(thrown)
        except StopIteration as done:
            return done.value
        send, thrown = None, None
        try:
            send = yield waits_for
        except BaseException as error:
            thrown = error


@contextmanager
def _watched(deadline: float) -> Iterator[None]:
    """Raise RunTimeout inside plain code that runs over its time. Without `sys.monitoring` it has no effect."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None or monitoring.get_tool(monitoring.PROFILER_ID) is not None:
        yield
        return
    seen = 0

    def check_time(code: types.CodeType, *_: object) -> None:
        nonlocal seen
        seen += 1
        if seen % _CHECK_EVERY == 0 and time.monotonic() > deadline:
            seen = -1  # check at every step from now on
            if not any(name in code.co_filename for name in _NEVER_INTERRUPTED):
                raise RunTimeout

    tool_id, events = monitoring.PROFILER_ID, monitoring.events
    monitoring.use_tool_id(tool_id, "tabserver.worker.run_python")
    try:
        for event in (events.JUMP, events.PY_START):
            monitoring.register_callback(tool_id, event, check_time)
        monitoring.set_events(tool_id, events.JUMP | events.PY_START)
        yield
    finally:
        monitoring.set_events(tool_id, 0)
        monitoring.free_tool_id(tool_id)


def truncate(text: str, bound: int) -> str:
    return text[:bound] + left_out(len(text) - bound)


# -- tracebacks -------------------------------------------------------------------------------------------------------


def _cache_source(file: str, code: str) -> None:
    """Store the source in `linecache`, so that tracebacks show its lines."""
    known = [name for name in linecache.cache if name.startswith(_FILE)]
    for name in known[: len(known) - _LINES_KEPT]:
        del linecache.cache[name]
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)


def _traceback(error: BaseException) -> str:
    """The traceback as Python prints it, from the caller's code on. Of endless recursion, only the last frames: to
    print a million frames takes minutes, in which the worker serves no other call."""
    frames = error.__traceback__
    while frames is not None and not frames.tb_frame.f_code.co_filename.startswith(_FILE):
        frames = frames.tb_next
    ahead = frames
    for _ in range(_MOST_FRAMES):
        ahead = ahead and ahead.tb_next
    while frames is not None and ahead is not None:
        frames, ahead = frames.tb_next, ahead.tb_next
    return "".join(traceback.format_exception(type(error), error, frames, limit=-_MOST_FRAMES))
