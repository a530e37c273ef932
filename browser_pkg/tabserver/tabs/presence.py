"""Registry of attached tabs: attach, describe, offer, leave, and return after a reload.

A page that reloads detaches like one that is closed, and attaches again with the same tab id a moment later. So a tab
that left is kept for that moment with its offers, and the catalogue does not change. This module decides nothing about
calls: `left` is called with the tab whose page went away.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from ..handlers.identity import ServerIdentity
from ..timing import Timing
from ..wire.control_messages import MAX_TAB_ID
from ..wire.limits import MAX_TITLE
from .listing import KINDS
from .liveness import Later
from .offers import CHECKS
from .tab import Message, Offer, PagePort, Tab, TabReadState, fingerprint_of

MOST_TABS: Final = 512
MOST_OFFERS: Final = 1024  # of one kind in one tab; the relay forwards no longer list
# Characters of a page's title and URL. Callers and the relay's status show them.
MAX_URL: Final = 2048
# The most closed tabs whose titles are kept for error messages.
MOST_DEPARTED: Final = 64


class Presence:
    """`changed` is called when the listing may differ, `left` with a tab whose page went away (it may still return)."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], float],
        later: Later,
        changed: Callable[[], None],
        left: Callable[[Tab], None],
        timing: Timing,
    ) -> None:
        self.tabs: dict[str, Tab] = {}
        self.departed: dict[str, str] = {}
        # How often the user has turned to one of the tabs: the relay prefers the browser that was used last.
        self.activations = 0
        self._now_ms = now_ms
        self._later = later
        self._changed, self._left, self._timing = changed, left, timing
        self.attached: dict[PagePort, Tab] = {}
        # The pages that want a message about every call. Kept as a list: it is read twice for each call.
        self.watchers: list[PagePort] = []
        self._numbers = itertools.count(1)

    @property
    def present(self) -> list[Tab]:
        """The tabs whose page is attached now."""
        return [tab for tab in self.tabs.values() if tab.port is not None]

    def watch(self, tab: Tab) -> None:
        """Send messages about every call to the tab's page from now on."""
        tab.watches = True
        self._update_watchers()

    def _update_watchers(self) -> None:
        self.watchers = [port for port, tab in self.attached.items() if tab.watches]

    def attach(self, port: PagePort, info: Message, approve: str | frozenset[str]) -> None:
        """A page attached, attached again, or sent its description again. The same page keeps its offers and calls."""
        id = str(info["id"])
        if (flaw := self._why_refused(id)) is not None:
            port.send({"t": "refused", "kind": "tab", "name": id[:MAX_TAB_ID], "message": flaw})
            return
        before = self.attached.get(port)
        if before is not None and before.id != id:
            self.leave(port)
        tab = self.tabs.get(id)
        if tab is None:
            number, is_visible = next(self._numbers), bool(info.get("visible"))
            tab = Tab(port, id, "", "", is_visible, number if is_visible else 0, number)
            self.tabs[id] = tab
        elif tab.port is not None and tab.port is not port:
            # The page had to connect a second time: nothing reads its first port any more, so it must get no calls.
            self.leave(tab.port, returns=True, is_expected=True)
        if tab.port is not port:
            tab.read_state = TabReadState()
        tab.port = port
        tab.is_frozen = tab.is_silent = tab.is_busy = False
        # A page with an older client.js sends no `watches` and gets the messages.
        tab.watches = info.get("watches") is not False
        # Set before the change is published: held calls are released then, and read this rule.
        tab.approve = approve
        try:
            tab.identity = ServerIdentity.read(info.get("about"))
        except ValueError as error:
            port.send({"t": "refused", "kind": "identity", "name": "connect", "message": str(error)})
        self.attached[port] = tab
        self._update_watchers()
        self.departed.pop(id, None)
        self.describe(tab, info)

    def _why_refused(self, id: str) -> str | None:
        """Why a tab with this id can't attach."""
        # defence: the length of a tab's id in the worker
        if len(id) > MAX_TAB_ID:
            return f"A tab's id has at most {MAX_TAB_ID} characters; this one has {len(id):,}."
        if id not in self.tabs and len(self.tabs) >= MOST_TABS:
            return f"This server has {MOST_TABS} tabs in this browser already. Close one, and reload this page."
        return None

    def leave(self, port: PagePort, *, returns: bool = False, is_expected: bool = False) -> None:
        """A page went away. `returns`: it may return in a moment. `is_expected`: the page announced that it does."""
        tab = self.attached.pop(port, None)
        if tab is None:
            return
        self._update_watchers()
        tab.port = None
        tab.leaves += 1
        tab.is_expected = is_expected
        if returns:
            for offers in tab.offers.values():
                offers |= {key: replace(offer, is_kept=True) for key, offer in offers.items()}
            leave, timing = tab.leaves, self._timing
            wait_s = timing.tab_return_s if self.attached else timing.last_tab_return_s
            self._later(wait_s * 1000, lambda: self._return_time_over(tab, leave))
        else:
            self._remove(tab)
        self._left(tab)
        self._changed()

    def _return_time_over(self, tab: Tab, leave: int) -> None:
        """The time for a return is over: a tab or an offer that is not back is removed."""
        if self.tabs.get(tab.id) is not tab or tab.leaves != leave:
            return
        if tab.port is None:
            self._remove(tab)
        for kind, offers in tab.offers.items():
            tab.offers[kind] = {key: offer for key, offer in offers.items() if not offer.is_kept}
        self._changed()

    def _remove(self, tab: Tab) -> None:
        del self.tabs[tab.id]
        self.departed[tab.id] = tab.label
        while len(self.departed) > MOST_DEPARTED:
            del self.departed[next(iter(self.departed))]

    def describe(self, tab: Tab, info: Message) -> None:
        tab.title = str(info.get("title") or "")[:MAX_TITLE]
        tab.url = str(info.get("url") or "")[:MAX_URL]
        is_visible = bool(info.get("visible"))
        if is_visible != tab.is_visible or info.get("focused"):
            tab.touched = next(self._numbers)
        if is_visible and (not tab.is_visible or info.get("focused")):
            self.activations += 1
        tab.is_visible = is_visible
        tab.is_frozen = bool(info.get("frozen"))
        self._changed()

    def received(self, tab: Tab) -> None:
        """The tab sent a message, so it is awake."""
        if not tab.is_awake or tab.is_busy:
            tab.is_frozen = tab.is_silent = tab.is_busy = False
            self._changed()

    def offer(self, tab: Tab, message: Message) -> None:
        """Store the valid items; send the page the reason for each item that is refused."""
        for kind, check in CHECKS.items():
            for given in message.get(kind) or ():
                try:
                    item = check(given)
                except ValueError as error:
                    name = given.get(KINDS[kind]) if isinstance(given, dict) else None
                    tab.send({"t": "refused", "kind": kind, "name": str(name), "message": str(error)})
                else:
                    # defence: bounds: what a page offers
                    if item[KINDS[kind]] not in tab.offers[kind] and len(tab.offers[kind]) >= MOST_OFFERS:
                        text = f"A page offers at most {MOST_OFFERS:,} {kind}."
                        name = str(item[KINDS[kind]])
                        tab.send({"t": "refused", "kind": kind, "name": name, "message": text})
                        break
                    self._store_offer(tab, kind, item, given)
        self._changed()

    def _store_offer(self, tab: Tab, kind: str, item: dict[str, Any], given: Mapping[str, Any]) -> None:
        key = item[KINDS[kind]]
        since = self._now_ms()
        with suppress(KeyError, TypeError, ValueError):
            since = min(since, float(given["since_ms"]))
        if key in tab.offers[kind]:
            since = min(since, tab.offers[kind][key].since)
        tab.offers[kind][key] = Offer(item, since, fingerprint_of(item))

    def withdraw(self, tab: Tab, message: Message) -> None:
        for kind in CHECKS:
            for key in message.get(kind) or ():
                tab.offers[kind].pop(key, None)
        self._changed()
