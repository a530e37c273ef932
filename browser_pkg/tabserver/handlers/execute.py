"""Running a handler, plain or asynchronous: it ends exactly once, with an outcome, whatever it does.

Knows nothing of what is run: that is told by three functions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from .context import Cancel, Done, Outcome

_VALUES: Final = frozenset((str, dict, list, int, float, bool, type(None)))
# asyncio keeps only weak references to tasks; a call must not vanish because nobody else holds it.
_running: Final[set[asyncio.Task[Outcome]]] = set()


def run(
    name: str,
    begin: Callable[[], Any],
    shape: Callable[[Any], Outcome],
    fail: Callable[[BaseException], Outcome],
    done: Done,
) -> Cancel:
    """Call `begin` now. `done` is called exactly once, for a plain function before this returns."""
    try:
        value = begin()
    except (Exception, SystemExit) as error:
        done(fail(error))
        return nothing_to_cancel
    # Asked of everything, `isawaitable` takes longer than most functions.
    if type(value) in _VALUES or not inspect.isawaitable(value):
        done(_shaped(value, shape, fail))
        return nothing_to_cancel
    return _start(name, value, shape, fail, done)


def _shaped(value: Any, shape: Callable[[Any], Outcome], fail: Callable[[BaseException], Outcome]) -> Outcome:
    try:
        return shape(value)
    except Exception as error:  # a value whose own code fails while it is read
        return fail(error)


def _start(
    name: str,
    value: Awaitable[Any],
    shape: Callable[[Any], Outcome],
    fail: Callable[[BaseException], Outcome],
    done: Done,
) -> Cancel:
    """One task for an asynchronous call; cancelling it raises CancelledError inside the function."""

    async def finish() -> Outcome:
        try:
            return _shaped(await value, shape, fail)
        except (Exception, SystemExit) as error:
            return fail(error)

    task = asyncio.get_running_loop().create_task(finish(), name=name)
    _running.add(task)

    def ended(task: asyncio.Task[Outcome]) -> None:
        _running.discard(task)
        if inspect.iscoroutine(value):
            value.close()  # cancelled before its first step, it would complain that nobody awaited it
        done(fail(asyncio.CancelledError("The call was cancelled.")) if task.cancelled() else task.result())

    task.add_done_callback(ended)

    def cancel(reason: str) -> None:
        task.cancel(reason)

    return cancel


def nothing_to_cancel(reason: str) -> None:
    """It has run to its end before anybody could cancel it."""
