"""The calls that wait for a browser's answer, and what becomes of them when a worker greets with a new session.

The rule is short and must not be broken: a call that was put on a link is asked again of the *same* worker only, whose
ledger knows it. Of another worker it is never asked: nobody can say whether the first one ran it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from .jsonrpc import RequestId

C = TypeVar("C")
Key = tuple[str, RequestId]


class PendingCalls(dict[Key, C], Generic[C]):
    """Of one server name: calls by channel and id. It outlives sessions and workers. A dict itself, as every call is
    put into it and taken out of it."""

    _inst: str | None = None

    def take_channel(self, channel: str) -> list[C]:
        return [self.pop(key) for key in list(self) if key[0] == channel]

    def claim(self, inst: str) -> tuple[list[C], list[C]]:
        """A worker begins a session: the calls to ask again of it, and those that are lost."""
        if inst == self._inst:
            return list(self.values()), []
        self._inst = inst
        return [], self.abandon()

    def abandon(self) -> list[C]:
        """Nobody will answer these any more."""
        lost = list(self.values())
        self.clear()
        return lost
