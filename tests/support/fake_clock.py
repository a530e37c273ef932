"""A clock that moves only when a test advances it, with its timers."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable
from typing import Final


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
        """Timers that are not due yet, cancelled ones included."""
        return len(self._timers)

    async def advance(self, seconds: float) -> None:
        """Advance the clock: each timer runs at its time, then the tasks that it has woken."""
        end = self.now + seconds
        await settle()
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, due)
            if not timer.is_cancelled:
                timer.callback()
                await settle()
        self.now = end

    async def jump(self, seconds: float, chance: random.Random | None = None) -> None:
        """The process is suspended for this long, as when the computer sleeps. Every timer that is due is then late,
        and all fire at once: in the order of their times, or in any order. No task runs between them."""
        await settle()
        self.now += seconds
        due = [timer for at, _, timer in sorted(self._timers, key=lambda row: row[:2]) if at <= self.now]
        self._timers = [row for row in self._timers if row[0] > self.now]
        heapq.heapify(self._timers)
        if chance is not None:
            chance.shuffle(due)
        for timer in due:
            if not timer.is_cancelled:
                timer.callback()
        await settle()


JUMPS_S: Final = (0.1, 1.0, 5.0, 31.0, 52.0, 600.0, 86_400.0)


class WallClock:
    """The time of day, which users and computers set: it jumps forwards and backwards."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    """Let every task run until it waits. No real time passes."""
    for _ in range(20):
        await asyncio.sleep(0)
