"""What the worker and its tabs offer, as one list of each kind, with the tabs that each thing can be had from.

Pure: offers in, listing out, the same for tools, resources, templates and prompts. It says who could take a call; the
hub decides, and runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .tabs import Tab

Item = dict[str, Any]

# The kinds of things that can be offered, and the member that tells one of a kind from another.
KINDS: Final = {"tools": "name", "resources": "uri", "templates": "uriTemplate", "prompts": "name"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing as callers see it. `tabs` offer it, best first; nobody there: it is the worker's own."""

    item: Item
    tabs: tuple[Tab, ...] = ()

    @property
    def tab(self) -> Tab | None:
        """Who gets a call that names no tab. None: the worker itself."""
        return self.tabs[0] if self.tabs else None


class Listing:
    """Made anew when anything comes, goes, or is looked at: see `Tab.rank`."""

    def __init__(self, own: Mapping[str, list[Item]], tabs: Iterable[Tab]) -> None:
        best_first = sorted(tabs, key=lambda tab: tab.rank, reverse=True)
        self._entries = {kind: _merge(kind, own[kind], best_first) for kind in KINDS}

    def items(self, kind: str) -> list[Item]:
        """Each once: the worker's in the order they were declared, then the tabs' by name."""
        return [entry.item for entry in self._entries[kind].values()]

    def entries(self, kind: str) -> Iterable[Entry]:
        return self._entries[kind].values()

    def find(self, kind: str, key: str) -> Entry | None:
        """By name, or by URI, as it is listed."""
        return self._entries[kind].get(key)


def _merge(kind: str, own: list[Item], best_first: list[Tab]) -> dict[str, Entry]:
    # The worker's own come first in a clash: they are there whichever tab is open, so a name keeps its meaning.
    entries = {str(item[KINDS[kind]]): Entry(item) for item in own}
    offered: dict[str, list[Tab]] = {}
    for tab in best_first:
        for key in tab.offers[kind]:
            offered.setdefault(key, []).append(tab)
    for key in sorted(offered.keys() - entries.keys()):
        tabs = offered[key]
        entries[key] = Entry(tabs[0].offers[kind][key], tuple(tabs))
    return entries
