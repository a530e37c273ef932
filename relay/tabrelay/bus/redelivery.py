"""What must not be lost with the bus: kept for a while by whoever says it, said again when the bus is back, and heard
once. Pure.

A bus keeps nothing. What was on its way when it broke, and what was to be said while it was away, reaches nobody; and
nobody can tell which of the two it was. So both are said again, with the number that they had.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

# Of all that is kept: messages, and characters in them. The oldest go first; they have most likely arrived.
MOST: Final = 1024
MOST_SIZE: Final = 8 * 1024 * 1024
# One that is larger would push out all others. It is said, and not kept.
MOST_OF_ONE: Final = 1024 * 1024
# Numbers of one sender that are known to have been heard. More than a sender keeps.
MOST_RECEIVED: Final = 2 * MOST
# Senders of whom that is known, those that are gone among them: whoever was taken for lost may come back, and says
# again what it keeps. More than relays share a bus.
MOST_SENDERS: Final = 1024


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """One message. `nodes`: who has to hear it."""

    nodes: frozenset[str]
    header: dict[str, Any]
    payload: str | None
    until: float

    @property
    def size(self) -> int:
        return len(self.payload or "")


class Redelivery:
    """What one node has said of late, and may have to say again."""

    def __init__(self, keep_s: float) -> None:
        """`keep_s`: after so long nobody waits for it any more."""
        self._keep_s = keep_s
        self._kept: OrderedDict[int, KeptMessage] = OrderedDict()
        self._size = 0
        self._last = 0

    def keep(self, nodes: frozenset[str], header: dict[str, Any], payload: str | None, now: float) -> KeptMessage:
        self._last += 1
        kept = KeptMessage(nodes, {**header, "n": self._last}, payload, now + self._keep_s)
        if kept.size > MOST_OF_ONE:
            return kept
        self._kept[self._last] = kept
        self._size += kept.size
        while self._kept and (len(self._kept) > MOST or self._size > MOST_SIZE or self._oldest.until < now):
            self._size -= self._kept.popitem(last=False)[1].size
        return kept

    @property
    def _oldest(self) -> KeptMessage:
        return next(iter(self._kept.values()))

    def due(self, node: str, now: float) -> list[KeptMessage]:
        """What this node may have missed, in the order in which it was said."""
        return [kept for kept in self._kept.values() if node in kept.nodes and kept.until >= now]

    def __len__(self) -> int:
        return len(self._kept)


class DuplicateFilter:
    """What was heard of each sender, also of one that is gone. Of too many, those silent for longest are forgotten."""

    def __init__(self) -> None:
        self._received: OrderedDict[str, OrderedDict[int, None]] = OrderedDict()

    def is_new(self, sender: str, number: int) -> bool:
        """Is this the first time? From now on it is not."""
        received = self._received.setdefault(sender, OrderedDict())
        self._received.move_to_end(sender)
        if len(self._received) > MOST_SENDERS:
            self._received.popitem(last=False)
        if number in received:
            return False
        received[number] = None
        if len(received) > MOST_RECEIVED:
            received.popitem(last=False)
        return True
