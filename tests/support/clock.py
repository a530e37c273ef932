"""A clock that moves only when a test says so, with the timers that hang on it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """Call it for the time; `call_later` stands in for the event loop's."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()

    def __call__(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.now + delay_s, next(self._count), timer))
        return timer

    @property
    def pending(self) -> int:
        """Timers whose time has not come, cancelled ones among them."""
        return len(self._timers)

    async def advance(self, seconds: float) -> None:
        """Let time pass: every timer that falls due runs at its own moment, and the tasks it woke run after it."""
        end = self.now + seconds
        await settle()
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, due)
            if not timer.is_cancelled:
                timer.callback()
                await settle()
        self.now = end


async def settle() -> None:
    """Let every task that can go on do so; nothing here waits for real time."""
    for _ in range(20):
        await asyncio.sleep(0)
