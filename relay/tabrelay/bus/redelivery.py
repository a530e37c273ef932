"""Redelivery of messages after a loss of the bus, and duplicate detection by sequence number.

A bus stores nothing: messages in transit when it breaks, and messages sent while it is away, are lost, and the sender
can't tell which were delivered. So the sender keeps recent messages and sends all of them again with their numbers; the
receiver drops duplicates. Pure: time is an argument. Sends nothing itself.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

# Bounds of all kept messages: their number, and their characters. The oldest are dropped first; they have most likely
# arrived.
MOST: Final = 1024
MOST_SIZE: Final = 8 * 1024 * 1024
# A larger message would displace all others. It is sent, and not kept.
MOST_OF_ONE: Final = 1024 * 1024
# Received numbers of one sender. More than a sender keeps.
MOST_RECEIVED: Final = 2 * MOST
# Senders with received numbers, including lost ones: a sender that was declared lost may come back and send its
# messages again. More than there are relays on a bus.
MOST_SENDERS: Final = 1024


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """One message. `nodes`: its receivers."""

    nodes: frozenset[str]
    header: dict[str, Any]
    payload: str | None
    until: float

    @property
    def size(self) -> int:
        return len(self.payload or "")


class Redelivery:
    """Recent messages of this node, which it may have to send again."""

    def __init__(self, keep_s: float) -> None:
        """`keep_s`: how long a message is kept; later no caller waits for it."""
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
        """Messages that this node may have missed, in the order in which they were sent."""
        return [kept for kept in self._kept.values() if node in kept.nodes and kept.until >= now]

    def __len__(self) -> int:
        return len(self._kept)


class DuplicateFilter:
    """Received numbers of each sender, including lost ones. Beyond MOST_SENDERS, the least recent sender is dropped."""

    def __init__(self) -> None:
        self._received: OrderedDict[str, OrderedDict[int, None]] = OrderedDict()

    def is_new(self, sender: str, number: int) -> bool:
        """True the first time that this number of a sender is received."""
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
