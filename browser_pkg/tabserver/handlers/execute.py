"""Execution of a handler, synchronous or asynchronous.

`done` is called exactly once with an outcome, whatever the handler does. What is run, and how its value or exception
becomes an outcome, is given by three functions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from .context import Cancel, Done, Outcome
from .failures import handler_failures

_VALUES: Final = frozenset((str, dict, list, int, float, bool, type(None)))
# asyncio keeps only weak references to tasks; this set keeps a call alive.
_running: Final[set[asyncio.Task[Outcome]]] = set()


def run(
    name: str,
    begin: Callable[[], Any],
    shape: Callable[[Any], Outcome],
    fail: Callable[[BaseException], Outcome],
    done: Done,
) -> Cancel:
    """Call `begin` now. `done` is called exactly once, for a synchronous function before this returns."""
    try:
        value = begin()
    except BaseException as error:  # also SystemExit: it ends the call, not the worker
        handler_failures.report(name, error)
        done(fail(error))
        return nothing_to_cancel
    # `isawaitable` takes longer than most functions, so common types are checked first.
    if type(value) in _VALUES or not inspect.isawaitable(value):
        done(_shaped(name, value, shape, fail))
        return nothing_to_cancel
    return _start(name, value, shape, fail, done)


def _shaped(
    name: str, value: Any, shape: Callable[[Any], Outcome], fail: Callable[[BaseException], Outcome]
) -> Outcome:
    try:
        return shape(value)
    except Exception as error:  # no JSON form, or a value whose own code raises while it is read
        handler_failures.report(name, error)
        return fail(error)


def _start(
    name: str,
    value: Awaitable[Any],
    shape: Callable[[Any], Outcome],
    fail: Callable[[BaseException], Outcome],
    done: Done,
) -> Cancel:
    """Run an asynchronous call as a task; cancelling it raises CancelledError inside the function."""

    async def finish() -> Outcome:
        try:
            return _shaped(name, await value, shape, fail)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            handler_failures.report(name, error)
            return fail(error)

    task = asyncio.get_running_loop().create_task(finish(), name=name)
    _running.add(task)

    def ended(task: asyncio.Task[Outcome]) -> None:
        _running.discard(task)
        if inspect.iscoroutine(value):
            value.close()  # cancelled before its first step: closing it avoids the "never awaited" warning
        done(fail(asyncio.CancelledError("The call was cancelled.")) if task.cancelled() else task.result())

    task.add_done_callback(ended)

    def cancel(reason: str) -> None:
        task.cancel(reason)

    return cancel


def nothing_to_cancel(reason: str) -> None:
    """Used when the handler has ended before it could be cancelled."""
