"""How many names a relay may hold, and which it forgets first. Pure: the names themselves are the registry's.

A name that a browser at another relay has takes no room: that relay holds it, and the atlas bounds how many of those
are followed. Once it is nobody's it counts, as one that can be forgotten.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from tabrelay.routing.entry import ServerEntry


class NameCapacity:
    """Room for `most` names; of these, the `declared` ones are never forgotten."""

    def __init__(self, most: int, declared: Iterable[str]) -> None:
        self._most = most
        self._declared = frozenset(declared)
        self._remote: set[str] = set()

    def set_remote(self, name: str, *, is_remote: bool) -> None:
        """Who has this name now: a browser at another relay, or anybody else or nobody."""
        (self._remote.add if is_remote else self._remote.discard)(name)

    def has_room_for(self, name: str, entries: Mapping[str, ServerEntry]) -> bool:
        """Can this relay hold the name?"""
        is_here = name in entries and name not in self._remote
        return is_here or self._count(entries) < self._most or bool(self._evictable(entries))

    def to_evict(self, entries: Mapping[str, ServerEntry], more: int) -> list[str]:
        """Whoever makes up new names for ever must not fill the memory: these go before `more` come, the longest unseen
        first."""
        over = self._count(entries) + more - self._most
        idle = self._evictable(entries) if over > 0 else []
        return [entry.name for entry in heapq.nsmallest(over, idle, key=lambda entry: entry.last_seen or 0.0)]

    def _count(self, entries: Mapping[str, ServerEntry]) -> int:
        return len(entries) - len(self._remote)

    def _evictable(self, entries: Mapping[str, ServerEntry]) -> list[ServerEntry]:
        return [entry for entry in entries.values() if entry.peer is None and entry.name not in self._declared]
