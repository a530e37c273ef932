"""Calls that wait for a browser's response, and what happens to them when a worker starts a new session.

Invariant (L6): a call that was sent on a link is sent again to the *same* worker only, whose request history contains
it. It is never sent to another worker, because the first one may have run it. Deadlines of calls are not here.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from .jsonrpc import RequestId

C = TypeVar("C")
Key = tuple[str, RequestId]


class PendingCalls(dict[Key, C], Generic[C]):
    """The calls of one server name, by channel and id. The object outlives sessions and workers. It is a dict, because
    each call is added and removed once."""

    _inst: str | None = None

    def take_channel(self, channel: str) -> list[C]:
        return [self.pop(key) for key in list(self) if key[0] == channel]

    def claim(self, inst: str) -> tuple[list[C], list[C]]:
        """A worker starts a session. Returns the calls to send to it again, and those that are lost."""
        # L6: only the same instance is asked again.
        if inst == self._inst:
            return list(self.values()), []
        self._inst = inst
        return [], self.abandon()

    def abandon(self) -> list[C]:
        """Remove and return all calls: no worker will respond to them."""
        lost = list(self.values())
        self.clear()
        return lost
