"""One list of each kind out of what the worker and its tabs offer."""

from __future__ import annotations

from typing import Any

import pytest

from tabserver.listing import KINDS, Listing
from tabserver.tabs import Tab
from tests.support.port import FakePort

KIND = pytest.mark.parametrize("kind", KINDS)


def item(kind: str, key: str, **more: Any) -> dict[str, Any]:
    return {KINDS[kind]: key, **more}


def tab(id: str, kind: str, *items: dict[str, Any], visible: bool = True, touched: int = 0) -> Tab:
    made = Tab(FakePort(), id, f"Tab {id}", "", visible, touched, 0)
    for offered in items:
        made.offers[kind][offered[KINDS[kind]]] = offered
    return made


def listing(kind: str, own: list[dict[str, Any]], *tabs: Tab) -> Listing:
    return Listing({each: own if each == kind else [] for each in KINDS}, tabs)


@KIND
def test_the_workers_own_come_first_as_declared_and_the_tabs_follow_by_name(kind: str) -> None:
    own = [item(kind, "z"), item(kind, "y")]
    found = listing(kind, own, tab("a", kind, item(kind, "c"), item(kind, "b")))
    assert found.items(kind) == [item(kind, key) for key in "zybc"]


@KIND
def test_what_two_tabs_offer_is_listed_once_and_the_visible_one_is_asked_first(kind: str) -> None:
    shown, hidden = tab("a", kind, item(kind, "x")), tab("b", kind, item(kind, "x"), visible=False, touched=9)
    found = listing(kind, [], hidden, shown)
    assert found.items(kind) == [item(kind, "x")]
    entry = found.find(kind, "x")
    assert entry is not None and entry.tabs == (shown, hidden) and entry.tab is shown


@KIND
def test_the_worker_keeps_what_a_tab_offers_too(kind: str) -> None:
    mine = item(kind, "x", title="mine")
    found = listing(kind, [mine], tab("a", kind, item(kind, "x")))
    entry = found.find(kind, "x")
    assert entry is not None and entry.item is mine and entry.tab is None


@KIND
def test_a_kind_knows_nothing_of_the_others(kind: str) -> None:
    found = listing(kind, [], tab("a", kind, item(kind, "x")))
    assert [each for each in KINDS if found.items(each)] == [kind]
    assert all(found.find(each, "x") is None for each in KINDS if each != kind)
