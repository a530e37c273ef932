"""Browsers that knock all at once are let in a few at a time, so that whoever is inside is heard in between.

To let one in takes many times what a call does, and the event loop does everything that is ready before it looks again:
a thousand browsers that come in one moment would keep everybody waiting until the last of them is in. Only so many
wait; the next is told to come back. Who may come in is not decided here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

PER_ITERATION: Final = 4  # in one turn of the event loop


class HandshakeLimiter:
    """One per event loop."""

    _all: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, HandshakeLimiter]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = PER_ITERATION  # of those that may come in during this turn

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> HandshakeLimiter:
        found = cls._all.get(loop)
        if found is None:
            found = cls._all[loop] = cls(loop)
        return found

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def admit(self, start: Callable[[], None]) -> bool:
        """Now, or when it is its turn; says whether it was now."""
        if self._left == PER_ITERATION:
            self._call_soon(self._next_iteration)
        # defence: browsers that come all at once
        if not self._left:
            self._waiting.append(start)
            return False
        self._left -= 1
        start()
        return True

    def _next_iteration(self) -> None:
        self._left = PER_ITERATION
        if not self._waiting:
            return
        self._call_soon(self._next_iteration)
        while self._waiting and self._left:
            self._left -= 1
            self._waiting.popleft()()
