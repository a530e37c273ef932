"""The hub: which tabs there are, what each of them offers, and the calls that run in them.

It is the catalogue that the MCP core asks: the worker's own tools and those of all tabs, as one list. Ports come in
behind a Protocol, time and deferral as arguments; so nothing here knows a browser, a socket or MCP's messages.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from .pulse import Later, Pulse
from .tools import Cancel, Context, Done, Result, Toolbox, UnknownTool, text_result
from .wire.frames import Caller
from .wire.jsonrpc import RequestId

Message = Mapping[str, Any]

WORKER: Final = "worker"
# Pages show progress; a tool that reports it a thousand times a second must not drown them.
PROGRESS_EVERY_MS: Final = 100.0
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_TOOL_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


class Port(Protocol):
    """The way to one page."""

    def send(self, message: Message) -> None: ...


@dataclass(slots=True, eq=False)
class Tab:
    """A page that is attached now. `touched` says when it was last shown, hidden or focused.

    `is_frozen`: it said that the browser stops it; `is_silent`: it was asked whether it lives and did not answer.
    """

    port: Port
    id: str
    title: str
    url: str
    is_visible: bool
    touched: int
    attached: int
    is_frozen: bool = False
    is_silent: bool = False
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """Which tab gets a call that several could take: the one the user sees, else the one seen last."""
        return self.is_awake, self.is_visible, self.touched, self.attached

    @property
    def is_awake(self) -> bool:
        return not (self.is_frozen or self.is_silent)

    @property
    def label(self) -> str:
        return f'"{self.title}"' if self.title else self.url or self.id


class Run:
    """One running call, and the Context that its tool sees: it passes on what the tool says and lets the tabs watch."""

    def __init__(self, hub: Hub, call: str, name: str, tab: Tab | None, context: Context, done: Done) -> None:
        self.call = call
        self.name = name
        self.tab = tab
        self._hub = hub
        self._context = context
        self._done = done
        self._is_over = False
        self._began_ms = hub.now_ms()
        self._progress_told_ms = 0.0
        name_of_client = (context.caller.client or {}).get("name")
        self._client = {"client": name_of_client} if name_of_client else {}
        self._say("started")

    @property
    def caller(self) -> Caller:
        return self._context.caller

    @property
    def request_id(self) -> RequestId:
        return self._context.request_id

    @property
    def is_cancelled(self) -> bool:
        return self._context.is_cancelled

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._context.progress(progress, total, message)
        now_ms = self._hub.now_ms()
        if now_ms - self._progress_told_ms >= PROGRESS_EVERY_MS:
            self._progress_told_ms = now_ms
            self._say("progress", progress=progress, **({} if total is None else {"total": total}))

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        self._context.log(level, data, logger)

    def finish(self, result: Result) -> None:
        if self._is_over:
            return
        if result.get("isError"):
            self._end("failed", error=_first_text(result))
        else:
            self._end("done")
        self._done(result)

    def abandon(self, phase: str, **more: Any) -> None:
        """It is over without a result: the caller left, or the call was refused by an exception."""
        if not self._is_over:
            self._end(phase, **more)

    def _end(self, phase: str, **more: Any) -> None:
        self._is_over = True
        self._hub.forget(self)
        self._say(phase, ms=round(self._hub.now_ms() - self._began_ms, 1), **more)

    def _say(self, phase: str, **more: Any) -> None:
        owner = self.tab.id if self.tab else WORKER
        said = {"t": "activity", "call": self.call, "name": self.name, "owner": owner, "phase": phase}
        self._hub.broadcast({**said, **self._client, "at_ms": self._hub.now_ms(), **more})


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
        on_change: Callable[[], None] = lambda: None,
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
        self._told_tools: list[dict[str, Any]] = []
        self._told_catalogue: list[dict[str, Any]] = []
        toolbox.on_change = self.changed

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
            self._offer(tab, message["tools"])
        elif kind == "withdraw":
            for name in message["names"]:
                tab.tools.pop(name, None)
            self.changed()
        elif kind in ("result", "error", "progress", "log"):
            run = self._running.get(message["call"])
            # A tab may answer its own calls only; a late answer to a call that is over has no reader.
            if run is not None and run.tab is tab:
                _answer(run, kind, message, body)

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

    def _offer(self, tab: Tab, offered: list[Any]) -> None:
        for tool in offered:
            try:
                checked = _check(tool)
            except ValueError as error:
                name = tool.get("name") if isinstance(tool, dict) else None
                tab.port.send({"t": "refused", "name": str(name), "message": str(error)})
            else:
                tab.tools[checked["name"]] = checked
        self.changed()

    # -- the catalogue ------------------------------------------------------------------------------------------------

    def tools(self) -> list[dict[str, Any]]:
        """Every tool once: the worker's in the order they were declared, then the tabs' by name."""
        return [tool for tool, _ in self._entries()]

    def catalogue(self) -> list[dict[str, Any]]:
        """The same for the pages: who offers what."""
        listed = []
        for tool, tab in self._entries():
            entry = {key: tool[key] for key in ("name", "title", "description") if tool.get(key)}
            entry["owner"] = tab.id if tab else WORKER
            if tab:
                entry["tab"] = {"id": tab.id, "title": tab.title, "url": tab.url}
            listed.append(entry)
        return listed

    def changed(self) -> None:
        if not self._is_change_due:
            self._is_change_due = True
            self._defer(self._publish)

    def _publish(self) -> None:
        self._is_change_due = False
        tools, catalogue = self.tools(), self.catalogue()
        if catalogue != self._told_catalogue:
            self._told_catalogue = catalogue
            self.broadcast({"t": "catalogue", "tools": catalogue})
        if tools != self._told_tools:
            self._told_tools = tools
            self.on_change()

    def _entries(self) -> list[tuple[dict[str, Any], Tab | None]]:
        own: list[tuple[dict[str, Any], Tab | None]] = [(tool, None) for tool in self._toolbox.tools()]
        # The worker's own come first in a clash: they are there whichever tab is open, so a name keeps its meaning.
        taken = {tool["name"] for tool, _ in own}
        best: dict[str, Tab] = {}
        for tab in sorted(self._tabs.values(), key=lambda tab: tab.rank):
            best |= dict.fromkeys(tab.tools, tab)
        return own + [(best[name].tools[name], best[name]) for name in sorted(best) if name not in taken]

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, arguments: dict[str, Any], context: Context, done: Done) -> Cancel:
        """Start a call where its tool lives. Raises UnknownTool; a worker's tool also InvalidArguments."""
        owner = next((tab for tool, tab in self._entries() if tool["name"] == name), _NOBODY)
        if owner is _NOBODY:
            raise UnknownTool(name)
        tab = owner if isinstance(owner, Tab) else None
        run = Run(self, str(next(self._numbers)), name, tab, context, done)
        if tab is None:
            return self._call_own(run, arguments)
        if not tab.is_awake:
            text = f'The tab {tab.label} {_STATES[tab.is_frozen]}, so "{name}" was not called. Bring it to the front'
            run.finish(text_result(f"{text} and try again.", is_error=True))
            return _nothing_to_cancel
        self._running[run.call] = run
        self.pulse.watch(tab)
        caller = {
            "client": context.caller.client,
            "principal": context.caller.principal,
            "era": context.caller.era,
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


_NOBODY: Final = object()
_STATES: Final = {True: "is frozen by the browser", False: "does not answer"}


def _nothing_to_cancel(reason: str) -> None:
    """The call was over before it began."""


def _ask(tab: Tab) -> None:
    tab.port.send({"t": "ping"})


def _answer(run: Run, kind: str, message: Message, body: str | None) -> None:
    if kind == "progress":
        run.progress(message["progress"], message.get("total"), message.get("message"))
    elif kind == "log":
        try:
            run.log(message["level"], message.get("data"))
        except ValueError as error:  # no such level: say it where the page's author looks
            run.log("warning", f"{error}: {message.get('data')}")
    elif kind == "error":
        run.finish(text_result(str(message.get("message") or "The tool failed."), is_error=True))
    else:
        result = json.loads(body or "null")
        if not isinstance(result, dict) or not isinstance(result.get("content"), list):
            result = text_result(f'The tool "{run.name}" returned something that is no result.', is_error=True)
        run.finish(result)


def _check(tool: Any) -> dict[str, Any]:
    """What a page offers, reduced to the fields of an MCP tool; raises ValueError with what is wrong."""
    if not isinstance(tool, dict):
        raise ValueError("A tool is an object with a name, a description and an inputSchema.")
    if not _TOOL_NAME.fullmatch(str(tool.get("name", ""))):
        raise ValueError("A tool's name has 1 to 128 letters, digits, '_', '-' or '.'.")
    checked = {key: tool[key] for key in _TOOL_FIELDS if tool.get(key) is not None}
    for key in ("inputSchema", "outputSchema"):
        schema = checked.setdefault(key, {"type": "object"}) if key == "inputSchema" else checked.get(key)
        if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
            raise ValueError(f'Its {key} must be a JSON Schema with "type": "object".')
    return checked


def _first_text(result: Result) -> str:
    texts = (block["text"] for block in result.get("content", ()) if block.get("type") == "text")
    return next(texts, "")[:500]
