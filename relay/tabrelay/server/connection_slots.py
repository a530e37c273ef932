"""Eviction policy for HTTP connections: which one is closed when a new one arrives and all slots are taken.

Connections whose current request has not been authenticated are closed first, the one that waits longest before the
others: so clients without a token can't keep any other client out, however many slots they hold. Idle connections of
authenticated clients follow, then those of clients that do not read their response. A running call is never closed.
Pure: the connection closes itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class SlottedConnection(Protocol):
    """A connection as this module sees it."""

    @property
    def is_admitted(self) -> bool:
        """Did the current request, or the last one if none is running, come from an authenticated client?"""

    @property
    def is_idle(self) -> bool: ...

    @property
    def idle_since(self) -> float: ...

    @property
    def stalled_until(self) -> float | None:
        """When it will be aborted because its client reads nothing; None if the client reads."""


S = TypeVar("S", bound=SlottedConnection)


class ConnectionSlots(Generic[S]):
    """The connections of one server. The order of `_strangers` is the order in which they are closed."""

    def __init__(self) -> None:
        self._unauthenticated: OrderedDict[S, None] = OrderedDict()

    def enter(self, slot: S) -> None:
        """A request begins; whether it will be authenticated is not known yet."""
        self._unauthenticated[slot] = None
        self._unauthenticated.move_to_end(slot)

    def finish(self, slot: S) -> None:
        """The last response was written; the slot can be freed first."""
        self._unauthenticated[slot] = None
        self._unauthenticated.move_to_end(slot, last=False)

    def leave(self, slot: S) -> None:
        self._unauthenticated.pop(slot, None)

    def victim(self, newcomer: S, others: Iterable[S]) -> S | None:
        """The connection that makes room for `newcomer`, if there is one."""
        while self._unauthenticated:
            oldest = next(iter(self._unauthenticated))
            if oldest is newcomer:
                break
            # defence: connections without a token
            if not oldest.is_admitted:
                return oldest
            # It enters again with its next request, which may come from another client if a proxy sends it.
            # defence: connections of calls that run
            del self._unauthenticated[oldest]
        admitted = [each for each in others if each is not newcomer]
        idle = [each for each in admitted if each.is_idle]
        if idle:
            return min(idle, key=lambda each: each.idle_since)
        stalled = [(until, each) for each in admitted if (until := each.stalled_until) is not None]
        return min(stalled, key=lambda pair: pair[0])[1] if stalled else None
