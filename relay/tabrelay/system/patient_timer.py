"""Suspend-tolerant timer for deadlines on a peer's I/O: time in which this process did not run does not count.

After a suspension (a laptop's sleep, SIGSTOP, a stalled machine) all timers are due at once. A process that was stopped
while it handled input runs them before it reads again, and would treat a request that arrived meanwhile as missing. So
the callback runs later than the timer is due, by as much as the timer was late, and at least by one iteration of the
event loop. Not for deadlines of calls: a caller's time continues while the relay is suspended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Event loops have a resolution of milliseconds: a timer of this length is due after sockets were read once.
TURN_S: Final = 0.01


class PatientTimer:
    """Started by the constructor. Has the methods of `asyncio.TimerHandle` that are used."""

    __slots__ = ("_callback", "_due", "_handle", "_loop", "_wait_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, wait_s: float, callback: Callable[[], None]) -> None:
        self._loop, self._wait_s, self._callback = loop, wait_s, callback
        self._start()

    def _start(self) -> None:
        self._due = self._loop.time() + self._wait_s
        self._handle = self._loop.call_later(self._wait_s, self._fire)

    def _fire(self) -> None:
        late_s = self._loop.time() - self._due
        # L15: a deadline on bytes of a peer counts only the time in which this process runs.
        # defence: deadlines of a process that was suspended
        self._handle = self._loop.call_later(max(TURN_S, min(late_s, self._wait_s)), self._callback)

    def when(self) -> float:
        return self._due

    def cancel(self) -> None:
        self._handle.cancel()

    def restart(self) -> None:
        """The peer made progress: start the full time again."""
        self._handle.cancel()
        self._start()
