"""Many waits of the same length on one timer: a call pays for a place in a row, not for a timer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Event loops count in milliseconds, and a timer may come a part of one early.
EARLY_S: Final = 0.001


class DeadlineQueue(dict[T, float], Generic[T]):
    """`on_due` is called with what was added `wait_s` ago and not popped since. Of one event loop.

    A dict itself, as every call is taken out of it: when each is due. As all wait equally long, the order in which they
    came is the order in which they are due.
    """

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
                if self.pop(thing, None) is not None:  # one of them may have ended another
                    self._on_due(thing)
        finally:
            if self and self._timer is None:
                self._timer = loop.call_at(next(iter(self.values())), self._fire)
