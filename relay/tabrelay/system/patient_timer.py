"""Timer for a deadline on what a peer sends or reads, which does not count time in which this process did not run.

After a suspension (a laptop's sleep, SIGSTOP, a stalled machine) all timers are due at once. A process that was stopped
while it handled what it had read runs them before it reads again, and would take a request that came meanwhile for one
that never came. So the callback runs later than the timer is due, by as much as the timer was late, and at least by one
turn of the event loop. Deadlines of calls do not use it: a caller's time does go on while the relay is suspended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Event loops count in milliseconds: a timer of this length is due after sockets were read once.
TURN_S: Final = 0.01


class PatientTimer:
    """Started by the constructor; has what is used of an `asyncio.TimerHandle`."""

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
        """The peer did something: its time begins anew."""
        self._handle.cancel()
        self._start()
