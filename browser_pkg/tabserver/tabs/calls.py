"""Running calls of the worker and its tabs: each is sent to its destination, waits for it if need be, and ends once.

A call that was sent to a tab is never sent to another one. A call that was not sent yet is held while its page reloads
or does not read its messages, and may still go to another tab. `presence` holds the tabs, `routing` chooses the
destination, `approvals` asks the user. This module knows neither the catalogue nor MCP messages: see `hub`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ..handlers.context import Cancel, Done, Request
from ..handlers.tools import text_result
from ..timing import Timing
from .approvals import ApprovalRequest, Approvals
from .listing import Listing
from .liveness import Later, LivenessCheck
from .offers import Item
from .plain_call import PlainCall
from .presence import Presence
from .requests import RoutedRequest
from .responsiveness import Responsiveness
from .routing import (
    Destination,
    RoutingError,
    find_destination,
    gone_in_call,
    silent_in_call,
    tab_asleep,
    tab_left,
    tab_not_back,
)
from .run import CallerJson, Run
from .tab import Message, PagePort, Tab


class TabCalls:
    """`listing` returns what can be called now. `changed` is called when a tab stops answering."""

    def __init__(
        self,
        presence: Presence,
        listing: Callable[[], Listing],
        changed: Callable[[], None],
        *,
        now_ms: Callable[[], float],
        later: Later,
    ) -> None:
        self.approvals = Approvals(later)
        self.now_ms = now_ms
        self.presence, self._listing, self._changed = presence, listing, changed
        self._later = later
        self._liveness: LivenessCheck[Tab] = LivenessCheck(
            now_ms=now_ms, later=later, ask=Tab.ping, lost=self._fell_silent
        )
        self._responsiveness = Responsiveness(now_ms=now_ms, later=later, changed=changed)
        self._caller_json = CallerJson()
        self._running: dict[str, Run] = {}
        # Calls for tabs whose page is reloading, or that may be busy: nothing was sent, so another tab may still get
        # them.
        self._held: dict[str, RoutedRequest] = {}
        # Approvals of calls that continue after the client answered a question.
        self._allowed: dict[str, ApprovalRequest] = {}
        self._numbers = itertools.count(1)
        # Calls on the fast path, by number; the function that hands one over to the regular path; and the one that is
        # being handed over right now.
        self.plain_calls: dict[str, PlainCall] = {}
        self.hand_over: Callable[[PlainCall], None] = lambda plain: None
        # Called before all calls of a tab are looked up: see worker/js_calls.py.
        self.sync: Callable[[], None] = lambda: None
        self.handed_over: PlainCall | None = None

    def use_timing(self, timing: Timing) -> None:
        self._liveness.timing = self.approvals.timing = self._responsiveness.timing = timing

    @property
    def watchers(self) -> list[PagePort]:
        return self.presence.watchers

    # -- messages of tabs ---------------------------------------------------------------------------------------------

    def received(self, tab: Tab, call: object = None, is_pong: bool = False) -> None:
        """The tab sent a message, possibly about that call."""
        self._liveness.received(tab)
        self._responsiveness.received(tab, call if isinstance(call, str) else None, is_pong)

    def frozen(self, tab: Tab) -> None:
        self._liveness.frozen(tab)

    def receive(self, tab: Tab, kind: str, message: Message) -> None:
        """Handle a tab's message about a call. A message about another tab's call, or about one that is over, is
        dropped."""
        plain = self.plain_calls.get(message["call"])
        if plain is not None and plain.tab is tab:
            self.hand_over(plain)
        run = self._running.get(message["call"])
        if run is not None and run.tab is tab:
            run.receive(kind, message)

    def receive_result(self, tab: Tab, call: str, json: str, is_plain: bool) -> None:
        """Handle a result, which ends nearly all calls. `is_plain`: it may be forwarded without parsing."""
        run = self._running.get(call)
        if run is not None and run.tab is tab:
            run.receive_result(json, is_plain)

    def left(self, tab: Tab) -> None:
        """The tab's page went away."""
        self.approvals.left(tab)
        self._fail(tab, gone_in_call)

    def _fell_silent(self, tab: Tab) -> None:
        """The tab keeps its tools for when it wakes up. Until then, another tab with the same tool is preferred."""
        tab.is_silent = True
        for run in self._fail(tab, silent_in_call):
            tab.send({"t": "cancel", "call": run.call, "reason": "The tab did not answer in time"})
        self._changed()

    def _fail(self, tab: Tab, why: Callable[[Tab, str], RoutingError]) -> list[Run]:
        """Fail the calls that were sent to this tab, and only those."""
        # defence: calls of JavaScript: reported before all other calls end
        self.sync()
        for plain in [plain for plain in self.plain_calls.values() if plain.tab is tab]:
            self.hand_over(plain)
        failed = [run for run in self._running.values() if run.tab is tab and run.call not in self._held]
        for run in failed:
            run.fail(why(tab, run.name))
        return failed

    # -- beginning ----------------------------------------------------------------------------------------------------

    def begin(self, routed: RoutedRequest, request: Request, done: Done, unknown: Callable[[str], Exception]) -> Cancel:
        """Start a call at its destination. Raises `unknown`, RoutingError, and what the worker's own tool raises."""
        destination = self._find_destination(routed)
        if destination is None:
            raise unknown(routed.key)
        if destination.tab is not None and routed.target is not None and routed.target.pins and routed.target.tab:
            request.pin(destination.tab.id)
        run = Run(self, self.next_call(), routed.purpose, routed.key, destination.tab, request, done)
        asked = self._needed_approval(routed, destination, request)
        if asked is not None and request.goes_on:
            # The user has allowed this call before: it comes back with a state that this worker sealed and accepts
            # once, or, in a session, with the answers that the worker itself asked for.
            self._allowed[run.call], asked = asked, None
        # A page that is loading can't ask the user, and may return with another tool of this name: see release_held.
        # defence: a question about what a page offered before it was left
        if asked is None or not destination.is_ready or self.must_wait(destination, is_new=True):
            return self._run_at(run, routed, destination, is_new=True)
        return self._ask_first(run, routed, asked, request, done)

    def _run_at(self, run: Run, routed: RoutedRequest, destination: Destination, *, is_new: bool = False) -> Cancel:
        if destination.tab is None:
            return self._run_own(run, routed.own)
        return self._start(run, routed, destination, is_new)

    def next_call(self) -> str:
        """The id of the next call between the worker and its tabs."""
        return str(next(self._numbers))

    # -- calls on the fast path ---------------------------------------------------------------------------------------

    def find_plain(self, name: str) -> Destination | None:
        """The destination of a tool that can be called without any wait: see Hub.find_plain."""
        presence = self.presence
        destination = find_destination(self._listing(), presence.tabs, presence.departed, "tools", name, None)
        item = None if destination is None else self._tool(name, destination)
        if destination is None or item is None or not destination.is_ready:
            return None
        needs_approval = self.approvals.is_required(destination.key, item, destination.tab, presence.present)
        return None if needs_approval else destination

    def must_wait(self, destination: Destination, *, is_new: bool = False) -> bool:
        """Must the call wait until its tab reads messages, because another tab could take it? `is_new`: calls that wait
        already come first."""
        tab = destination.tab
        if tab is None or not destination.has_rivals or not tab.is_awake:
            return False
        if is_new:
            self.sync()
        # defence: a busy tab: a call that another tab could take waits until its tab reads
        return not self._responsiveness.responds(tab, is_new)

    def sent(self, plain: PlainCall, tab: Tab) -> None:
        """The call was posted to its tab."""
        self.plain_calls[plain.call] = plain
        tab.read_state.posted(plain.call)
        tab.calls += 1
        if tab.calls == 1:
            self._liveness.watch(tab, plain.began_ms)

    def ended(self, plain: PlainCall, tab: Tab) -> None:
        """The tab has answered the call."""
        del self.plain_calls[plain.call]
        # The clock is not read for each call. The answer came after the start of the call, which is enough to know.
        tab.read_state.received(max(tab.read_state.received_ms, plain.began_ms), plain.call)
        tab.calls -= 1
        if tab.calls:
            self._liveness.received(tab)
        else:
            self._liveness.release(tab)

    def served(self, tab: Tab) -> None:
        """The tab has answered a call that JavaScript carried out and that was not recorded here before."""
        if tab.calls:
            self._liveness.received(tab)

    def update_window(self, tab: Tab, received_ms: float, window: int) -> None:
        """Take over from JavaScript when the tab last sent a message, and how many calls it may have unread."""
        tab.read_state.received_ms, tab.read_state.window = max(tab.read_state.received_ms, received_ms), window

    def take_over(self, plain: PlainCall, request: Request, done: Done) -> Cancel:
        """Continue a call of the fast path as if it had started here."""
        self.handed_over = None
        run = Run(self, plain.call, "tools", plain.name, plain.tab, request, done, plain.began_ms)
        if plain.own is not None:
            return self._run_own(run, plain.own)
        run.is_sent = True
        self._running[run.call] = run
        return self._cancel(run)

    def _needed_approval(
        self, routed: RoutedRequest, destination: Destination, request: Request
    ) -> ApprovalRequest | None:
        """The approval that the call needs; None if it calls no tool, or was allowed for the session."""
        item = self._tool(routed.key, destination) if routed.purpose == "tools" else None
        key, tab = destination.key, destination.tab
        if item is None or not self.approvals.is_required(key, item, tab, self.presence.present):
            return None
        asked = ApprovalRequest(key, item, tab, request.caller, routed.arguments)
        return None if self.approvals.is_granted(asked) else asked

    def _tool(self, key: str, destination: Destination) -> Item | None:
        """The tool as its destination defines it now."""
        entry = self._listing().find("tools", key)
        if entry is None:
            return None
        offer = destination.tab.offers["tools"].get(destination.key) if destination.tab is not None else None
        return offer.item if offer is not None else entry.item

    def _ask_first(
        self, run: Run, routed: RoutedRequest, asked: ApprovalRequest, request: Request, done: Done
    ) -> Cancel:
        """Hold the call until the user has allowed it. Its destination is ready, so there is a page that can ask."""
        stops = [self._cancel(run)]

        def go() -> None:
            try:
                destination = self._find_destination(routed)
                item = None if destination is None else self._tool(routed.key, destination)
                # The approval is for what was shown: this tool of this tab, with the definition it had then.
                # defence: a tool that changed while the user was asked
                if destination is None or item is None or not asked.matches(destination.key, item, destination.tab):
                    raise _changed_meanwhile(routed.key)
                stops.append(self._run_at(run, routed, destination))
            except RoutingError as error:
                run.fail(error)
            except Exception as error:  # too late to raise: `begin` has returned
                done(text_result(str(error), is_error=True))

        request.progress(0, None, f'Waiting until the user allows "{routed.key}" in the page')
        tab = asked.owner or max(self.presence.present, key=lambda tab: tab.rank, default=None)
        if tab is not None and not tab.is_awake:
            run.fail(tab_asleep(tab, routed.key))
        else:
            self.approvals.ask(run.call, asked, tab, go, run.fail)
        return lambda reason: stops[-1](reason)

    def _find_destination(self, routed: RoutedRequest) -> Destination | None:
        presence = self.presence
        return find_destination(
            self._listing(), presence.tabs, presence.departed, routed.kind, routed.key, routed.target
        )

    def _start(self, run: Run, routed: RoutedRequest, destination: Destination, is_new: bool) -> Cancel:
        """Send a call to its tab, or hold it for a moment if the page is reloading."""
        self._running[run.call] = run
        self._send(run, routed, destination, is_new)
        return self._cancel(run)

    def _cancel(self, run: Run) -> Cancel:
        def cancel(reason: str) -> None:
            # The call runs, is held, or waits for approval: a held call may have become any of these.
            self.approvals.drop(run.call)
            if run.call in self._running and run.is_sent and run.tab is not None:
                run.tab.send({"t": "cancel", "call": run.call, "reason": reason})
            run.abandon("cancelled")

        return cancel

    def _send(self, run: Run, routed: RoutedRequest, destination: Destination, is_new: bool) -> None:
        tab = run.tab = destination.tab
        assert tab is not None
        if not destination.is_ready:
            self._held[run.call] = routed
            if not tab.is_expected:
                self._later(self.presence.timing.tab_doubt_s * 1000, lambda: self._fail_if_absent(run.call))
        elif not tab.is_awake:
            run.fail(tab_asleep(tab, routed.key))
        elif self.must_wait(destination, is_new=is_new):
            self._held[run.call] = routed
            self._responsiveness.ask(tab)
            self._later(self.presence.timing.tab_silence_s * 1000, lambda: self._fail_if_unresponsive(run.call))
        else:
            if routed.target is not None and routed.target.pins and routed.target.tab is None:
                run.pin(tab.id)
            run.is_sent = True
            tab.calls += 1
            self._liveness.watch(tab, self.now_ms())
            tab.post(run.call, run.call_message(routed.message(destination.key), self._caller_json))

    def _run_own(self, run: Run, own: Callable[[Request, Done], Cancel]) -> Cancel:
        try:
            stop = own(run, run.finish)
        except Exception as error:
            run.abandon("failed", error=str(error))
            raise

        def cancel(reason: str) -> None:
            run.abandon("cancelled")
            stop(reason)

        return cancel

    # -- held calls, and the end of each call -------------------------------------------------------------------------

    def _fail_if_absent(self, call: str) -> None:
        """Fail a held call if its page is not back. The page did not announce a reload, so it may never return."""
        routed, run = self._held.get(call), self._running.get(call)
        if routed is not None and run is not None and run.tab is not None and run.tab.port is None:
            run.fail(tab_left(run.tab, routed.key))

    def _fail_if_unresponsive(self, call: str) -> None:
        """Fail a held call if none of its tabs has read messages for too long."""
        routed, run = self._held.get(call), self._running.get(call)
        if routed is not None and run is not None and run.tab is not None and run.tab.port is not None:
            run.fail(tab_asleep(run.tab, routed.key))

    def release_held(self) -> None:
        """After a change: send held calls to their tab or to another one with the same item, or fail them."""
        if self._held:
            self.sync()
        for call, routed in list(self._held.items()):
            run = self._running[call]
            try:
                destination = self._find_destination(routed)
            except RoutingError as error:
                run.fail(error)
                continue
            if destination is None or destination.tab is None:
                assert run.tab is not None
                run.fail(tab_not_back(run.tab, routed.key))
            elif destination.is_ready and self.must_wait(destination):
                run.tab = destination.tab
                self._responsiveness.ask(destination.tab)
            elif destination.is_ready:
                del self._held[call]
                # defence: a tool that changed while a call waited for its page
                self._release(run, routed, destination)

    def _release(self, run: Run, routed: RoutedRequest, destination: Destination) -> None:
        """Send a held call under the rules of this moment: its tool may have another definition by now, and the page or
        the operator may require approval that they did not require before."""
        asked, allowed = self._needed_approval(routed, destination, run), self._allowed.get(run.call)
        # defence: a call that goes on with another tool
        if asked is None or (allowed is not None and allowed.matches(asked.name, asked.item, asked.owner)):
            self._send(run, routed, destination, is_new=False)
        elif allowed is not None:
            run.fail(_changed_meanwhile(routed.key))
        else:
            # Until the call is sent, messages of tabs must not affect it.
            del self._running[run.call]
            run.tab = destination.tab
            self._ask_first(run, routed, asked, run, run.finish)

    def remove(self, run: Run) -> None:
        self._running.pop(run.call, None)
        self._held.pop(run.call, None)
        self._allowed.pop(run.call, None)
        if run.is_sent and run.tab is not None:
            run.tab.calls -= 1
            if not run.tab.calls:
                self._liveness.release(run.tab)


def _changed_meanwhile(name: str) -> RoutingError:
    text = f'The definition of "{name}" changed, or another page offers it now. Try again. It was not run.'
    return RoutingError(text, "tab_gone")
