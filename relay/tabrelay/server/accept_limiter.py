"""Rate limit of WebSocket handshakes: at most 4 per iteration of the event loop.

A handshake costs many times a call, and the loop runs everything that is ready before it polls again: without the
limit, 1,000 browsers that reconnect at once would stall every running call. The caller bounds how many wait
(`max_handshakes`); the next get 503 with Retry-After. Which handshakes are admitted is decided by the gate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

PER_ITERATION: Final = 4  # handshakes


class HandshakeLimiter:
    """One per event loop."""

    _all: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, HandshakeLimiter]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = PER_ITERATION  # handshakes that may start in this iteration

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
        """Start a handshake now or in a later iteration. True if it was started now."""
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
