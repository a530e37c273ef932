"""A common purse for the memory of many links. Not a lock: one loop, one thread."""

from __future__ import annotations


class MemoryBudget:
    """How much all links of a process may keep together. `take` refuses what does not fit; `add` only counts.

    Whoever goes by the rules waits while the budget is spent, and goes over it only by what is on its way already, for
    which there is `slack`. Past `most`, somebody does not go by the rules.
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
        """Count what is there already and can't be refused any more."""
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size
