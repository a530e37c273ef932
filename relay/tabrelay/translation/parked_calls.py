"""Where calls wait that asked their client something: a handle for each, good once, for one principal, for a while.

A modern client is not asked in the middle of a call: the call is answered with the question and a handle, and asked
again with the answer and the handle. Meanwhile the server's own call is still under way, and it stands here. Handles
live in this process only. Time is an argument, so nothing in here waits.
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
    """All parked calls of a relay."""

    def __init__(self, *, ttl_s: float, most: int) -> None:
        """`most`: how many calls of one principal may stand here at a time."""
        self.ttl_s = ttl_s
        self._most = most
        self._slots: dict[str, ParkedSlot[T]] = {}
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._slots)

    def has_room(self, principal: str) -> bool:
        return self._taken[principal] < self._most

    def park(self, item: T, principal: str, digest: str, now: float) -> str:
        """The handle under which it waits."""
        handle = secrets.token_urlsafe(24)
        self._slots[handle] = ParkedSlot(item, principal, digest, now + self.ttl_s)
        self._taken[principal] += 1
        return handle

    def take(self, handle: object, principal: str, digest: str, now: float) -> T | None:
        """What waits under the handle, which is used up by this; None if it is not for this principal and request.

        A handle in the wrong hands is not used up: its owner must not notice that somebody tried.
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
