"""Fast path of the worker for plain tool calls, which nearly all calls are.

A call is plain if a modern caller names a tool and its arguments and nothing else, the call needs no approval, and no
page watches calls. Then the objects of the regular path (session, waiting request, call, routed request, run) are not
created. When anything but a plain answer happens to a call, it is handed over: the core receives the request, and
`tabs/calls.py` continues with what runs already. This module decides nothing itself: the hub chooses the destination,
and the outbox builds the answer, so both paths give the same result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ..handlers.context import Cancel, Done, Outcome, Request, Result
from ..handlers.tools import Tool
from ..mcp.caller_state import caller_key
from ..mcp.invocations import RequestMeta, read_meta
from ..mcp.outbox import written_response
from ..mcp.server import Server
from ..rpc import Refusal, parse
from ..tabs.hub import Hub
from ..tabs.listing import Listing
from ..tabs.plain_call import PlainCall
from ..tabs.routing import Destination, tab_meta
from ..tabs.run import CallerJson
from ..tabs.tab import PagePort, Tab
from ..wire import methods
from ..wire.control_messages import RELAY
from ..wire.eras import Era
from ..wire.errors import MessageTooLarge
from ..wire.events import Closed, Opened, Received
from ..wire.frames import Caller, Kind
from ..wire.jsonrpc import RequestId
from ..wire.static_tools import TAB_ARGUMENT

_MEMBERS: Final = frozenset(("name", "arguments", "_meta"))


class CallGrant(NamedTuple):
    """A plain call that others may repeat: its caller, the name it called, and the destination: a tab, or the worker's
    own tool. `caller_json`: the caller as JSON text for the tab."""

    channel: str
    caller: Caller
    name: str
    caller_json: str
    destination: Destination | None
    tool: Tool | None


class WorkerFastPath:
    """Receives the events of the link before the core does. `send` is the core's function for answers."""

    def __init__(self, core: Server, hub: Hub, send: Callable[..., None]) -> None:
        self._core, self._hub, self._send = core, hub, send
        self._calls = calls = hub.calls
        self._presence = calls.presence
        self._now_ms = calls.now_ms
        hub.finish_plain = self._finish
        calls.hand_over = self._hand_over
        self._open: dict[str, PlainCall] = {}  # by channel
        # JavaScript may carry out calls like one that was plain: see js_calls.py.
        self.grant: Callable[[CallGrant], None] = lambda grant: None
        self.revoke: Callable[[], None] = lambda: None
        # Cached from the last call, because most calls have the same: caller, `_meta`, listing, and the tab's `_meta`.
        self._caller: Caller | None = None
        self._caller_json = CallerJson()
        self._caller_text = ""
        self._meta: dict[str, Any] | None = None
        self._listing: Listing | None = None
        self._found: dict[str, Destination | Tool] = {}
        self._cached_meta: tuple[Tab | None, str, str] = None, "", ""

    def receive(self, event: Opened | Received[str] | Closed) -> None:
        """Handle one event of the link; the core has the same method."""
        if type(event) is Received and event.caller is not None and self._begin(event, event.caller):
            return
        if event.channel in self._open:
            self._hand_over(self._open[event.channel])
        self._core.receive(event)

    def _begin(self, event: Received[str], caller: Caller) -> bool:
        """Start a plain call. False: the call is not plain, and nothing has been done."""
        channel, id = event.channel, event.id
        if caller is not self._caller and not self._accept_caller(caller):
            return False
        if id is None or event.again or event.kind is not Kind.REQ or self._presence.watchers:
            return False
        if channel in self._open or channel in self._core.channels:
            return False
        try:
            method, params = parse(event.payload, id)
        except Refusal:
            return False
        if method != methods.TOOLS_CALL or params.keys() != _MEMBERS:
            return False
        name, arguments, meta = params["name"], params["arguments"], params["_meta"]
        if meta != self._meta and not self._is_plain(meta):
            return False
        if type(name) is not str or type(arguments) is not dict or TAB_ARGUMENT in arguments:
            return False
        found = self._find(name)
        if found is None:
            return False
        if isinstance(found, Tool):
            return self._run(event, id, name, found, arguments)
        return self._post(event, caller, name, found, arguments)

    def _accept_caller(self, caller: Caller) -> bool:
        if (
            caller.era is not Era.MODERN
            or caller.tab is not None
            or caller.acp is not None
            or caller.principal == RELAY
        ):
            return False
        self._caller, self._caller_text = caller, self._caller_json.of(caller, caller_key(caller))
        return True

    def _is_plain(self, meta: dict[str, Any]) -> bool:
        """Does `_meta` ask for nothing but a log level? The level is read when a message is logged."""
        try:
            request_meta = read_meta(meta, Era.MODERN)
        except Refusal:
            return False
        if request_meta != RequestMeta(None, request_meta.level, None, None, None):
            return False
        self._meta = meta
        return True

    def _find(self, name: str) -> Destination | Tool | None:
        listing = self._hub.listing
        if listing is not self._listing:
            self._listing = listing
            self._found = {}
        found = self._found.get(name)
        if found is None and (found := self._hub.find_plain(name)) is not None:
            self._found[name] = found
        return found

    # -- tools of tabs ------------------------------------------------------------------------------------------------

    def _post(
        self, event: Received[str], caller: Caller, name: str, destination: Destination, arguments: dict[str, Any]
    ) -> bool:
        tab = destination.tab
        port = None if tab is None else tab.port
        if (
            tab is None
            or port is None
            or tab.is_frozen
            or tab.is_silent
            or self._calls.must_wait(destination, is_new=True)
        ):
            return False
        call = self._calls.next_call()
        # The request is forwarded as text where the page can read it: JSON that was parsed is not written again.
        task = f'"request":{event.payload}' if port.reads_requests else f'"arguments":{json.dumps(arguments)}'
        try:
            # A tool's name has no character that JSON would have to escape.
            port.post(
                f'{{"t":"call","call":"{call}","caller":{self._caller_text},"kind":"tools","name":"{destination.key}",{task}}}'
            )
        except Exception:  # the regular path meets the same error and reports it
            return False
        self.started(event, call, name, self._now_ms(), tab, port)
        if port.reads_requests:
            self.grant(CallGrant(event.channel, caller, name, self._caller_text, destination, None))
        return True

    def started(self, event: Received[str], call: str, name: str, began_ms: float, tab: Tab, port: PagePort) -> None:
        """The call was posted to its tab."""
        plain = self._open[event.channel] = PlainCall(event, call, name, began_ms, tab, port)
        self._calls.sent(plain, tab)

    def _finish(self, port: PagePort, call: str, text: str, is_plain: bool) -> bool:
        """Finish a call with its tab's result. False: it is not a call of the fast path, or the result is not plain."""
        plain = self._calls.plain_calls.get(call)
        if plain is None or plain.port is not port or plain.tab is None:
            return False
        tab, event = plain.tab, plain.event
        if not is_plain or tab.is_frozen or tab.is_silent or tab.is_busy or self._presence.watchers:
            self._hand_over(plain)
            return False
        assert event.id is not None
        try:
            self._send(event.channel, Kind.RES, written_response(event.id, text, self.meta_of(tab)), id=event.id)
        except MessageTooLarge:
            self._hand_over(plain)
            return False
        self.ended(plain, tab)
        return True

    def ended(self, plain: PlainCall, tab: Tab) -> None:
        """The tab's result was sent to the relay."""
        del self._open[plain.event.channel]
        self._calls.ended(plain, tab)

    @property
    def own_meta(self) -> str:
        """The `_meta` of the worker's own results, as JSON text."""
        return self._core.outbox.own_meta

    def meta_of(self, tab: Tab) -> str:
        """The `_meta` of a tab's results, as JSON text."""
        known, title, meta = self._cached_meta
        if known is not tab or title != tab.title:
            meta = self._core.outbox.meta(tab_meta(tab))
            self._cached_meta = tab, tab.title, meta
        return meta

    def _hand_over(self, plain: PlainCall) -> None:
        """Continue the call on the regular path."""
        self.revoke()
        del self._open[plain.event.channel]
        del self._calls.plain_calls[plain.call]
        self._continue_in_core(plain)

    def _continue_in_core(self, plain: PlainCall) -> None:
        self._calls.handed_over = plain
        self._core.receive(plain.event)
        assert self._calls.handed_over is None

    # -- tools of the worker ------------------------------------------------------------------------------------------

    def _run(self, event: Received[str], id: RequestId, name: str, tool: Tool, arguments: dict[str, Any]) -> bool:
        try:
            made = tool.read(arguments)
        except Exception:  # a tool's own classes may raise anything; the regular path meets it too and reports it
            return False
        assert event.caller is not None
        # Granted before the tool runs: any change that the tool makes revokes the grant.
        self.grant(CallGrant(event.channel, event.caller, name, "", None, tool))
        self.run(event, id, name, tool, lambda: tool.call(made))
        return True

    def run(self, event: Received[str], id: RequestId, name: str, tool: Tool, begin: Callable[[], Any]) -> None:
        """Run a tool of the worker. `begin` calls it."""
        deferred = _DeferredOutcome()
        began_ms = self._now_ms()
        stop = tool.start_by(begin, deferred)
        if type(deferred.outcome) is dict and self._answer(event.channel, id, deferred.outcome):
            return

        def own(request: Request, done: Done) -> Cancel:
            deferred.then(done)
            return stop

        self._continue_in_core(PlainCall(event, self._calls.next_call(), name, began_ms, None, None, own))

    def _answer(self, channel: str, id: RequestId, result: Result) -> bool:
        """Send the result. False: it can't be written as JSON, or is too large."""
        try:
            text = self._core.outbox.text(Era.MODERN, id, result)
        except (ValueError, TypeError, RecursionError):
            return False
        try:
            self._send(channel, Kind.RES, text, id=id)
        except MessageTooLarge:
            return False
        return True


class _DeferredOutcome:
    """The outcome of a handler: `then` may be called before or after the handler ends."""

    __slots__ = ("_done", "outcome")

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self._done: Done | None = None

    def __call__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self._done is not None:
            self._done(outcome)

    def then(self, done: Done) -> None:
        self._done = done
        if self.outcome is not None:
            done(self.outcome)
