"""Deadline queue: many waits of equal length on one event-loop timer.

Adding and removing cost one dictionary operation instead of a timer. As all waits are equally long, insertion order is
the order of deadlines. Waits of different lengths need different queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Event loops count in milliseconds, and a timer may fire up to one early.
EARLY_S: Final = 0.001


class DeadlineQueue(dict[T, float], Generic[T]):
    """Item -> deadline. `on_due` is called with each item that was added `wait_s` ago and not popped since.

    Itself a dict, because every call is popped from it. With slots, because Python 3.11 reads attributes of a dict that
    has none several times as slowly. For one event loop.
    """

    __slots__ = ("_loop", "_on_due", "_timer", "_wait_s")

    def __init__(self, wait_s: float, on_due: Callable[[T], None]) -> None:
        super().__init__()
        self._wait_s = wait_s
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, thing: T) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        self[thing] = due = loop.time() + self._wait_s
        if self._timer is None:
            self._timer = loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        loop = self._loop
        assert loop is not None
        now = loop.time() + EARLY_S
        due = [thing for thing, _ in takewhile(lambda row: row[1] <= now, self.items())]
        try:
            for thing in due:
                if self.pop(thing, None) is not None:  # a callback may have removed another item
                    self._on_due(thing)
        finally:
            if self and self._timer is None:
                self._timer = loop.call_at(next(iter(self.values())), self._fire)
