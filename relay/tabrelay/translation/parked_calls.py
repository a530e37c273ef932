"""Table of parked calls: calls that wait for their client's answer to a question, found again by a one-time handle.

A modern client is not asked during a call. The call is answered with the question and a handle, and the client sends
it again with the answer and the handle; the server's call runs on in the meantime. A handle is valid once, for one
principal, for one request and for a limited time, in this process only. Time is an argument: nothing here waits.
"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ParkedSlot(Generic[T]):
    item: T
    principal: str
    digest: str
    until: float


class ParkedCalls(Generic[T]):
    """All parked calls of a relay, with a limit for each principal."""

    def __init__(self, *, ttl_s: float, most: int) -> None:
        """`most`: parked calls of one principal at a time."""
        self.ttl_s = ttl_s
        self._most = most
        self._slots: dict[str, ParkedSlot[T]] = {}
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._slots)

    def has_room(self, principal: str) -> bool:
        return self._taken[principal] < self._most

    def park(self, item: T, principal: str, digest: str, now: float) -> str:
        """Park an item. Returns its handle."""
        handle = secrets.token_urlsafe(24)
        self._slots[handle] = ParkedSlot(item, principal, digest, now + self.ttl_s)
        self._taken[principal] += 1
        return handle

    def take(self, handle: object, principal: str, digest: str, now: float) -> T | None:
        """Remove and return the item of a handle; None if it is not for this principal and request.

        A handle that another principal tries stays valid: its owner must not notice the attempt.
        """
        slot = self._slots.get(handle) if isinstance(handle, str) else None
        if slot is None or slot.principal != principal or slot.digest != digest or now >= slot.until:
            return None
        self.drop(str(handle))
        return slot.item

    def drop(self, handle: str) -> None:
        slot = self._slots.pop(handle, None)
        if slot is not None:
            self._taken[slot.principal] -= 1
            if not self._taken[slot.principal]:
                del self._taken[slot.principal]
