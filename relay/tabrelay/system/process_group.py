"""Process groups: a child process and all its descendants, started and stopped as one group.

No group outlives this program, however it ends: `process_guard` handles a kill. Does not read or write the pipes.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from typing import Any, Final

from tabrelay.system.process_guard import ProcessGuard

log = logging.getLogger(__name__)

# Stop in three steps: close stdin, then SIGTERM, then SIGKILL.
EXIT_S: Final = 0.5
TERM_S: Final = 1.0
KILL_S: Final = 0.5
POLL_S: Final = 0.01

_guard: Final = ProcessGuard()


async def start(command: str, *arguments: str, **more: Any) -> asyncio.subprocess.Process:
    """Start a process in a new group. Raises OSError or ValueError. `more`: as for create_subprocess_exec."""
    process = await asyncio.create_subprocess_exec(command, *arguments, start_new_session=True, **more)
    _guard.add(process.pid)
    return process


async def stop(process: asyncio.subprocess.Process, exit_s: float = EXIT_S, term_s: float = TERM_S) -> None:
    """Stop the process and all its descendants. Every wait has a deadline."""
    if process.stdin is not None:
        process.stdin.close()
    if await _wait_for_exit(process, exit_s if process.returncode is None else 0):
        return
    kill(process.pid, signal.SIGTERM)
    if await _wait_for_exit(process, term_s):
        return
    kill(process.pid, signal.SIGKILL)
    if not await _wait_for_exit(process, KILL_S):
        log.warning("Process %d still exists after SIGKILL.", process.pid)


async def _wait_for_exit(process: asyncio.subprocess.Process, timeout_s: float) -> bool:
    """Has the whole group ended within this time?"""
    return await wait_until(lambda: process.returncode is not None and not _is_alive(process.pid), timeout_s)


async def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Polls, because asyncio's wait also waits for the end of the pipes, which a grandchild may keep open."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    while not condition():
        if loop.time() >= until:
            return False
        await asyncio.sleep(POLL_S)
    return True


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user, or a zombie: it exists
    return True


def kill(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def release(process: asyncio.subprocess.Process) -> None:
    _guard.discard(process.pid)
    # A surviving descendant may hold a pipe. Without this the transport stays open, and warns when it is collected.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def describe_exit(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "it closed its output"
    return f"it was ended by {_signal(-code)}" if code < 0 else f"it ended with code {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@atexit.register
def kill_all() -> None:
    """At exit: a second stop signal ends this program at once, without `stop`."""
    for group in _guard.groups:
        kill(group, signal.SIGKILL)
