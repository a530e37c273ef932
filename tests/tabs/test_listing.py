"""Merged list of what the worker and its tabs offer, with stable names."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabserver.tabs.listing import KINDS, Listing
from tabserver.tabs.offers import Item
from tabserver.tabs.tab import Offer, Tab, fingerprint_of
from tabserver.wire.limits import MAX_ITEM_NAME
from tests.support.fake_port import FakePort

KIND = pytest.mark.parametrize("kind", KINDS)
NAMED = pytest.mark.parametrize("kind", [kind for kind, key in KINDS.items() if key == "name"])


def item(kind: str, key: str, **more: Any) -> Item:
    return {KINDS[kind]: key, **more}


def tab(id: str, kind: str, *items: Item, since: float = 0, visible: bool = True, touched: int = 0) -> Tab:
    made = Tab(FakePort(), id, f"Tab {id}", "", visible, touched, 0)
    for each in items:
        made.offers[kind][each[KINDS[kind]]] = Offer(each, since, fingerprint_of(each))
    return made


def listing(kind: str, own: list[Item], *tabs: Tab) -> Listing:
    return Listing({each: own if each == kind else [] for each in KINDS}, tabs)


def keys(listing: Listing, kind: str) -> list[str]:
    return [each[KINDS[kind]] for each in listing.items(kind)]


def owners(listing: Listing, kind: str, key: str) -> list[str]:
    entry = listing.find(kind, key)
    assert entry is not None
    return [tab.id for tab in entry.tabs]


# -- every kind --------------------------------------------------------------------------------------------------------


@KIND
def test_the_workers_own_come_first_as_declared_and_the_tabs_follow_by_name(kind: str) -> None:
    own = [item(kind, "z"), item(kind, "y")]
    found = listing(kind, own, tab("a", kind, item(kind, "c"), item(kind, "b")))
    assert found.items(kind) == [item(kind, key) for key in "zybc"]


@KIND
def test_what_two_tabs_offer_is_listed_once_and_the_visible_one_is_asked_first(kind: str) -> None:
    shown = tab("a", kind, item(kind, "x"))
    hidden = tab("b", kind, item(kind, "x"), visible=False, touched=9)
    found = listing(kind, [], hidden, shown)
    assert found.items(kind) == [item(kind, "x")]
    assert owners(found, kind, "x") == ["a", "b"]


@KIND
def test_a_page_that_is_being_loaded_again_is_asked_last(kind: str) -> None:
    loading, hidden = tab("a", kind, item(kind, "x")), tab("b", kind, item(kind, "x"), visible=False)
    loading.offers[kind]["x"] = replace(loading.offers[kind]["x"], is_kept=True)
    assert owners(listing(kind, [], loading, hidden), kind, "x") == ["b", "a"]


@KIND
def test_the_worker_keeps_what_a_tab_offers_too(kind: str) -> None:
    mine = item(kind, "x", title="mine")
    entry = listing(kind, [mine], tab("a", kind, item(kind, "x"))).find(kind, "x")
    assert entry is not None and entry.item is mine and not entry.tabs


@KIND
def test_an_item_is_found_in_its_own_kind_only(kind: str) -> None:
    found = listing(kind, [], tab("a", kind, item(kind, "x")))
    assert [each for each in KINDS if found.items(each)] == [kind]
    assert all(found.find(each, "x") is None for each in KINDS if each != kind)


# -- one name with several meanings ------------------------------------------------------------------------------------


@NAMED
def test_different_things_with_one_name_get_a_suffix_and_the_first_keeps_the_plain_name(kind: str) -> None:
    first, second = item(kind, "x", title="first"), item(kind, "x", title="second")
    found = listing(kind, [], tab("b", kind, second, since=2), tab("a", kind, first, since=1))
    plain, suffixed = keys(found, kind)
    assert plain == "x" and suffixed.startswith("x_")
    assert found.items(kind) == [first, second | {"name": suffixed}]
    assert owners(found, kind, "x") == ["a"] and owners(found, kind, suffixed) == ["b"]
    entry = found.find(kind, suffixed)
    assert entry is not None and entry.own_key == "x"


@NAMED
def test_a_suffixed_name_works_on_when_its_tab_has_the_plain_one(kind: str) -> None:
    """A client that has the name from an older list still calls the same tool."""
    first, second = tab("a", kind, item(kind, "x", title="1")), tab("b", kind, item(kind, "x", title="2"), since=2)
    _, suffixed = keys(listing(kind, [], first, second), kind)
    alone = listing(kind, [], second)
    assert keys(alone, kind) == ["x"]
    assert owners(alone, kind, suffixed) == ["b"]


@NAMED
def test_a_tabs_thing_with_a_name_of_the_workers_is_reached_by_its_suffix(kind: str) -> None:
    own, other = item(kind, "x", title="worker"), item(kind, "x", title="tab")
    found = listing(kind, [own], tab("a", kind, other))
    plain, suffixed = keys(found, kind)
    assert (plain, owners(found, kind, plain), owners(found, kind, suffixed)) == ("x", [], ["a"])


@NAMED
def test_what_the_worker_has_exactly_so_is_not_listed_again(kind: str) -> None:
    same = item(kind, "x", title="same")
    assert keys(listing(kind, [same], tab("a", kind, dict(same))), kind) == ["x"]


@NAMED
def test_the_order_of_members_makes_no_difference(kind: str) -> None:
    one, two = {"name": "x", "title": "t"}, {"title": "t", "name": "x"}
    assert keys(listing(kind, [], tab("a", kind, one), tab("b", kind, two)), kind) == ["x"]


@NAMED
def test_a_suffix_makes_way_for_a_thing_that_is_really_called_so(kind: str) -> None:
    first, second = item(kind, "x", title="1"), item(kind, "x", title="2")
    [_, suffixed] = keys(listing(kind, [], tab("a", kind, first), tab("b", kind, second, since=2)), kind)
    squatter = item(kind, suffixed)
    found = listing(kind, [], tab("a", kind, first), tab("b", kind, second, since=2), tab("c", kind, squatter))
    assert len(set(keys(found, kind))) == 3
    assert owners(found, kind, suffixed) == ["c"]


@NAMED
def test_a_long_name_with_a_suffix_is_still_a_name(kind: str) -> None:
    name = "n" * MAX_ITEM_NAME
    tabs = [tab(id, kind, item(kind, name, title=id), since=since) for since, id in enumerate("abc")]
    found = keys(listing(kind, [], *tabs), kind)
    assert len(set(found)) == 3 and all(len(each) <= MAX_ITEM_NAME for each in found)


@pytest.mark.parametrize("kind", ["resources", "templates"])
def test_a_uri_gets_no_suffix_and_the_first_describes_it(kind: str) -> None:
    first, second = item(kind, "note:1", title="first"), item(kind, "note:1", title="second")
    found = listing(kind, [], tab("b", kind, second, since=2), tab("a", kind, first, since=1, visible=False))
    assert found.items(kind) == [first]
    assert owners(found, kind, "note:1") == ["b", "a"]


# -- random tabs in random order ---------------------------------------------------------------------------------------

NAMES = st.sampled_from(["x", "y", "x_y"])
MEANINGS = st.integers(0, 3)
# A tab: what it offers (name -> which of several meanings), and since when.
OFFERED = st.dictionaries(NAMES, st.tuples(MEANINGS, st.integers(0, 5)), max_size=3)
TABS = st.lists(OFFERED, max_size=5)


def make(rows: list[dict[str, tuple[int, int]]]) -> list[Tab]:
    tabs = []
    for number, row in enumerate(rows):
        made = tab(f"t{number}", "tools")
        for name, (meaning, since) in row.items():
            definition = item("tools", name, description=f"meaning {meaning}")
            made.offers["tools"][name] = Offer(definition, since, fingerprint_of(definition))
        tabs.append(made)
    return tabs


def described(found: Listing) -> dict[str, tuple[Any, ...]]:
    return {
        entry.item["name"]: (entry.own_key, entry.item["description"], frozenset(tab.id for tab in entry.tabs))
        for entry in found.entries("tools")
    }


@settings(deadline=None)
@given(TABS, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order_in_which_tabs_come(rows: Any, shuffle: random.Random) -> None:
    tabs = make(rows)
    before = described(listing("tools", [], *tabs))
    shuffle.shuffle(tabs)
    assert described(listing("tools", [], *tabs)) == before


@settings(deadline=None)
@given(TABS)
def test_every_tool_of_every_tab_is_listed_once_under_a_name_of_its_own(rows: Any) -> None:
    tabs = make(rows)
    found = listing("tools", [], *tabs)
    there = {(tab.id, name): offer.item["description"] for tab in tabs for name, offer in tab.offers["tools"].items()}
    listed = [
        ((tab.id, entry.own_key), entry.item["description"]) for entry in found.entries("tools") for tab in entry.tabs
    ]
    assert sorted(listed) == sorted(there.items())
    assert len(found.items("tools")) == len({(name, text) for (_, name), text in there.items()})
    assert {name for tab in tabs for name in tab.offers["tools"]} <= set(keys(found, "tools"))


@settings(deadline=None)
@given(TABS, st.data())
def test_the_list_is_the_same_whichever_tab_is_in_front(rows: Any, data: st.DataObject) -> None:
    tabs = make(rows)
    before = listing("tools", [], *tabs).items("tools")
    for each in tabs:
        each.is_visible, each.touched = data.draw(st.booleans()), data.draw(st.integers(0, 9))
        each.is_frozen = data.draw(st.booleans())
    assert listing("tools", [], *tabs).items("tools") == before


@settings(deadline=None)
@given(TABS, st.data())
def test_a_name_that_was_learnt_never_leads_to_something_else_while_its_tab_is_there(
    rows: Any, data: st.DataObject
) -> None:
    """Other tabs may close and open at any time."""
    tabs = make(rows)
    before = described(listing("tools", [], *tabs))
    left = [each for each in tabs if data.draw(st.booleans())]
    after = listing("tools", [], *left)
    for name, (own_key, text, ids) in before.items():
        entry = after.find("tools", name)
        if any(each.id in ids for each in left) and name != own_key:
            assert entry is not None and entry.item["description"] == text
