"""Limit of server names, and the eviction order: undeclared names without a peer, least recently seen first. Pure.

A name that a browser at another relay has does not count: that relay holds it, and the locator bounds how many of those
are followed. Without that browser it counts again, and can be evicted. The registry holds the names themselves.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from tabrelay.routing.entry import ServerEntry


class NameCapacity:
    """Room for `most` names. The `declared` ones are never evicted."""

    def __init__(self, most: int, declared: Iterable[str]) -> None:
        self._most = most
        self._declared = set(declared)
        self._remote: set[str] = set()

    def is_declared(self, name: str) -> bool:
        return name in self._declared

    def declare(self, name: str) -> None:
        """The configuration has the name now."""
        self._declared.add(name)

    def undeclare(self, name: str) -> None:
        """The configuration does not have the name any more: it can be evicted."""
        self._declared.discard(name)

    def set_remote(self, name: str, *, is_remote: bool) -> None:
        """Record whether a browser at another relay has the name."""
        (self._remote.add if is_remote else self._remote.discard)(name)

    def has_room_for(self, name: str, entries: Mapping[str, ServerEntry]) -> bool:
        """Can this relay hold the name?"""
        is_here = name in entries and name not in self._remote
        return is_here or self._count(entries) < self._most or bool(self._evictable(entries))

    def to_evict(self, entries: Mapping[str, ServerEntry], more: int) -> list[str]:
        """Names to evict so that `more` fit, least recently seen first. Invented names can't fill the memory."""
        over = self._count(entries) + more - self._most
        idle = self._evictable(entries) if over > 0 else []
        return [entry.name for entry in heapq.nsmallest(over, idle, key=lambda entry: entry.last_seen or 0.0)]

    def _count(self, entries: Mapping[str, ServerEntry]) -> int:
        return len(entries) - len(self._remote)

    def _evictable(self, entries: Mapping[str, ServerEntry]) -> list[ServerEntry]:
        return [entry for entry in entries.values() if entry.peer is None and entry.name not in self._declared]
