"""The hub: what the worker and its tabs offer, for the MCP core, and the calls that run in them.

It is the catalogue that the core asks. Ports come in behind a Protocol, time and deferral as arguments; so nothing here
knows a browser, a socket or MCP's messages. Who is there is kept in `presence`, who gets a call is decided in `places`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from . import errands
from .approvals import Approvals, Asked, read_wish
from .context import Cancel, Done, Request
from .errands import Errand, Texts
from .listing import KINDS, Entry, Listing
from .places import Astray, Place, asleep, fell_silent, find_place, left, stayed_away, went
from .presence import Presence
from .prompts import UnknownPrompt
from .pulse import Later, Pulse
from .resources import ResourceNotFound
from .running import nothing_to_cancel
from .runs import WORKER, Run
from .statics import call_static
from .tabs import Message, Port, Tab, mark_of
from .targets import Target, with_argument
from .timing import Timing
from .toolbox import Toolbox
from .tools import UnknownTool, text_result
from .wire.eras import Era
from .wire.statics import STATIC_NAMES, STATIC_TOOLS

# Tabs that the relay is told of; it shows them to people.
MOST_TOLD: Final = 64
RELOADING_MS: Final = 200.0


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
        self.now_ms = now_ms
        self.on_change = on_change
        self.on_update: Callable[[str], None] = lambda uri: None
        self.on_tabs: Callable[[], None] = lambda: None
        self._pulse: Pulse[Tab] = Pulse(now_ms=now_ms, later=later, ask=_ask, lost=self._silent)
        self._presence = Presence(now_ms=now_ms, later=later, changed=self.changed, left=self._left)
        self._approvals = Approvals(later)
        self._later = later
        self._toolbox = toolbox
        self._defer, self._later = defer, later
        self._running: dict[str, Run] = {}
        # Calls for tabs whose page is being loaded again: nothing was sent, so they may still go elsewhere.
        self._held: dict[str, Errand] = {}
        self._numbers = itertools.count(1)
        self._has_statics = False
        self._is_change_due = False
        self._made: Listing | None = None
        self._told: dict[str, Any] = {"tools": [], "resources": ([], []), "prompts": []}
        self._told_catalogue: dict[str, list[dict[str, Any]]] = {}
        self._told_census: dict[str, Any] = {}
        toolbox.on_change = self.changed
        toolbox.on_update = self._updated

    def use_timing(self, timing: Timing) -> None:
        self._pulse.timing = self._presence.timing = self._approvals.timing = timing

    def use_statics(self, has_statics: bool) -> None:
        """Does this server have the static tools? The relay says so."""
        if has_statics is not self._has_statics:
            self._has_statics = has_statics
            self.changed()

    def use_approval(self, operator: str) -> None:
        """Which calls must be allowed first, as the relay's operator wants it."""
        self._approvals.operator = operator

    # -- tabs ---------------------------------------------------------------------------------------------------------

    @property
    def known_tabs(self) -> Mapping[str, Tab]:
        """Also those whose page is being loaded again."""
        return self._presence.tabs

    @property
    def tabs(self) -> list[Tab]:
        """The tabs whose page is there now."""
        return [tab for tab in self._presence.tabs.values() if tab.port is not None]

    def attach(self, port: Port, info: Message) -> None:
        """A page came, came back, or says again what it is. The same page keeps its tools and its calls."""
        self._presence.attach(port, info)
        tab = self._presence.at(port)
        if tab is not None:
            tab.approve = read_wish(info.get("approve"))
        port.send({"t": "catalogue", **self.catalogue()})

    def detach(self, port: Port, *, returns: bool = False, is_expected: bool = False) -> None:
        """A page went away: whoever waits for one of its calls is told at once. `returns`: maybe it is reloaded.
        `is_expected`: it is, or leads to another page of the origin."""
        self._presence.leave(port, returns=returns, is_expected=is_expected)

    def receive(self, port: Port, message: Message, body: str | None = None) -> None:
        """A message of an attached page; from any other page it has no meaning and is dropped."""
        tab = self._presence.at(port)
        if tab is None:
            return
        self._pulse.heard(tab)
        self._presence.heard(tab)
        kind = message.get("t")
        if kind == "tab":
            self._presence.describe(tab, message)
            if tab.is_frozen:
                self._pulse.froze(tab)
        elif kind == "offer":
            self._presence.offer(tab, message)
        elif kind == "withdraw":
            self._presence.withdraw(tab, message)
        elif kind == "approval":
            self._approvals.hear(tab, message)
        elif kind == "updated":
            self._updated(str(message["uri"]))
        elif kind in ("result", "required", "error", "progress", "log", "ask"):
            run = self._running.get(message["call"])
            # A tab may answer its own calls only; a late answer to a call that is over has no reader.
            if run is not None and run.tab is tab:
                run.hear(kind, message, body)

    def _silent(self, tab: Tab) -> None:
        """It keeps its tools, for when it wakes up; until then another tab that offers the same comes first."""
        tab.is_silent = True
        for run in self._fail_calls(tab, fell_silent):
            tab.send({"t": "cancel", "call": run.call, "reason": "The tab did not answer in time"})
        self.changed()

    def _left(self, tab: Tab) -> None:
        self._approvals.left(tab)
        self._fail_calls(tab, went)

    def _fail_calls(self, tab: Tab, why: Callable[[Tab, str], Astray]) -> list[Run]:
        """Tell whoever waits for this tab, and only those, what became of it."""
        failed = [run for run in self._running.values() if run.tab is tab and run.call not in self._held]
        for run in failed:
            run.fail(why(tab, run.name))
        return failed

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

    def tool_entries(self) -> Iterable[Entry]:
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
        self._made = None
        if self._held:
            self._release_held()
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
        if self._has_statics and name in STATIC_NAMES:
            return call_static(self, name, arguments, request, done)
        errand = errands.call_tool(self.listing, self._toolbox, name, arguments, request, named)
        try:
            return self._begin(errand, request, done, UnknownTool(name))
        except Astray as error:
            done(error.result())
            return nothing_to_cancel

    def has_resource(self, uri: str) -> bool:
        return errands.find_resource(self.listing, uri) is not None

    def read(self, uri: str, request: Request, done: Done) -> Cancel:
        errand = errands.read_resource(self.listing, self._toolbox, uri, request)
        if errand is None:
            raise ResourceNotFound(uri)
        return self._begin_or_refuse(errand, request, done, ResourceNotFound(uri))

    def get_prompt(self, name: str, arguments: Texts, request: Request, done: Done) -> Cancel:
        errand = errands.get_prompt(self._toolbox, name, arguments, request)
        return self._begin_or_refuse(errand, request, done, UnknownPrompt(name))

    def complete_prompt(
        self, name: str, argument: str, typed: str, others: Texts, request: Request, done: Done
    ) -> Cancel:
        return self._complete("prompts", name, argument, typed, others, request, done, UnknownPrompt(name))

    def complete_resource(
        self, uri: str, argument: str, typed: str, others: Texts, request: Request, done: Done
    ) -> Cancel:
        return self._complete("templates", uri, argument, typed, others, request, done, ResourceNotFound(uri))

    def _complete(
        self,
        kind: str,
        key: str,
        argument: str,
        typed: str,
        others: Texts,
        request: Request,
        done: Done,
        unknown: Exception,
    ) -> Cancel:
        entry = self.listing.find(kind, key)
        if entry is None:
            raise unknown
        errand = errands.complete(entry, self._toolbox, kind, key, argument, typed, others, request)
        return self._begin_or_refuse(errand, request, done, unknown)

    def _begin_or_refuse(self, errand: Errand, request: Request, done: Done, unknown: Exception) -> Cancel:
        try:
            return self._begin(errand, request, done, unknown)
        except Astray as error:
            raise error.refusal() from None

    def _begin(self, errand: Errand, request: Request, done: Done, unknown: Exception) -> Cancel:
        """Start a call where what it wants lives. Raises `unknown`, Astray, and what the worker's own raises."""
        place = self._place(errand)
        if place is None:
            raise unknown
        if place.tab is not None and errand.target is not None and errand.target.pins:
            request.pin(place.tab.id)
        run = Run(self, str(next(self._numbers)), errand.purpose, errand.key, place.tab, request, done)
        asked = self._question(errand, place, request)
        if asked is not None and self._approvals.is_needed(asked, self.tabs):
            return self._ask_first(run, errand, asked, request, done)
        return self._run_at(run, errand, place)

    def _run_at(self, run: Run, errand: Errand, place: Place) -> Cancel:
        return self._run_own(run, errand) if place.tab is None else self._start(run, errand, place)

    def _question(self, errand: Errand, place: Place, request: Request) -> Asked | None:
        """What somebody would have to allow; None for what is no tool, and for a call that goes on.

        A call that asked its client something comes again with the state that this worker sealed or, in a session, with
        the answers that the worker itself asked for: it was allowed before.
        """
        is_again = request.request_state is not None or (request.caller.era is Era.LEGACY and request.input_responses)
        entry = self.listing.find("tools", errand.key)
        if errand.purpose != "tools" or entry is None or is_again:
            return None
        offer = place.tab.offers["tools"].get(place.key) if place.tab is not None else None
        item = offer.item if offer is not None else entry.item
        mark = offer.mark if offer is not None else mark_of(item)
        return Asked(place.key, item, mark, place.tab, request.caller, errand.arguments)

    def _ask_first(self, run: Run, errand: Errand, asked: Asked, request: Request, done: Done) -> Cancel:
        """The call waits until somebody has allowed it."""
        begun: list[Cancel] = []
        is_cancelled = False

        def go() -> None:
            try:
                place = self._place(errand)
                if place is None or place.tab is not asked.owner:
                    raise _changed_meanwhile(errand.key)
                begun.append(self._run_at(run, errand, place))
            except Astray as error:
                run.fail(error)
            except Exception as error:  # it is too late to raise: whoever called has long been told to wait
                done(text_result(str(error), is_error=True))

        def ask() -> None:
            tab = asked.owner or max(self.tabs, key=lambda tab: tab.rank, default=None)
            if is_cancelled:
                return
            if tab is not None and tab.port is None and self._presence.tabs.get(tab.id) is tab:
                self._later(RELOADING_MS, ask)  # its page is being loaded again
            elif tab is not None and not tab.is_awake:
                run.fail(asleep(tab, errand.key))
            else:
                self._approvals.ask(run.call, asked, tab, go, run.fail)

        def cancel(reason: str) -> None:
            nonlocal is_cancelled
            is_cancelled = True
            if begun:
                begun[0](reason)
            else:
                self._approvals.drop(run.call)
                run.abandon("cancelled")

        request.progress(0, None, f'Waiting until the user allows "{errand.key}" in the page')
        ask()
        return cancel

    def _place(self, errand: Errand) -> Place | None:
        presence = self._presence
        return find_place(self.listing, presence.tabs, presence.departed, errand.kind, errand.key, errand.target)

    def _start(self, run: Run, errand: Errand, place: Place) -> Cancel:
        """Send a call to its tab, or keep it for a moment if the tab is being loaded again."""
        self._running[run.call] = run
        self._send(run, errand, place)

        def cancel(reason: str) -> None:
            if run.call in self._running:
                if run.call not in self._held and run.tab is not None:
                    run.tab.send({"t": "cancel", "call": run.call, "reason": reason})
                run.abandon("cancelled")

        return cancel

    def _send(self, run: Run, errand: Errand, place: Place) -> None:
        tab = run.tab = place.tab
        assert tab is not None
        if not place.is_ready:
            self._held[run.call] = errand
            if not tab.is_expected:
                self._later(self._presence.timing.tab_doubt_s * 1000, lambda: self._doubt(run.call))
        elif not tab.is_awake:
            run.fail(asleep(tab, errand.key))
        else:
            self._pulse.watch(tab)
            tab.send({"t": "call", **errand.message(place.key), **run.header()})

    def _doubt(self, call: str) -> None:
        """A tab that was left without a word is not back: whoever calls it need not wait for what may never come."""
        errand, run = self._held.get(call), self._running.get(call)
        if errand is not None and run is not None and run.tab is not None and run.tab.port is None:
            run.fail(left(run.tab, errand.key))

    def _release_held(self) -> None:
        """Something changed: calls that waited for a tab go to it, to another that has the same, or fail."""
        for call, errand in list(self._held.items()):
            run = self._running[call]
            try:
                place = self._place(errand)
            except Astray as error:
                run.fail(error)
                continue
            if place is None or place.tab is None:
                assert run.tab is not None
                run.fail(stayed_away(run.tab, errand.key))
            elif place.is_ready:
                del self._held[call]
                self._send(run, errand, place)

    def _run_own(self, run: Run, errand: Errand) -> Cancel:
        try:
            stop = errand.own(run, run.finish)
        except Exception as error:
            run.abandon("failed", error=str(error))
            raise

        def cancel(reason: str) -> None:
            run.abandon("cancelled")
            stop(reason)

        return cancel

    def forget(self, run: Run) -> None:
        self._running.pop(run.call, None)
        self._held.pop(run.call, None)
        if run.tab is not None and not any(other.tab is run.tab for other in self._running.values()):
            self._pulse.release(run.tab)


def _changed_meanwhile(name: str) -> Astray:
    return Astray(f'"{name}" is offered by another page now. Try again. It was not run.', "tab_gone")


def _shown(entry: Entry, kind: str) -> dict[str, Any]:
    shown = {key: entry.item[key] for key in (KINDS[kind], "name", "title", "description") if entry.item.get(key)}
    tab = entry.tabs[0] if entry.tabs else None
    if tab is None:
        return shown | {"owner": WORKER}
    return shown | {"owner": tab.id, "tab": {"id": tab.id, "title": tab.title, "url": tab.url}}


def _ask(tab: Tab) -> None:
    tab.send({"t": "ping"})
