"""Memory budget shared by all links of a process, in bytes.

`reserve` refuses what does not fit, `add` only counts. It is not a lock: one event loop in one thread uses it.
"""

from __future__ import annotations


class MemoryBudget:
    """L4: how much all links of a process may keep together.

    A peer that obeys the protocol pauses while the budget is exhausted. It exceeds `limit` only by frames that are
    already on their way, for which there is `slack`. Above `hard_limit`, a peer violates the protocol.
    """

    __slots__ = ("limit", "slack", "used")

    def __init__(self, limit: int, slack: int | None = None) -> None:
        self.limit = limit
        self.slack = limit // 2 if slack is None else slack
        self.used = 0

    @property
    def hard_limit(self) -> int:
        return self.limit + self.slack

    @property
    def is_exhausted(self) -> bool:
        return self.used >= self.limit

    def reserve(self, size: int) -> bool:
        if self.used + size > self.limit:
            return False
        self.used += size
        return True

    def add(self, size: int) -> None:
        """Count memory that is already in use and can't be refused any more."""
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size
