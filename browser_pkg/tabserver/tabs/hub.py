"""The hub: what the worker and its tabs offer, for the MCP core, and what their pages say.

It is the catalogue that the core asks. Ports come in behind a Protocol, time and deferral as arguments; so nothing here
knows a browser, a socket or MCP's messages. Who is there is kept in `presence`, the calls that run in `traffic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..handlers.context import Cancel, Done, Request
from ..handlers.execute import nothing_to_cancel
from ..handlers.prompts import UnknownPrompt
from ..handlers.resources import ResourceNotFound
from ..handlers.target import Target, with_argument
from ..handlers.toolbox import Toolbox
from ..handlers.tools import Tool, UnknownTool
from ..timing import Timing
from ..wire.static_tools import STATIC_NAMES, STATIC_TOOLS
from . import requests as errands
from .approvals import read_wish
from .calls import TabCalls
from .listing import KINDS, ListedItem, Listing
from .liveness import Later
from .presence import Presence
from .requests import RoutedRequest, Texts
from .routing import Destination, RoutingError
from .run import WORKER
from .static_tools import call_static
from .tab import Message, PagePort, Tab

# Tabs that the relay is told of; it shows them to people.
MOST_TOLD: Final = 64


class Hub:
    """The tabs and their tools.

    `defer` runs a function soon: changes that come together are told as one. `later` runs one after milliseconds.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        now_ms: Callable[[], float],
        defer: Callable[[Callable[[], None]], None],
        later: Later,
        on_change: Callable[[list[str]], None] = lambda lists: None,
    ) -> None:
        self.on_change = on_change
        self.on_update: Callable[[str], None] = lambda uri: None
        self.on_tabs: Callable[[], None] = lambda: None
        # Answers to calls that went by the lane end there.
        self.finish_plain: Callable[[PagePort, str, str, bool], bool] = lambda port, call, json, is_plain: False
        # What was granted to calls like one that was plain holds no longer.
        self.revoke: Callable[[], None] = lambda: None
        self._presence = presence = Presence(now_ms=now_ms, later=later, changed=self.changed)
        self.traffic = TabCalls(presence, lambda: self.listing, self.changed, now_ms=now_ms, later=later)
        presence.left = self.traffic.left
        self._toolbox = toolbox
        self._defer = defer
        self._has_statics = False
        self._is_change_due = False
        self._made: Listing | None = None
        self._told: dict[str, Any] = {"tools": [], "resources": ([], []), "prompts": []}
        self._told_catalogue: dict[str, list[dict[str, Any]]] = {}
        self._told_census: dict[str, Any] = {}
        toolbox.on_change = self.changed
        toolbox.on_update = self._updated

    def use_timing(self, timing: Timing) -> None:
        self._presence.timing = timing
        self.traffic.use_timing(timing)

    def use_statics(self, has_statics: bool) -> None:
        """Does this server have the static tools? The relay says so."""
        if has_statics is not self._has_statics:
            self._has_statics = has_statics
            self.changed()

    def use_approval(self, operator: str) -> None:
        """Which calls must be allowed first, as the relay's operator wants it."""
        if operator != self.traffic.approvals.operator:
            self.traffic.approvals.operator = operator
            self.changed()

    # -- tabs ---------------------------------------------------------------------------------------------------------

    @property
    def known_tabs(self) -> Mapping[str, Tab]:
        """Also those whose page is being loaded again."""
        return self._presence.tabs

    @property
    def tabs(self) -> list[Tab]:
        """The tabs whose page is there now."""
        return self._presence.present

    def attach(self, port: PagePort, info: Message) -> None:
        """A page came, came back, or says again what it is. The same page keeps its tools and its calls."""
        self._presence.attach(port, info, read_wish(info.get("approve")))
        port.send({"t": "catalogue", **self.catalogue()})

    def detach(self, port: PagePort, *, returns: bool = False, is_expected: bool = False) -> None:
        """A page went away: whoever waits for one of its calls is told at once. `returns`: maybe it is reloaded.
        `is_expected`: it is, or leads to another page of the origin."""
        self._presence.leave(port, returns=returns, is_expected=is_expected)

    def receive(self, port: PagePort, message: Message) -> None:
        """A message of an attached page; from any other page it has no meaning and is dropped."""
        tab = self._presence.at(port)
        if tab is None:
            return
        kind = message.get("t")
        self.traffic.heard(tab, message.get("call"), kind == "pong")
        self._presence.heard(tab)
        if kind == "tab":
            self._presence.describe(tab, message)
            if tab.is_frozen:
                self.traffic.froze(tab)
        elif kind == "offer":
            self._presence.offer(tab, message)
        elif kind == "withdraw":
            self._presence.withdraw(tab, message)
        elif kind == "approval":
            self.traffic.approvals.hear(tab, message)
        elif kind == "updated":
            self._updated(str(message["uri"]))
        elif kind == "watch":
            # defence: calls that JavaScript carries out: an audience takes back all grants
            self._presence.watch(tab)
            self.revoke()
        elif kind in ("required", "error", "progress", "log", "ask"):
            self.traffic.hear(tab, kind, message)
        self.traffic.release_held()

    def receive_result(self, port: PagePort, call: str, json: str, is_plain: bool) -> None:
        """A page's answer to a call, as JSON text. `is_plain`: it may be passed on unread."""
        if self.finish_plain(port, call, json, is_plain):
            self.traffic.release_held()
            return
        tab = self._presence.at(port)
        if tab is not None:
            self._presence.heard(tab)
            self.traffic.hear_result(tab, call, json, is_plain)
            self.traffic.heard(tab, call)
            self.traffic.release_held()

    def broadcast(self, message: Message) -> None:
        for port in self._presence.ports:
            port.send(message)

    # -- the catalogue ------------------------------------------------------------------------------------------------

    @property
    def listing(self) -> Listing:
        if self._made is None:
            box = self._toolbox
            own = {
                "tools": [*(STATIC_TOOLS if self._has_statics else ()), *box.tools()],
                "resources": box.resources(),
                "templates": box.templates(),
                "prompts": box.prompts(),
            }
            self._made = Listing(own, self._presence.tabs.values())
        return self._made

    def tools(self) -> list[dict[str, Any]]:
        if not self._has_statics:
            return self.listing.items("tools")
        # Whoever has `tabs_list` can name a tab: say how.
        return [with_argument(entry.item) if entry.tabs else entry.item for entry in self.tool_entries()]

    def tool_entries(self) -> Iterable[ListedItem]:
        return self.listing.entries("tools")

    def resources(self) -> list[dict[str, Any]]:
        return self.listing.items("resources")

    def templates(self) -> list[dict[str, Any]]:
        return self.listing.items("templates")

    def prompts(self) -> list[dict[str, Any]]:
        return self.listing.items("prompts")

    def catalogue(self) -> dict[str, list[dict[str, Any]]]:
        """For the pages: who offers what."""
        return {kind: [_shown(entry, kind) for entry in self.listing.entries(kind)] for kind in KINDS}

    def changed(self) -> None:
        # defence: calls that JavaScript carries out: a change takes back all grants
        self._made = None
        self.revoke()
        self.traffic.release_held()
        if not self._is_change_due:
            self._is_change_due = True
            self._defer(self._publish)

    def census(self) -> dict[str, Any]:
        """For the relay: which tabs there are, and how often the user has turned to one of them."""
        tabs = [{"id": tab.id, "title": tab.title[:200], "visible": tab.is_visible} for tab in self.tabs]
        return {"tabs": tabs[:MOST_TOLD], "used": self._presence.turns}

    def _publish(self) -> None:
        self._is_change_due = False
        if (census := self.census()) != self._told_census:
            self._told_census = census
            self.on_tabs()
        catalogue = self.catalogue()
        if catalogue != self._told_catalogue:
            self._told_catalogue = catalogue
            self.broadcast({"t": "catalogue", **catalogue})
        now = {
            "tools": self.tools(),
            "resources": (self.resources(), self.templates()),
            "prompts": self.prompts(),
        }
        before, self._told = self._told, now
        if changed := [name for name in now if now[name] != before[name]]:
            self.on_change(changed)

    def _updated(self, uri: str) -> None:
        self.on_update(uri)

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(
        self, name: str, arguments: dict[str, Any], request: Request, done: Done, named: Target | None = None
    ) -> Cancel:
        if self.traffic.adopted is not None:
            return self.traffic.take_over(self.traffic.adopted, request, done)
        if self._has_statics and name in STATIC_NAMES:
            return call_static(self, name, arguments, request, done)
        errand = errands.call_tool(self.listing, self._toolbox, name, arguments, request, named)
        try:
            return self.traffic.begin(errand, request, done, UnknownTool)
        except RoutingError as error:
            done(error.result())
            return nothing_to_cancel

    def find_plain(self, name: str) -> Destination | Tool | None:
        """A tab's tool or the worker's own, for a call that says no more than a name and arguments.

        None where anybody must be asked or anything waited for. It holds until the listing is another one.
        """
        place = None if self._has_statics and name in STATIC_NAMES else self.traffic.find_plain(name)
        return self._toolbox.find_plain(place.key) if place is not None and place.tab is None else place

    def has_resource(self, uri: str) -> bool:
        return errands.find_resource(self.listing, uri) is not None

    def read(self, uri: str, request: Request, done: Done) -> Cancel:
        errand = errands.read_resource(self.listing, self._toolbox, uri, request)
        if errand is None:
            raise ResourceNotFound(uri)
        return self._begin_or_refuse(errand, request, done, lambda _: ResourceNotFound(uri))

    def get_prompt(self, name: str, arguments: Texts, request: Request, done: Done) -> Cancel:
        errand = errands.get_prompt(self._toolbox, name, arguments, request)
        return self._begin_or_refuse(errand, request, done, UnknownPrompt)

    def complete_prompt(
        self, name: str, argument: str, typed: str, others: Texts, request: Request, done: Done
    ) -> Cancel:
        return self._complete("prompts", name, argument, typed, others, request, done, UnknownPrompt)

    def complete_resource(
        self, uri: str, argument: str, typed: str, others: Texts, request: Request, done: Done
    ) -> Cancel:
        return self._complete("templates", uri, argument, typed, others, request, done, ResourceNotFound)

    def _complete(
        self,
        kind: str,
        key: str,
        argument: str,
        typed: str,
        others: Texts,
        request: Request,
        done: Done,
        unknown: Callable[[str], Exception],
    ) -> Cancel:
        entry = self.listing.find(kind, key)
        if entry is None:
            raise unknown(key)
        errand = errands.complete(entry, self._toolbox, kind, key, argument, typed, others, request)
        return self._begin_or_refuse(errand, request, done, unknown)

    def _begin_or_refuse(
        self, errand: RoutedRequest, request: Request, done: Done, unknown: Callable[[str], Exception]
    ) -> Cancel:
        try:
            return self.traffic.begin(errand, request, done, unknown)
        except RoutingError as error:
            raise error.refusal() from None


def _shown(entry: ListedItem, kind: str) -> dict[str, Any]:
    shown = {key: entry.item[key] for key in (KINDS[kind], "name", "title", "description") if entry.item.get(key)}
    tab = entry.tabs[0] if entry.tabs else None
    if tab is None:
        return shown | {"owner": WORKER}
    return shown | {"owner": tab.id, "tab": {"id": tab.id, "title": tab.title, "url": tab.url}}
