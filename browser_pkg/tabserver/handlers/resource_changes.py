"""Waiters for the next change of a resource: a call of an app's page ends when the state that it shows differs.

The number of waiters is bounded; one too many is answered at once, and its page asks again a moment later. It compares
no contents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MOST_WAITERS: Final = 256


class ResourceChanges:
    """The waiters of one toolbox, by URI."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._count = 0

    def notify(self, uri: str) -> None:
        for waiter in self._waiting.get(uri, ()):
            if not waiter.done():
                waiter.set_result(None)

    @contextmanager
    def next(self, uri: str) -> Iterator[asyncio.Future[None]]:
        """A future that is done with the next change, or at once when too many wait."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._count >= MOST_WAITERS:
            waiter.set_result(None)
        waiters = self._waiting.setdefault(uri, set())
        waiters.add(waiter)
        self._count += 1
        try:
            yield waiter
        finally:
            self._count -= 1
            waiters.discard(waiter)
            if not waiters:
                self._waiting.pop(uri, None)
