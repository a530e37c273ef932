"""The calls that run in the worker and its tabs: each is sent where it belongs, waits, and ends once.

Who is there is kept in `presence`, who gets a call is decided in `places`, who must allow it in `approvals`. What there
is to call, and what a request for it means, is the hub's business.
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
    """`listing` is what can be called now. `changed` is told when a tab does not answer any more."""

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
        # Calls for tabs whose page is being loaded again, or that may be busy: nothing was sent, so another tab may
        # still get them.
        self._held: dict[str, RoutedRequest] = {}
        # What was allowed in a round before, of calls that go on.
        self._allowed: dict[str, ApprovalRequest] = {}
        self._numbers = itertools.count(1)
        # Calls that went by the lane, by number; how one of them becomes a Run; and the one that does so right now.
        self.plain_calls: dict[str, PlainCall] = {}
        self.hand_over: Callable[[PlainCall], None] = lambda plain: None
        # Before somebody looks for all calls of a tab: see express.py.
        self.sync: Callable[[], None] = lambda: None
        self.handed_over: PlainCall | None = None

    def use_timing(self, timing: Timing) -> None:
        self._liveness.timing = self.approvals.timing = self._responsiveness.timing = timing

    @property
    def watchers(self) -> list[PagePort]:
        return self.presence.watchers

    # -- what tabs say ------------------------------------------------------------------------------------------------

    def received(self, tab: Tab, call: object = None, is_pong: bool = False) -> None:
        """It said something, of that call perhaps."""
        self._liveness.received(tab)
        self._responsiveness.received(tab, call if isinstance(call, str) else None, is_pong)

    def frozen(self, tab: Tab) -> None:
        self._liveness.frozen(tab)

    def receive(self, tab: Tab, kind: str, message: Message) -> None:
        """What it says of a call. It may speak of its own only; a late answer to one that is over has no reader."""
        plain = self.plain_calls.get(message["call"])
        if plain is not None and plain.tab is tab:
            self.hand_over(plain)
        run = self._running.get(message["call"])
        if run is not None and run.tab is tab:
            run.receive(kind, message)

    def receive_result(self, tab: Tab, call: str, json: str, is_plain: bool) -> None:
        """The same, of what nearly all calls end with. `is_plain`: it may be passed on unread."""
        run = self._running.get(call)
        if run is not None and run.tab is tab:
            run.receive_result(json, is_plain)

    def left(self, tab: Tab) -> None:
        """Its page went."""
        self.approvals.left(tab)
        self._fail(tab, gone_in_call)

    def _fell_silent(self, tab: Tab) -> None:
        """It keeps its tools, for when it wakes up; until then another tab that offers the same comes first."""
        tab.is_silent = True
        for run in self._fail(tab, silent_in_call):
            tab.send({"t": "cancel", "call": run.call, "reason": "The tab did not answer in time"})
        self._changed()

    def _fail(self, tab: Tab, why: Callable[[Tab, str], RoutingError]) -> list[Run]:
        """Tell whoever waits for this tab, and only those, what became of it."""
        # defence: calls that JavaScript carries out: told before all else ends
        self.sync()
        for plain in [plain for plain in self.plain_calls.values() if plain.tab is tab]:
            self.hand_over(plain)
        failed = [run for run in self._running.values() if run.tab is tab and run.call not in self._held]
        for run in failed:
            run.fail(why(tab, run.name))
        return failed

    # -- beginning ----------------------------------------------------------------------------------------------------

    def begin(self, routed: RoutedRequest, request: Request, done: Done, unknown: Callable[[str], Exception]) -> Cancel:
        """Start a call where what it wants lives. Raises `unknown`, Astray, and what the worker's own raises."""
        destination = self._find_destination(routed)
        if destination is None:
            raise unknown(routed.key)
        if destination.tab is not None and routed.target is not None and routed.target.pins and routed.target.tab:
            request.pin(destination.tab.id)
        run = Run(self, self.next_call(), routed.purpose, routed.key, destination.tab, request, done)
        asked = self._needed_approval(routed, destination, request)
        if asked is not None and request.goes_on:
            # It comes again with the state that this worker sealed, and only once, or, in a session, with the answers
            # that the worker itself asked for: it was allowed before.
            self._allowed[run.call], asked = asked, None
        # A page that is being loaded can't ask, and may come back with another tool of this name: see release_held.
        # defence: a question about what a page offered before it was left
        if asked is None or not destination.is_ready or self.must_wait(destination, is_new=True):
            return self._run_at(run, routed, destination, is_new=True)
        return self._ask_first(run, routed, asked, request, done)

    def _run_at(self, run: Run, routed: RoutedRequest, destination: Destination, *, is_new: bool = False) -> Cancel:
        return (
            self._run_own(run, routed.own) if destination.tab is None else self._start(run, routed, destination, is_new)
        )

    def next_call(self) -> str:
        """What the next call is called between the worker and its tabs."""
        return str(next(self._numbers))

    # -- calls that went by the lane ----------------------------------------------------------------------------------

    def find_plain(self, name: str) -> Destination | None:
        """Where a tool is called without any wait: see Hub."""
        presence = self.presence
        destination = find_destination(self._listing(), presence.tabs, presence.departed, "tools", name, None)
        item = None if destination is None else self._tool(name, destination)
        if destination is None or item is None or not destination.is_ready:
            return None
        return (
            None
            if self.approvals.is_required(destination.key, item, destination.tab, presence.present)
            else destination
        )

    def must_wait(self, destination: Destination, *, is_new: bool = False) -> bool:
        """Must its tab show first that it reads, because another tab could take the call? `is_new`: calls that wait
        already come first."""
        tab = destination.tab
        if tab is None or not destination.has_rivals or not tab.is_awake:
            return False
        if is_new:
            self.sync()
        # defence: a busy tab: a call that another tab could take waits until its tab reads
        return not self._responsiveness.responds(tab, is_new)

    def sent(self, plain: PlainCall, tab: Tab) -> None:
        """It is under way to its tab."""
        self.plain_calls[plain.call] = plain
        tab.read_state.posted(plain.call)
        tab.calls += 1
        if tab.calls == 1:
            self._liveness.watch(tab, plain.began_ms)

    def ended(self, plain: PlainCall, tab: Tab) -> None:
        """Its tab has answered."""
        del self.plain_calls[plain.call]
        # The clock is not read for each call. It was heard after this, which is all that counts.
        tab.read_state.received(max(tab.read_state.received_ms, plain.began_ms), plain.call)
        tab.calls -= 1
        if tab.calls:
            self._liveness.received(tab)
        else:
            self._liveness.release(tab)

    def served(self, tab: Tab) -> None:
        """It has answered a call that nobody knew of before."""
        if tab.calls:
            self._liveness.received(tab)

    def update_window(self, tab: Tab, received_ms: float, window: int) -> None:
        """JavaScript heard it last at that time, and found that it can take so many calls."""
        tab.read_state.received_ms, tab.read_state.window = max(tab.read_state.received_ms, received_ms), window

    def take_over(self, plain: PlainCall, request: Request, done: Done) -> Cancel:
        """It runs on as if it had begun here."""
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
        """What somebody has to allow first; None for what is no tool, and for what was allowed for the session."""
        item = self._tool(routed.key, destination) if routed.purpose == "tools" else None
        if item is None or not self.approvals.is_required(
            destination.key, item, destination.tab, self.presence.present
        ):
            return None
        asked = ApprovalRequest(destination.key, item, destination.tab, request.caller, routed.arguments)
        return None if self.approvals.is_granted(asked) else asked

    def _tool(self, key: str, destination: Destination) -> Item | None:
        """The tool, as whoever offers it there defines it now."""
        entry = self._listing().find("tools", key)
        if entry is None:
            return None
        offer = destination.tab.offers["tools"].get(destination.key) if destination.tab is not None else None
        return offer.item if offer is not None else entry.item

    def _ask_first(
        self, run: Run, routed: RoutedRequest, asked: ApprovalRequest, request: Request, done: Done
    ) -> Cancel:
        """The call waits until somebody has allowed it. Its place is ready: whoever is asked has a page."""
        stops = [self._cancel(run)]

        def go() -> None:
            try:
                destination = self._find_destination(routed)
                item = None if destination is None else self._tool(routed.key, destination)
                # What was allowed is what was shown: this tool of this tab, as it was defined then.
                # defence: a tool that changed while somebody was asked
                if destination is None or item is None or not asked.matches(destination.key, item, destination.tab):
                    raise _changed_meanwhile(routed.key)
                stops.append(self._run_at(run, routed, destination))
            except RoutingError as error:
                run.fail(error)
            except Exception as error:  # it is too late to raise: whoever called has long been told to wait
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
        """Send a call to its tab, or keep it for a moment if the tab is being loaded again."""
        self._running[run.call] = run
        self._send(run, routed, destination, is_new)
        return self._cancel(run)

    def _cancel(self, run: Run) -> Cancel:
        def cancel(reason: str) -> None:
            # It runs, is held, or somebody is asked about it: one that was held may have become any of them.
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

    # -- calls that wait for a page to come back, and the end of each ------------------------------------------------

    def _fail_if_absent(self, call: str) -> None:
        """A tab that was left without a word is not back: whoever calls it need not wait for what may never come."""
        routed, run = self._held.get(call), self._running.get(call)
        if routed is not None and run is not None and run.tab is not None and run.tab.port is None:
            run.fail(tab_left(run.tab, routed.key))

    def _fail_if_unresponsive(self, call: str) -> None:
        """None of the tabs that have the thing has shown for long that it reads."""
        routed, run = self._held.get(call), self._running.get(call)
        if routed is not None and run is not None and run.tab is not None and run.tab.port is not None:
            run.fail(tab_asleep(run.tab, routed.key))

    def release_held(self) -> None:
        """Something changed: calls that waited for a tab go to it, to another that has the same, or fail."""
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
        """What is there now may be another tool than the one that was called, of a page or an operator that wants more
        to be asked about: it needs what a call that comes now would need."""
        asked, allowed = self._needed_approval(routed, destination, run), self._allowed.get(run.call)
        # defence: a call that goes on with another tool
        if asked is None or (allowed is not None and allowed.matches(asked.name, asked.item, asked.owner)):
            self._send(run, routed, destination, is_new=False)
        elif allowed is not None:
            run.fail(_changed_meanwhile(routed.key))
        else:
            # Until it is sent, no tab has a say in it.
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
    return RoutingError(f'"{name}" was changed, or is another page\'s now. Try again. It was not run.', "tab_gone")
