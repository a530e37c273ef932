"""Running calls of the worker and its tabs: each is sent to its destination, waits for it if need be, and ends once.

A call that was sent to a tab is never sent to another one. A call that was not sent yet is held while its page reloads
or does not read its messages, and may still go to another tab. `presence` holds the tabs, `routing` chooses the
destination, `approvals` asks the user. This module knows neither the catalogue nor MCP messages: see `hub`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from ..handlers.context import Cancel
from ..handlers.toolbox import Toolbox
from ..handlers.tools import Tool, text_result
from ..mcp.call import RunningCall
from ..mcp.parked_calls import GONE
from ..timing import Timing
from ..wire.call_times import APPROVAL, BUSY, LOADING
from . import messages
from .activity import CallActivity
from .approvals import ApprovalRequest, Approvals
from .grants import Grants
from .listing import Listing
from .liveness import Later, LivenessCheck, Responsiveness
from .offers import Item
from .presence import Presence
from .requests import RoutedRequest
from .routing import (
    Destination,
    RoutingError,
    changed_meanwhile,
    find_destination,
    gone_in_call,
    silent_in_call,
    tab_asleep,
    tab_left,
    tab_not_back,
)
from .tab import Message, Tab


class _Found(NamedTuple):
    """Where a tool call without a named tab goes, while nothing changes. `asked`: the tool, if the user must approve
    its calls. `tool`: a tool of the worker whose calls may be granted."""

    destination: Destination
    asked: Item | None
    tool: Tool | None


class TabCalls:
    """`listing` returns what can be called now. `changed` is called when a tab stops answering."""

    def __init__(
        self,
        presence: Presence,
        toolbox: Toolbox,
        listing: Callable[[], Listing],
        changed: Callable[[], None],
        *,
        now_ms: Callable[[], float],
        later: Later,
        timing: Timing,
        grants: Grants,
    ) -> None:
        self.approvals = Approvals(later, timing)
        self.now_ms = now_ms
        self._presence, self._toolbox, self._listing, self._changed = presence, toolbox, listing, changed
        self._later, self._timing, self._grants = later, timing, grants
        self.liveness: LivenessCheck[Tab] = LivenessCheck(
            now_ms=now_ms, later=later, ask=Tab.ping, lost=self._fell_silent, timing=timing
        )
        self._responsiveness = Responsiveness(now_ms=now_ms, later=later, changed=changed, timing=timing)
        self._writer = messages.CallWriter()
        self._activity = CallActivity(presence, now_ms)
        self.progressed = self._activity.progressed
        # Calls that tabs run, or that wait for a tab, by number.
        self.running: dict[str, RunningCall] = {}
        # Calls for tabs whose page is reloading, or that may be busy: nothing was sent, so another tab may still get
        # them.
        self._held: dict[str, RoutedRequest] = {}
        # Approvals of calls that continue after the client answered a question.
        self._allowed: dict[str, ApprovalRequest] = {}
        # Destinations of tools by name, until something changes.
        self._found: dict[str, _Found] = {}
        self._numbers = itertools.count(1)

    # -- messages of tabs ---------------------------------------------------------------------------------------------

    def received(self, tab: Tab, call: object = None, is_pong: bool = False) -> None:
        """The tab sent a message, possibly about that call."""
        self.liveness.received(tab)
        self._responsiveness.received(tab, call if isinstance(call, str) else None, is_pong)

    def receive(self, tab: Tab, kind: str, message: Message) -> None:
        """Handle a tab's message about a call. A message about another tab's call, or about one that is over, is
        dropped."""
        call = self.running.get(message["call"])
        if call is not None and call.tab is tab:
            self.take_back(call)
            messages.receive(call, kind, message)

    def receive_result(self, tab: Tab, number: str, json: str, is_plain: bool) -> None:
        """Handle a result, which ends nearly all calls. `is_plain`: it may be forwarded without parsing."""
        call = self.running.get(number)
        if call is not None and call.tab is tab:
            self.take_back(call)
            messages.receive_result(call, json, is_plain)
        self._responsiveness.received(tab, number, False)
        if tab.calls:
            self.liveness.received(tab)
        if self._held:
            self.release_held()

    def take_back(self, call: RunningCall) -> None:
        """Python writes what follows of this call, and not JavaScript."""
        if call.is_granted:
            call.is_granted = False
            self._grants.revoke()

    def left(self, tab: Tab) -> None:
        """The tab's page went away."""
        self.approvals.left(tab)
        self._fail(tab, gone_in_call)

    def _fell_silent(self, tab: Tab) -> None:
        """The tab keeps its tools for when it wakes up. Until then, another tab with the same tool is preferred."""
        tab.is_silent = True
        for call in self._fail(tab, silent_in_call):
            tab.send({"t": "cancel", "call": call.number, "reason": "The tab did not answer in time"})
        self._changed()

    def _fail(self, tab: Tab, why: Callable[[Tab, str], RoutingError]) -> list[RunningCall]:
        """Fail the calls that were sent to this tab, and only those."""
        failed = [call for call in self.running.values() if call.tab is tab and call.number not in self._held]
        for call in failed:
            _fail(call, why(tab, call.name))
        return failed

    # -- beginning ----------------------------------------------------------------------------------------------------

    def begin(self, routed: RoutedRequest, call: RunningCall, unknown: Callable[[str], Exception]) -> Cancel:
        """Start a call at its destination. Raises `unknown`, RoutingError, and what the worker's own tool raises."""
        found = self._find(routed)
        if found is None:
            raise unknown(routed.key)
        destination, item, tool = found
        tab, target = destination.tab, routed.target
        if tab is not None and target is not None and target.pins and target.tab:
            call.pin(tab.id)
        call.runs(self, str(next(self._numbers)), routed.purpose, routed.key, tab, self.now_ms())
        if self._presence.watchers:
            self._activity.began(call, routed.arguments)
        asked = None if item is None else self._approval(call, routed, destination, item)
        if asked is not None and call.goes_on:
            # The user has allowed this call before: it comes back with a state that this worker sealed and accepts
            # once, or, in a session, with the answers that the worker itself asked for.
            self._allowed[call.number], asked = asked, None
        # A page that is loading can't ask the user, and may return with another tool of this name: see release_held.
        # defence: a question about what a page offered before it was left
        if asked is None or not destination.is_ready or self._must_wait(destination, is_new=True):
            return self._run_at(call, routed, destination, tool, is_new=True)
        return self._ask_first(call, routed, asked)

    def _find(self, routed: RoutedRequest) -> _Found | None:
        is_general = routed.purpose == "tools" and routed.target is None
        found = self._found.get(routed.key) if is_general else None
        if found is None and (destination := self._find_destination(routed)) is not None:
            item = self._tool_to_approve(routed, destination)
            own = self._toolbox.find_plain(destination.key) if is_general and destination.tab is None else None
            found = _Found(destination, item, own if item is None else None)
            if is_general:
                self._found[routed.key] = found
        return found

    def _run_at(
        self, call: RunningCall, routed: RoutedRequest, destination: Destination, tool: Tool | None, is_new: bool
    ) -> Cancel:
        if destination.tab is None:
            if not is_new and call.times is not None:
                call.times.begin()
            return self._run_own(call, routed, destination, tool)
        self.running[call.number] = call
        self._send(call, routed, destination, is_new)
        return lambda reason: self._cancel(call, reason)

    def adopt(self, call: RunningCall, number: str, name: str, tab: Tab, began_ms: float) -> None:
        """JavaScript has posted the call to this tab, and writes the response if it is plain."""
        call.runs(self, number, "tools", name, tab, began_ms)
        call.stop_with(lambda reason: self._cancel(call, reason))
        call.is_granted = True
        self.running[number] = call
        self._sent(call, tab, began_ms)
        tab.read_state.posted(number)

    def adopt_own(self, call: RunningCall, name: str, tool: Tool, begin: Callable[[], Any]) -> None:
        """JavaScript had this tool of the worker run. `begin` returns or raises what the tool did."""
        call.runs(self, str(next(self._numbers)), "tools", name, None, self.now_ms())
        call.stop_with(call.stopped_by(tool.start_by(begin, call.finish)))

    def _sent(self, call: RunningCall, tab: Tab, now_ms: float) -> None:
        call.is_sent = True
        tab.calls += 1
        if tab.calls == 1:
            self.liveness.watch(tab, now_ms)

    def served(self, tab: Tab) -> None:
        """The tab has answered a call that was not adopted."""
        if tab.calls:
            self.liveness.received(tab)

    def _must_wait(self, destination: Destination, *, is_new: bool = False) -> bool:
        """Must it wait until its tab reads, because another tab could take it? `is_new`: waiting calls go first."""
        tab = destination.tab
        if tab is None or not destination.has_rivals or not tab.is_awake:
            return False
        # defence: a busy tab: a call that another tab could take waits until its tab reads
        return not self._responsiveness.responds(tab, is_new)

    def _tool_to_approve(self, routed: RoutedRequest, destination: Destination) -> Item | None:
        """The tool as its destination defines it now, if the user must approve its calls."""
        item = self._tool(routed.key, destination) if routed.purpose == "tools" else None
        key, tab, tabs = destination.key, destination.tab, self._presence.present
        return item if item is not None and self.approvals.is_required(key, item, tab, tabs) else None

    def _approval(
        self, call: RunningCall, routed: RoutedRequest, found: Destination, item: Item
    ) -> ApprovalRequest | None:
        """The approval that the call needs; None if it was given for the session."""
        asked = ApprovalRequest(found.key, item, found.tab, call.caller, routed.arguments)
        return None if self.approvals.is_granted(asked) else asked

    def _tool(self, key: str, destination: Destination) -> Item | None:
        entry = self._listing().find("tools", key)
        if entry is None:
            return None
        offer = destination.tab.offers["tools"].get(destination.key) if destination.tab is not None else None
        return offer.item if offer is not None else entry.item

    def _ask_first(self, call: RunningCall, routed: RoutedRequest, asked: ApprovalRequest) -> Cancel:
        """Hold the call until the user has allowed it. Its destination is ready, so there is a page that can ask."""
        stops: list[Cancel] = [lambda reason: self._cancel(call, reason)]

        def go() -> None:
            try:
                destination = self._find_destination(routed)
                item = None if destination is None else self._tool(routed.key, destination)
                # The approval is for what was shown: this tool of this tab, with the definition it had then.
                # defence: a tool that changed while the user was asked
                if destination is None or item is None or not asked.matches(destination.key, item, destination.tab):
                    raise changed_meanwhile(routed.key)
                stops.append(self._run_at(call, routed, destination, None, is_new=False))
            except RoutingError as error:
                _fail(call, error)
            except Exception as error:  # too late to raise: `begin` has returned
                call.finish(text_result(str(error), is_error=True))

        call.waits(APPROVAL)
        call.notify_progress(0, None, f'Waiting until the user allows "{routed.key}" in the page')
        tab = asked.owner or max(self._presence.present, key=lambda tab: tab.rank, default=None)
        if tab is not None and not tab.is_awake:
            _fail(call, tab_asleep(tab, routed.key))
        else:
            self.approvals.ask(call.number, asked, tab, go, lambda error: _fail(call, error))
        return lambda reason: stops[-1](reason)

    def _find_destination(self, routed: RoutedRequest) -> Destination | None:
        tabs, departed = self._presence.tabs, self._presence.departed
        return find_destination(self._listing(), tabs, departed, routed.kind, routed.key, routed.target)

    def _cancel(self, call: RunningCall, reason: str) -> None:
        # The call runs, is held, or waits for approval: a held call may have become any of these.
        self.approvals.drop(call.number)
        if call.number in self.running and call.is_sent and call.tab is not None:
            call.tab.send({"t": "cancel", "call": call.number, "reason": reason})
        call.stop_running("cancelled")

    def _send(self, call: RunningCall, routed: RoutedRequest, destination: Destination, is_new: bool) -> None:
        """Send a call to its tab, or hold it for a moment if the page is reloading."""
        tab = call.tab = destination.tab
        assert tab is not None
        if not destination.is_ready:
            self._held[call.number] = routed
            call.waits(LOADING)
            if not tab.is_expected and not call.is_task:  # the caller of a task does not wait
                self._later(self._timing.tab_doubt_s * 1000, lambda: self._fail_if_absent(call.number))
        elif not tab.is_awake:
            _fail(call, tab_asleep(tab, routed.key))
        elif self._must_wait(destination, is_new=is_new):
            self._held[call.number] = routed
            call.waits(BUSY)
            self._responsiveness.ask(tab)
            self._later(self._timing.tab_silence_s * 1000, lambda: self._fail_if_unresponsive(call.number))
        else:
            if routed.target is not None and routed.target.pins and routed.target.tab is None:
                call.pin(tab.id)
            self._sent(call, tab, call.began_ms if is_new else self.now_ms())
            self._post(call, routed, destination, tab)

    def _post(self, call: RunningCall, routed: RoutedRequest, destination: Destination, tab: Tab) -> None:
        text, is_plain = self._writer.write(call, routed, destination.key, tab)
        tab.post(call.number, text)
        if is_plain and not self._presence.watchers:
            self._grants.grant(call, destination, None)

    def _run_own(self, call: RunningCall, routed: RoutedRequest, destination: Destination, tool: Tool | None) -> Cancel:
        # Granted before the tool runs: any change that the tool makes revokes the grant.
        if tool is not None and not self._presence.watchers and messages.is_plain(call, routed):
            self._grants.grant(call, destination, tool)
        try:
            if routed.own is None:
                stop = self._toolbox.call(destination.key, dict(routed.arguments), call, call.finish)
            else:
                stop = routed.own(call, call.finish)
        except Exception as error:
            call.stop_running("failed", str(error))
            raise
        return call.stopped_by(stop)

    # -- held calls, and the end of each call -------------------------------------------------------------------------

    def _fail_if_absent(self, number: str) -> None:
        """Fail a held call if its page is not back. The page did not announce a reload, so it may never return."""
        routed, call = self._held.get(number), self.running.get(number)
        if routed is not None and call is not None and call.tab is not None and call.tab.port is None:
            _fail(call, tab_left(call.tab, routed.key))

    def _fail_if_unresponsive(self, number: str) -> None:
        """Fail a held call if none of its tabs has read messages for too long."""
        routed, call = self._held.get(number), self.running.get(number)
        if routed is not None and call is not None and call.tab is not None and call.tab.port is not None:
            _fail(call, tab_asleep(call.tab, routed.key))

    def changed(self) -> None:
        """The listing, a tab, or what the user must approve has changed."""
        self._found.clear()
        self.release_held()

    def release_held(self) -> None:
        """After a change: send held calls to their tab or to another one with the same item, or fail them."""
        for number, routed in list(self._held.items()):
            call = self.running[number]
            try:
                destination = self._find_destination(routed)
            except RoutingError as error:
                _fail(call, error)
                continue
            if destination is None or destination.tab is None:
                assert call.tab is not None
                _fail(call, tab_not_back(call.tab, routed.key))
            elif destination.is_ready and self._must_wait(destination):
                call.tab = destination.tab
                self._responsiveness.ask(destination.tab)
            elif destination.is_ready:
                del self._held[number]
                # defence: a tool that changed while a call waited for its page
                self._release(call, routed, destination)

    def _release(self, call: RunningCall, routed: RoutedRequest, destination: Destination) -> None:
        """Send a held call under the rules of this moment: its tool may have another definition by now, and the page or
        the operator may require approval that they did not require before."""
        item, allowed = self._tool_to_approve(routed, destination), self._allowed.get(call.number)
        asked = None if item is None else self._approval(call, routed, destination, item)
        # defence: a call that goes on with another tool
        if asked is None or (allowed is not None and allowed.matches(asked.name, asked.item, asked.owner)):
            self._send(call, routed, destination, is_new=False)
        elif allowed is not None:
            _fail(call, changed_meanwhile(routed.key))
        else:
            # Until the call is sent, messages of tabs must not affect it.
            del self.running[call.number]
            call.tab = destination.tab
            self._ask_first(call, routed, asked)

    def ended(self, call: RunningCall, phase: str, error: str | None) -> None:
        number, tab = call.number, call.tab
        self.running.pop(number, None)
        if self._held or self._allowed:
            self._held.pop(number, None)
            self._allowed.pop(number, None)
        if call.is_sent and tab is not None:
            tab.calls -= 1
            if not tab.calls:
                self.liveness.release(tab)
            self.take_back(call)
        if self._presence.watchers:
            self._activity.ended(call, phase, error)


def _fail(call: RunningCall, why: RoutingError) -> None:
    """End the call with an error, because no tab will answer it, unless it can go on in another page."""
    if call.run_again():
        return
    if call.is_task:
        call.finish(why.refusal(GONE))
    else:
        call.finish(why.result() if call.purpose == "tools" else why.refusal())
