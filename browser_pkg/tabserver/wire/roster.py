"""The calls that wait for a browser's answer, and what becomes of them when a worker greets with a new session.

The rule is short and must not be broken: a call that was put on a link is asked again of the *same* worker only, whose
ledger knows it. Of another worker it is never asked: nobody can say whether the first one ran it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from .jsonrpc import RequestId

C = TypeVar("C")
Key = tuple[str, RequestId]


class Roster(Generic[C]):
    """Of one server name. It outlives sessions and workers."""

    def __init__(self) -> None:
        self._calls: dict[Key, C] = {}
        self._inst: str | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, key: Key) -> bool:
        return key in self._calls

    def __iter__(self) -> Iterator[C]:
        return iter(self._calls.values())

    def put(self, channel: str, id: RequestId, call: C) -> None:
        self._calls[channel, id] = call

    def get(self, channel: str, id: RequestId) -> C | None:
        return self._calls.get((channel, id))

    def take(self, channel: str, id: RequestId) -> C | None:
        """The call that this answers; None for an answer that nobody waits for."""
        return self._calls.pop((channel, id), None)

    def take_channel(self, channel: str) -> list[C]:
        keys = [key for key in self._calls if key[0] == channel]
        return [self._calls.pop(key) for key in keys]

    def claim(self, inst: str) -> tuple[list[C], list[C]]:
        """A worker begins a session: the calls to ask again of it, and those that are lost."""
        if inst == self._inst:
            return list(self._calls.values()), []
        self._inst = inst
        return [], self.abandon()

    def abandon(self) -> list[C]:
        """Nobody will answer these any more."""
        lost = list(self._calls.values())
        self._calls.clear()
        return lost
