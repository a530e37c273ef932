"""Many waits of the same length on one timer: a call pays for a place in a row, not for a timer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Event loops count in milliseconds, and a timer may come a part of one early.
EARLY_S: Final = 0.001


class Ticker(Generic[T]):
    """`on_due` is called with what was added `wait_s` ago and not discarded since. Of one event loop."""

    def __init__(self, wait_s: float, on_due: Callable[[T], None]) -> None:
        self._wait_s = wait_s
        self._on_due = on_due
        # As all wait equally long, the order in which they came is the order in which they are due.
        self._waiting: dict[T, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, thing: T) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        due = loop.time() + self._wait_s
        self._waiting[thing] = due
        if self._timer is None:
            self._timer = loop.call_at(due, self._fire)

    def discard(self, thing: T) -> None:
        self._waiting.pop(thing, None)

    def _fire(self) -> None:
        self._timer = None
        loop = self._loop
        assert loop is not None
        now = loop.time() + EARLY_S
        due = [thing for thing, _ in takewhile(lambda row: row[1] <= now, self._waiting.items())]
        try:
            for thing in due:
                if self._waiting.pop(thing, None) is not None:  # one of them may have ended another
                    self._on_due(thing)
        finally:
            if self._waiting and self._timer is None:
                self._timer = loop.call_at(next(iter(self._waiting.values())), self._fire)
