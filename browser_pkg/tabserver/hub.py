"""The hub: which tabs there are, what each of them offers, and the calls that run in them.

It is the catalogue that the MCP core asks: what the worker has itself and the tools of all tabs, as one list. Ports
come in behind a Protocol, time and deferral as arguments; so nothing here knows a browser, a socket or MCP's messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

from .context import Cancel, Done, Request
from .listing import KINDS, Listing
from .pulse import Later, Pulse
from .running import nothing_to_cancel
from .runs import WORKER, Run
from .tabs import CHECKS, Message, Port, Tab
from .toolbox import Toolbox
from .tools import UnknownTool, text_result


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
        self.pulse: Pulse[Tab] = Pulse(now_ms=now_ms, later=later, ask=_ask, lost=self._silent)
        self._toolbox = toolbox
        self._defer = defer
        self._tabs: dict[Port, Tab] = {}
        self._running: dict[str, Run] = {}
        self._numbers = itertools.count(1)
        self._is_change_due = False
        self._made: Listing | None = None
        self._told: dict[str, Any] = {"tools": [], "resources": ([], []), "prompts": []}
        self._told_catalogue: list[dict[str, Any]] = []
        self.on_update: Callable[[str], None] = lambda uri: None
        toolbox.on_change = self.changed
        toolbox.on_update = self._updated

    # -- tabs ---------------------------------------------------------------------------------------------------------

    @property
    def tabs(self) -> list[Tab]:
        return list(self._tabs.values())

    def attach(self, port: Port, info: Message) -> None:
        """A page came, came back, or says again what it is. The same page keeps its tools and its calls."""
        tab = self._tabs.get(port)
        if tab is None:
            # A page that had to connect a second time: its first port is deaf and must get no calls.
            for old in [old for old in self._tabs.values() if old.id == str(info["id"])]:
                self.detach(old.port)
            number = next(self._numbers)
            is_visible = bool(info.get("visible"))
            tab = Tab(port, str(info["id"]), "", "", is_visible, number if is_visible else 0, number)
            self._tabs[port] = tab
        self._describe(tab, info)
        port.send({"t": "catalogue", "tools": self.catalogue()})

    def detach(self, port: Port) -> None:
        """A page went away: its tools go, and whoever waits for one of its calls is told at once."""
        tab = self._tabs.pop(port, None)
        if tab is None:
            return
        self._fail_calls(tab, "was closed or left while it ran")
        self.changed()

    def receive(self, port: Port, message: Message, body: str | None = None) -> None:
        """A message of an attached page; from any other page it has no meaning and is dropped."""
        tab = self._tabs.get(port)
        if tab is None:
            return
        self._heard(tab)
        kind = message.get("t")
        if kind == "tab":
            self._describe(tab, message)
            tab.is_frozen = bool(message.get("frozen"))
            if tab.is_frozen:
                self.pulse.froze(tab)
        elif kind == "offer":
            for kind, check in CHECKS.items():
                self._offer(tab, kind, check, message.get(kind) or [])
            self.changed()
        elif kind == "withdraw":
            for kind in CHECKS:
                for key in message.get(kind) or []:
                    tab.offers[kind].pop(key, None)
            self.changed()
        elif kind in ("result", "error", "progress", "log"):
            run = self._running.get(message["call"])
            # A tab may answer its own calls only; a late answer to a call that is over has no reader.
            if run is not None and run.tab is tab:
                run.hear(kind, message, body)

    def _heard(self, tab: Tab) -> None:
        self.pulse.heard(tab)
        if not tab.is_awake:
            tab.is_frozen = tab.is_silent = False
            self.changed()

    def _silent(self, tab: Tab) -> None:
        """It keeps its tools, for when it wakes up; until then another tab that offers the same comes first."""
        tab.is_silent = True
        for run in self._fail_calls(tab, f"{_STATES[tab.is_frozen]} while it runs"):
            tab.port.send({"t": "cancel", "call": run.call, "reason": "The tab did not answer in time"})
        self.changed()

    def _fail_calls(self, tab: Tab, what: str) -> list[Run]:
        """Tell whoever waits for this tab, and only those, what became of it."""
        failed = [run for run in self._running.values() if run.tab is tab]
        for run in failed:
            text = f'The tab {tab.label} {what} "{run.name}". Whether the call took effect is unknown.'
            run.finish(text_result(text, is_error=True))
        return failed

    def broadcast(self, message: Message) -> None:
        for port in list(self._tabs):
            port.send(message)

    def _describe(self, tab: Tab, info: Message) -> None:
        tab.title, tab.url = str(info.get("title") or ""), str(info.get("url") or "")
        is_visible = bool(info.get("visible"))
        if is_visible != tab.is_visible or info.get("focused"):
            tab.touched = next(self._numbers)
        tab.is_visible = is_visible
        self.changed()

    def _offer(self, tab: Tab, kind: str, check: Callable[[Any], dict[str, Any]], offered: list[Any]) -> None:
        for item in offered:
            try:
                checked = check(item)
            except ValueError as error:
                name = item.get(KINDS[kind]) if isinstance(item, dict) else None
                tab.port.send({"t": "refused", "kind": kind, "name": str(name), "message": str(error)})
            else:
                tab.offers[kind][checked[KINDS[kind]]] = checked

    # -- the catalogue ------------------------------------------------------------------------------------------------

    @property
    def listing(self) -> Listing:
        if self._made is None:
            box = self._toolbox
            own = {
                "tools": box.tools(),
                "resources": box.resources(),
                "templates": box.templates(),
                "prompts": box.prompts(),
            }
            self._made = Listing(own, self._tabs.values())
        return self._made

    def tools(self) -> list[dict[str, Any]]:
        return self.listing.items("tools")

    def resources(self) -> list[dict[str, Any]]:
        return self.listing.items("resources")

    def templates(self) -> list[dict[str, Any]]:
        return self.listing.items("templates")

    def prompts(self) -> list[dict[str, Any]]:
        return self.listing.items("prompts")

    def catalogue(self) -> list[dict[str, Any]]:
        """The tools for the pages: who offers what."""
        listed = []
        for entry in self.listing.entries("tools"):
            shown = {key: entry.item[key] for key in ("name", "title", "description") if entry.item.get(key)}
            tab = entry.tab
            shown["owner"] = tab.id if tab else WORKER
            if tab:
                shown["tab"] = {"id": tab.id, "title": tab.title, "url": tab.url}
            listed.append(shown)
        return listed

    def changed(self) -> None:
        self._made = None
        if not self._is_change_due:
            self._is_change_due = True
            self._defer(self._publish)

    def _publish(self) -> None:
        self._is_change_due = False
        catalogue = self.catalogue()
        if catalogue != self._told_catalogue:
            self._told_catalogue = catalogue
            self.broadcast({"t": "catalogue", "tools": catalogue})
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

    def call(self, name: str, arguments: dict[str, Any], request: Request, done: Done) -> Cancel:
        """Start a call where its tool lives. Raises UnknownTool; a worker's tool also InvalidArguments."""
        entry = self.listing.find("tools", name)
        if entry is None:
            raise UnknownTool(name)
        tab = entry.tab
        run = Run(self, str(next(self._numbers)), name, tab, request, done)
        if tab is None:
            return self._call_own(run, arguments)
        if not tab.is_awake:
            text = f'The tab {tab.label} {_STATES[tab.is_frozen]}, so "{name}" was not called. Bring it to the front'
            run.finish(text_result(f"{text} and try again.", is_error=True))
            return nothing_to_cancel
        self._running[run.call] = run
        self.pulse.watch(tab)
        caller = {
            "client": request.caller.client,
            "principal": request.caller.principal,
            "era": request.caller.era,
        }
        tab.port.send({"t": "call", "call": run.call, "name": name, "arguments": arguments, "caller": caller})

        def cancel(reason: str) -> None:
            if run.call in self._running:
                tab.port.send({"t": "cancel", "call": run.call, "reason": reason})
                run.abandon("cancelled")

        return cancel

    def _call_own(self, run: Run, arguments: dict[str, Any]) -> Cancel:
        try:
            stop = self._toolbox.call(run.name, arguments, run, run.finish)
        except Exception as error:
            run.abandon("failed", error=str(error))
            raise

        def cancel(reason: str) -> None:
            run.abandon("cancelled")
            stop(reason)

        return cancel

    def forget(self, run: Run) -> None:
        self._running.pop(run.call, None)
        if run.tab is not None and not any(other.tab is run.tab for other in self._running.values()):
            self.pulse.release(run.tab)

    # -- resources and prompts: the worker's own so far ---------------------------------------------------------------

    def has_resource(self, uri: str) -> bool:
        return self._toolbox.has_resource(uri)

    def read(self, uri: str, request: Request, done: Done) -> Cancel:
        return self._toolbox.read(uri, request, done)

    def get_prompt(self, name: str, arguments: Mapping[str, str], request: Request, done: Done) -> Cancel:
        return self._toolbox.get_prompt(name, arguments, request, done)

    def complete_prompt(self, name: str, argument: str, typed: str, others: Mapping[str, str], done: Done) -> Cancel:
        return self._toolbox.complete_prompt(name, argument, typed, others, done)

    def complete_resource(self, uri: str, argument: str, typed: str, others: Mapping[str, str], done: Done) -> Cancel:
        return self._toolbox.complete_resource(uri, argument, typed, others, done)


_STATES: Final = {True: "is frozen by the browser", False: "does not answer"}


def _ask(tab: Tab) -> None:
    tab.port.send({"t": "ping"})
