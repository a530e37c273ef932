"""Hub between the MCP core and the tabs: the catalogue that the core reads, and the messages that pages send.

All tabs and the worker share one catalogue; changes that come close together are published once. Ports are a Protocol,
and time and deferral are arguments, so this module knows no browser, no socket and no MCP message. The tabs are held in
`presence`, the running calls in `calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..handlers.context import Cancel
from ..handlers.execute import nothing_to_cancel
from ..handlers.identity import ServerIdentity
from ..handlers.prompts import UnknownPrompt
from ..handlers.resources import ResourceNotFound
from ..handlers.target import Target, with_argument
from ..handlers.toolbox import Toolbox
from ..handlers.tools import UnknownTool
from ..mcp.call import RunningCall
from ..timing import DEFAULTS, Timing
from ..wire.static_tools import STATIC_NAMES, STATIC_TOOLS
from . import requests
from .activity import WORKER
from .approvals import read_approval_rule
from .calls import TabCalls
from .grants import Grants, NoGrants
from .listing import KINDS, ListedItem, Listing
from .liveness import Later
from .presence import Presence
from .requests import RoutedRequest, Texts
from .routing import RoutingError
from .static_tools import call_static
from .tab import Message, PagePort, Tab

# The most tabs that are reported to the relay, which shows them in its status.
MAX_CENSUS_TABS: Final = 64
MAX_ADDRESS: Final = 500  # characters of the address of a tab


class Hub:
    """The tabs and what they offer.

    `defer` runs a function soon, so that several changes are published as one. `later` runs one after milliseconds.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        now_ms: Callable[[], float],
        defer: Callable[[Callable[[], None]], None],
        later: Later,
        on_change: Callable[[list[str]], None] = lambda lists: None,
        on_update: Callable[[str], None] = lambda uri: None,
        on_tabs: Callable[[], None] = lambda: None,
        on_identity: Callable[[ServerIdentity], None] = lambda identity: None,
        grants: Grants | None = None,
        timing: Timing = DEFAULTS,
    ) -> None:
        """`on_change` is called with the lists that changed, `on_update` with the URI of a changed resource, `on_tabs`
        when the census differs, `on_identity` with what the server says of itself when that differs."""
        self._on_change, self._on_update, self._on_tabs = on_change, on_update, on_tabs
        self._grants = NoGrants() if grants is None else grants
        self._presence = presence = Presence(
            now_ms=now_ms, later=later, changed=self.changed, left=lambda tab: self.calls.left(tab), timing=timing
        )
        self.calls = TabCalls(
            presence,
            toolbox,
            lambda: self.listing,
            self.changed,
            now_ms=now_ms,
            later=later,
            timing=timing,
            grants=self._grants,
        )
        self._toolbox = toolbox
        self._defer = defer
        self._has_static_tools = False
        self._is_change_due = False
        self._cached_listing: Listing | None = None
        self._cached_tools: list[dict[str, Any]] | None = None
        self._cached_task_support: dict[str, str] | None = None
        self._published: dict[str, Any] = {"tools": [], "resources": ([], []), "prompts": []}
        self._published_catalogue: dict[str, Any] = {}
        self._published_census: dict[str, Any] = {}
        self._on_identity = on_identity
        self._published_identity = ServerIdentity()
        toolbox.listen(self.changed, self._on_update)

    def use_static_tools(self, has_statics: bool) -> None:
        """Offer the static tools or not, as the relay's welcome says."""
        if has_statics is not self._has_static_tools:
            self._has_static_tools = has_statics
            self.changed()

    def use_approval(self, operator: str) -> None:
        """Apply the relay operator's setting for user approval."""
        if operator != self.calls.approvals.operator:
            self.calls.approvals.operator = operator
            self.changed()

    # -- tabs ---------------------------------------------------------------------------------------------------------

    @property
    def known_tabs(self) -> Mapping[str, Tab]:
        """All tabs, including those whose page is reloading."""
        return self._presence.tabs

    @property
    def tabs(self) -> list[Tab]:
        """The tabs whose page is attached now."""
        return self._presence.present

    def attach(self, port: PagePort, info: Message) -> None:
        """A page attached, attached again, or sent its description again. The same page keeps its tools and calls."""
        self._presence.attach(port, info, read_approval_rule(info.get("approve")))
        port.send({"t": "catalogue", **self.catalogue()})

    def detach(self, port: PagePort, *, returns: bool = False, is_expected: bool = False) -> None:
        """A page went away: its calls fail at once. `returns`: it may be reloading. `is_expected`: it is reloading, or
        navigates to another page of the origin."""
        self._presence.leave(port, returns=returns, is_expected=is_expected)

    def receive(self, port: PagePort, message: Message) -> None:
        """Handle a message of an attached page; messages of other pages are dropped."""
        tab = self._presence.attached.get(port)
        if tab is None:
            return
        kind = message.get("t")
        self.calls.received(tab, message.get("call"), kind == "pong")
        self._presence.received(tab)
        if kind == "tab":
            self._presence.describe(tab, message)
            if tab.is_frozen:
                self.calls.liveness.frozen(tab)
        elif kind == "offer":
            self._presence.offer(tab, message)
        elif kind == "withdraw":
            self._presence.withdraw(tab, message)
        elif kind == "approval":
            self.calls.approvals.receive_decision(tab, message)
        elif kind == "updated":
            self._on_update(str(message["uri"]))
        elif kind == "watch":
            # defence: calls that JavaScript carries out: an audience takes back all grants
            self._presence.watch(tab)
            self._grants.revoke()
        elif kind in ("required", "error", "progress", "log", "ask", "save", "times"):
            self.calls.receive(tab, kind, message)
        self.calls.release_held()

    def receive_result(self, port: PagePort, call: str, json: str, is_plain: bool) -> None:
        """Handle a page's result of a call, as JSON text. `is_plain`: it may be forwarded without parsing."""
        tab = self._presence.attached.get(port)
        if tab is not None:
            if tab.is_busy or not tab.is_awake:
                self._presence.received(tab)
            self.calls.receive_result(tab, call, json, is_plain)

    def broadcast(self, message: Message) -> None:
        for port in list(self._presence.attached):
            port.send(message)

    # -- the catalogue ------------------------------------------------------------------------------------------------

    @property
    def listing(self) -> Listing:
        if self._cached_listing is None:
            box = self._toolbox
            own = {
                "tools": [*(STATIC_TOOLS if self._has_static_tools else ()), *box.tools()],
                "resources": box.resources(),
                "templates": box.templates(),
                "prompts": box.prompts(),
            }
            self._cached_listing = Listing(own, self._presence.tabs.values())
        return self._cached_listing

    def tools(self) -> list[dict[str, Any]]:
        """The same list while nothing changes."""
        if self._cached_tools is None:
            # A client with `tabs_list` can name a tab: add the argument for it to each tool of a tab.
            self._cached_tools = [
                with_argument(entry.item) if entry.tabs and self._has_static_tools else entry.item
                for entry in self.tool_entries()
            ]
        return self._cached_tools

    def task_support(self, name: str) -> str | None:
        """May calls of the tool run as tasks: "optional", "required", or None."""
        known = self._cached_task_support
        if known is None:
            items = ((entry.item["name"], entry.item.get("execution")) for entry in self.tool_entries())
            known = {name: execution["taskSupport"] for name, execution in items if execution}
            self._cached_task_support = known
        return known.get(name)

    def tool_entries(self) -> Iterable[ListedItem]:
        return self.listing.entries("tools")

    def resources(self) -> list[dict[str, Any]]:
        return self.listing.items("resources")

    def templates(self) -> list[dict[str, Any]]:
        return self.listing.items("templates")

    def prompts(self) -> list[dict[str, Any]]:
        return self.listing.items("prompts")

    def catalogue(self) -> dict[str, Any]:
        """The catalogue for pages, with the owner of each item, and how many tabs there are."""
        items = {kind: [_catalogue_entry(entry, kind) for entry in self.listing.entries(kind)] for kind in KINDS}
        return {**items, "tabs": len(self.known_tabs)}

    def changed(self) -> None:
        # defence: calls that JavaScript carries out: a change takes back all grants
        self._cached_listing = None
        self._grants.revoke()
        self._cached_tools = self._cached_task_support = None
        self.calls.changed()
        if not self._is_change_due:
            self._is_change_due = True
            self._defer(self._publish)

    def census(self) -> dict[str, Any]:
        """The status for the relay: the tabs, and how often the user has turned to one of them."""
        tabs = [_census_row(tab) for tab in self.tabs[:MAX_CENSUS_TABS]]
        is_returning = any(tab.port is None and tab.is_expected for tab in self.known_tabs.values())
        report = {"tabs": tabs, "used": self._presence.activations}
        return report | {"returning": True} if is_returning else report

    def identity(self) -> ServerIdentity:
        """What the server says of itself: each field by the tab in front that has it, else by the worker's modules."""
        tabs = sorted(self.known_tabs.values(), key=lambda tab: tab.rank, reverse=True)
        return ServerIdentity.merged([*(tab.identity for tab in tabs), self._toolbox.identity])

    def _publish(self) -> None:
        self._is_change_due = False
        if (census := self.census()) != self._published_census:
            self._published_census = census
            self._on_tabs()
        if (identity := self.identity()) != self._published_identity:
            self._published_identity = identity
            self._on_identity(identity)
        catalogue = self.catalogue()
        if catalogue != self._published_catalogue:
            self._published_catalogue = catalogue
            self.broadcast({"t": "catalogue", **catalogue})
        now = {
            "tools": self.tools(),
            "resources": (self.resources(), self.templates()),
            "prompts": self.prompts(),
        }
        before, self._published = self._published, now
        if changed := [name for name in now if now[name] != before[name]]:
            self._on_change(changed)

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, arguments: dict[str, Any], call: RunningCall, named: Target | None = None) -> Cancel:
        if self._has_static_tools and name in STATIC_NAMES:
            return call_static(self, name, arguments, call)
        routed = requests.call_tool(self.listing, name, arguments, call, named)
        try:
            return self.calls.begin(routed, call, UnknownTool)
        except RoutingError as error:
            call.finish(error.result())
            return nothing_to_cancel

    def has_resource(self, uri: str) -> bool:
        return requests.find_resource(self.listing, uri) is not None

    def read(self, uri: str, call: RunningCall) -> Cancel:
        routed = requests.read_resource(self.listing, self._toolbox, uri, call)
        if routed is None:
            raise ResourceNotFound(uri)
        return self._begin_or_refuse(routed, call, lambda _: ResourceNotFound(uri))

    def get_prompt(self, name: str, arguments: Texts, call: RunningCall) -> Cancel:
        routed = requests.get_prompt(self._toolbox, name, arguments, call)
        return self._begin_or_refuse(routed, call, UnknownPrompt)

    def complete_prompt(self, name: str, argument: str, typed: str, others: Texts, call: RunningCall) -> Cancel:
        return self._complete("prompts", name, argument, typed, others, call, UnknownPrompt)

    def complete_resource(self, uri: str, argument: str, typed: str, others: Texts, call: RunningCall) -> Cancel:
        return self._complete("templates", uri, argument, typed, others, call, ResourceNotFound)

    def _complete(
        self,
        kind: str,
        key: str,
        argument: str,
        typed: str,
        others: Texts,
        call: RunningCall,
        unknown: Callable[[str], Exception],
    ) -> Cancel:
        entry = self.listing.find(kind, key)
        if entry is None:
            raise unknown(key)
        routed = requests.complete(entry, self._toolbox, kind, key, argument, typed, others, call)
        return self._begin_or_refuse(routed, call, unknown)

    def _begin_or_refuse(self, routed: RoutedRequest, call: RunningCall, unknown: Callable[[str], Exception]) -> Cancel:
        try:
            return self.calls.begin(routed, call, unknown)
        except RoutingError as error:
            raise error.refusal() from None


def _census_row(tab: Tab) -> dict[str, Any]:
    row = {"id": tab.id, "title": tab.title[:200], "visible": tab.is_visible}
    # A query or a fragment may hold a secret.
    if (address := tab.url.partition("#")[0].partition("?")[0]) and len(address) <= MAX_ADDRESS:
        row["url"] = address
    return row if tab.is_awake else row | {"awake": False}


def _catalogue_entry(entry: ListedItem, kind: str) -> dict[str, Any]:
    shown = {key: entry.item[key] for key in (KINDS[kind], "name", "title", "description") if entry.item.get(key)}
    tab = entry.tabs[0] if entry.tabs else None
    if tab is None:
        return shown | {"owner": WORKER}
    return shown | {"owner": tab.id, "tab": {"id": tab.id, "title": tab.title, "url": tab.url}}
