"""Merged list of the tools, resources, templates and prompts of the worker and its tabs, with the tabs of each item.

Equal definitions are one item, whichever tabs offer it. Different definitions with one name get a suffix, which depends
on the definition alone: it is the same in every tab, after a reload, and in any order in which tabs attach. The
definition that was offered first keeps the plain name while a tab offers it. URIs get no suffix. Pure: offers in,
listing out. It does not choose the tab that gets a call; `routing` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..wire.limits import MAX_ITEM_NAME
from .offers import Item
from .tab import Offer, Tab, fingerprint_of

# The kinds of items that can be offered, and the member that identifies an item of each kind.
KINDS: Final = {"tools": "name", "resources": "uri", "templates": "uriTemplate", "prompts": "name"}
SUFFIX_CHARACTERS: Final = 6


@dataclass(frozen=True, slots=True)
class ListedItem:
    """One item as callers see it. `tabs` offer it under `own_key`, best first; without tabs it is the worker's."""

    item: Item
    own_key: str
    tabs: tuple[Tab, ...] = ()


class Listing:
    """Built again when an offer or a tab comes or goes, and when the user turns to another tab: see `Tab.rank`."""

    def __init__(self, own: Mapping[str, list[Item]], tabs: Iterable[Tab]) -> None:
        tabs = list(tabs)
        self._lists = {kind: _List(kind, own[kind], tabs) for kind in KINDS}

    def items(self, kind: str) -> list[Item]:
        """Each item once: those of the worker in the order of declaration, then those of the tabs by name."""
        return [entry.item for entry in self._lists[kind].entries.values()]

    def entries(self, kind: str) -> Iterable[ListedItem]:
        return self._lists[kind].entries.values()

    def find(self, kind: str, key: str) -> ListedItem | None:
        """Find an item by its listed name or URI, or by its suffixed name even while it is listed under the plain
        one."""
        found = self._lists[kind]
        return found.entries.get(key) or found.aliases.get(key)


class _List:
    """The list of one kind."""

    def __init__(self, kind: str, own: list[Item], tabs: list[Tab]) -> None:
        self._kind = kind
        self._key = KINDS[kind]
        self.aliases: dict[str, ListedItem] = {}
        # In a clash the worker's items win: they exist whichever tab is open, so a name keeps its meaning.
        self.entries: dict[str, ListedItem] = {}
        for item in own:
            key = str(item[self._key])
            # Two of the worker's items have one name only if one of them is a static tool, and those come first.
            name = self._suffixed(key, fingerprint_of(item), ()) if key in self.entries else key
            self.entries[name] = ListedItem(item if name == key else item | {self._key: name}, key)
        is_named = self._key == "name"
        groups: dict[str, dict[str, list[tuple[Offer, Tab]]]] = {}
        for tab in tabs:
            for key, offer in tab.offers[kind].items():
                groups.setdefault(key, {}).setdefault(offer.fingerprint if is_named else "", []).append((offer, tab))
        listed = {key: entry for key, variants in groups.items() for key, entry in self._named(key, variants, groups)}
        self.entries |= {key: listed[key] for key in sorted(listed)}

    def _named(
        self, key: str, variants: dict[str, list[tuple[Offer, Tab]]], plain: Iterable[str]
    ) -> Iterator[tuple[str, ListedItem]]:
        """The items that tabs offer under one key, each with a name that identifies it."""
        own = self.entries.get(key)
        is_free = own is None
        for fingerprint, offers in sorted(variants.items(), key=lambda variant: _first_offered(variant[1])):
            entry = self._entry(key, offers)
            suffixed = self._suffixed(key, fingerprint, plain) if fingerprint else key
            if is_free:
                yield key, entry
            elif fingerprint and (own is None or fingerprint != fingerprint_of(own.item)):
                entry = ListedItem(entry.item | {self._key: suffixed}, key, entry.tabs)
                yield suffixed, entry
            is_free = False
            self.aliases[suffixed] = entry

    def _entry(self, key: str, offers: list[tuple[Offer, Tab]]) -> ListedItem:
        first = min(offers, key=lambda pair: (pair[0].since, pair[1].id))[0]
        best_first = sorted(offers, key=lambda pair: (not pair[0].is_kept, pair[1].rank), reverse=True)
        return ListedItem(first.item, key, tuple(tab for _, tab in best_first))

    def _suffixed(self, key: str, fingerprint: str, plain: Iterable[str]) -> str:
        """The key with a suffix; longer where a tool has that name itself, or where two suffixes collide."""
        for length in range(SUFFIX_CHARACTERS, len(fingerprint)):
            name = f"{key[: MAX_ITEM_NAME - length - 1]}_{fingerprint[:length]}"
            if name not in self.entries and name not in plain and name not in self.aliases:
                return name
        raise AssertionError("two definitions have one mark")


def _first_offered(offers: list[tuple[Offer, Tab]]) -> tuple[float, str]:
    return min((offer.since, tab.id) for offer, tab in offers)
