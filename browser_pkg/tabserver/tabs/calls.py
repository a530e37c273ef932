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
from .routing import Destination, RoutingError, asleep, fell_silent, find_place, left, stayed_away, went
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
        self._pulse: LivenessCheck[Tab] = LivenessCheck(now_ms=now_ms, later=later, ask=Tab.ping, lost=self._silent)
        self._responsiveness = Responsiveness(now_ms=now_ms, later=later, changed=changed)
        self._introduction = CallerJson()
        self._running: dict[str, Run] = {}
        # Calls for tabs whose page is being loaded again, or that may be busy: nothing was sent, so another tab may
        # still get them.
        self._held: dict[str, RoutedRequest] = {}
        # What was allowed in a round before, of calls that go on.
        self._allowed: dict[str, ApprovalRequest] = {}
        self._numbers = itertools.count(1)
        # Calls that went by the lane, by number; how one of them becomes a Run; and the one that does so right now.
        self.plain: dict[str, PlainCall] = {}
        self.unfold: Callable[[PlainCall], None] = lambda plain: None
        # Before somebody looks for all calls of a tab: see express.py.
        self.catch_up: Callable[[], None] = lambda: None
        self.adopted: PlainCall | None = None

    def use_timing(self, timing: Timing) -> None:
        self._pulse.timing = self.approvals.timing = self._responsiveness.timing = timing

    @property
    def watchers(self) -> list[PagePort]:
        return self.presence.watchers

    # -- what tabs say ------------------------------------------------------------------------------------------------

    def heard(self, tab: Tab, call: object = None, is_pong: bool = False) -> None:
        """It said something, of that call perhaps."""
        self._pulse.heard(tab)
        self._responsiveness.heard(tab, call if isinstance(call, str) else None, is_pong)

    def froze(self, tab: Tab) -> None:
        self._pulse.froze(tab)

    def hear(self, tab: Tab, kind: str, message: Message) -> None:
        """What it says of a call. It may speak of its own only; a late answer to one that is over has no reader."""
        plain = self.plain.get(message["call"])
        if plain is not None and plain.tab is tab:
            self.unfold(plain)
        run = self._running.get(message["call"])
        if run is not None and run.tab is tab:
            run.hear(kind, message)

    def hear_result(self, tab: Tab, call: str, json: str, is_plain: bool) -> None:
        """The same, of what nearly all calls end with. `is_plain`: it may be passed on unread."""
        run = self._running.get(call)
        if run is not None and run.tab is tab:
            run.hear_result(json, is_plain)

    def left(self, tab: Tab) -> None:
        """Its page went."""
        self.approvals.left(tab)
        self._fail(tab, went)

    def _silent(self, tab: Tab) -> None:
        """It keeps its tools, for when it wakes up; until then another tab that offers the same comes first."""
        tab.is_silent = True
        for run in self._fail(tab, fell_silent):
            tab.send({"t": "cancel", "call": run.call, "reason": "The tab did not answer in time"})
        self._changed()

    def _fail(self, tab: Tab, why: Callable[[Tab, str], RoutingError]) -> list[Run]:
        """Tell whoever waits for this tab, and only those, what became of it."""
        # defence: calls that JavaScript carries out: told before all else ends
        self.catch_up()
        for plain in [plain for plain in self.plain.values() if plain.tab is tab]:
            self.unfold(plain)
        failed = [run for run in self._running.values() if run.tab is tab and run.call not in self._held]
        for run in failed:
            run.fail(why(tab, run.name))
        return failed

    # -- beginning ----------------------------------------------------------------------------------------------------

    def begin(self, errand: RoutedRequest, request: Request, done: Done, unknown: Callable[[str], Exception]) -> Cancel:
        """Start a call where what it wants lives. Raises `unknown`, Astray, and what the worker's own raises."""
        place = self._place(errand)
        if place is None:
            raise unknown(errand.key)
        if place.tab is not None and errand.target is not None and errand.target.pins and errand.target.tab:
            request.pin(place.tab.id)
        run = Run(self, self.next_call(), errand.purpose, errand.key, place.tab, request, done)
        asked = self._question(errand, place, request)
        if asked is not None and request.goes_on:
            # It comes again with the state that this worker sealed, and only once, or, in a session, with the answers
            # that the worker itself asked for: it was allowed before.
            self._allowed[run.call], asked = asked, None
        # A page that is being loaded can't ask, and may come back with another tool of this name: see release_held.
        # defence: a question about what a page offered before it was left
        if asked is None or not place.is_ready or self.must_wait(place, is_new=True):
            return self._run_at(run, errand, place, is_new=True)
        return self._ask_first(run, errand, asked, request, done)

    def _run_at(self, run: Run, errand: RoutedRequest, place: Destination, *, is_new: bool = False) -> Cancel:
        return self._run_own(run, errand.own) if place.tab is None else self._start(run, errand, place, is_new)

    def next_call(self) -> str:
        """What the next call is called between the worker and its tabs."""
        return str(next(self._numbers))

    # -- calls that went by the lane ----------------------------------------------------------------------------------

    def find_plain(self, name: str) -> Destination | None:
        """Where a tool is called without any wait: see Hub."""
        presence = self.presence
        place = find_place(self._listing(), presence.tabs, presence.departed, "tools", name, None)
        item = None if place is None else self._tool(name, place)
        if place is None or item is None or not place.is_ready:
            return None
        return None if self.approvals.is_wanted(place.key, item, place.tab, presence.present) else place

    def must_wait(self, place: Destination, *, is_new: bool = False) -> bool:
        """Must its tab show first that it reads, because another tab could take the call? `is_new`: calls that wait
        already come first."""
        tab = place.tab
        if tab is None or not place.has_rivals or not tab.is_awake:
            return False
        if is_new:
            self.catch_up()
        # defence: a busy tab: a call that another tab could take waits until its tab reads
        return not self._responsiveness.responds(tab, is_new)

    def sent(self, plain: PlainCall, tab: Tab) -> None:
        """It is under way to its tab."""
        self.plain[plain.call] = plain
        tab.signs.posted(plain.call)
        tab.calls += 1
        if tab.calls == 1:
            self._pulse.watch(tab, plain.began_ms)

    def ended(self, plain: PlainCall, tab: Tab) -> None:
        """Its tab has answered."""
        del self.plain[plain.call]
        # The clock is not read for each call. It was heard after this, which is all that counts.
        tab.signs.heard(max(tab.signs.heard_ms, plain.began_ms), plain.call)
        tab.calls -= 1
        if tab.calls:
            self._pulse.heard(tab)
        else:
            self._pulse.release(tab)

    def served(self, tab: Tab) -> None:
        """It has answered a call that nobody knew of before."""
        if tab.calls:
            self._pulse.heard(tab)

    def read_by(self, tab: Tab, heard_ms: float, window: int) -> None:
        """JavaScript heard it last at that time, and found that it can take so many calls."""
        tab.signs.heard_ms, tab.signs.window = max(tab.signs.heard_ms, heard_ms), window

    def take_over(self, plain: PlainCall, request: Request, done: Done) -> Cancel:
        """It runs on as if it had begun here."""
        self.adopted = None
        run = Run(self, plain.call, "tools", plain.name, plain.tab, request, done, plain.began_ms)
        if plain.own is not None:
            return self._run_own(run, plain.own)
        run.is_sent = True
        self._running[run.call] = run
        return self._cancel(run)

    def _question(self, errand: RoutedRequest, place: Destination, request: Request) -> ApprovalRequest | None:
        """What somebody has to allow first; None for what is no tool, and for what was allowed for the session."""
        item = self._tool(errand.key, place) if errand.purpose == "tools" else None
        if item is None or not self.approvals.is_wanted(place.key, item, place.tab, self.presence.present):
            return None
        asked = ApprovalRequest(place.key, item, place.tab, request.caller, errand.arguments)
        return None if self.approvals.is_granted(asked) else asked

    def _tool(self, key: str, place: Destination) -> Item | None:
        """The tool, as whoever offers it there defines it now."""
        entry = self._listing().find("tools", key)
        if entry is None:
            return None
        offer = place.tab.offers["tools"].get(place.key) if place.tab is not None else None
        return offer.item if offer is not None else entry.item

    def _ask_first(
        self, run: Run, errand: RoutedRequest, asked: ApprovalRequest, request: Request, done: Done
    ) -> Cancel:
        """The call waits until somebody has allowed it. Its place is ready: whoever is asked has a page."""
        stops = [self._cancel(run)]

        def go() -> None:
            try:
                place = self._place(errand)
                item = None if place is None else self._tool(errand.key, place)
                # What was allowed is what was shown: this tool of this tab, as it was defined then.
                # defence: a tool that changed while somebody was asked
                if place is None or item is None or not asked.is_still(place.key, item, place.tab):
                    raise _changed_meanwhile(errand.key)
                stops.append(self._run_at(run, errand, place))
            except RoutingError as error:
                run.fail(error)
            except Exception as error:  # it is too late to raise: whoever called has long been told to wait
                done(text_result(str(error), is_error=True))

        request.progress(0, None, f'Waiting until the user allows "{errand.key}" in the page')
        tab = asked.owner or max(self.presence.present, key=lambda tab: tab.rank, default=None)
        if tab is not None and not tab.is_awake:
            run.fail(asleep(tab, errand.key))
        else:
            self.approvals.ask(run.call, asked, tab, go, run.fail)
        return lambda reason: stops[-1](reason)

    def _place(self, errand: RoutedRequest) -> Destination | None:
        presence = self.presence
        return find_place(self._listing(), presence.tabs, presence.departed, errand.kind, errand.key, errand.target)

    def _start(self, run: Run, errand: RoutedRequest, place: Destination, is_new: bool) -> Cancel:
        """Send a call to its tab, or keep it for a moment if the tab is being loaded again."""
        self._running[run.call] = run
        self._send(run, errand, place, is_new)
        return self._cancel(run)

    def _cancel(self, run: Run) -> Cancel:
        def cancel(reason: str) -> None:
            # It runs, is held, or somebody is asked about it: one that was held may have become any of them.
            self.approvals.drop(run.call)
            if run.call in self._running and run.is_sent and run.tab is not None:
                run.tab.send({"t": "cancel", "call": run.call, "reason": reason})
            run.abandon("cancelled")

        return cancel

    def _send(self, run: Run, errand: RoutedRequest, place: Destination, is_new: bool) -> None:
        tab = run.tab = place.tab
        assert tab is not None
        if not place.is_ready:
            self._held[run.call] = errand
            if not tab.is_expected:
                self._later(self.presence.timing.tab_doubt_s * 1000, lambda: self._doubt(run.call))
        elif not tab.is_awake:
            run.fail(asleep(tab, errand.key))
        elif self.must_wait(place, is_new=is_new):
            self._held[run.call] = errand
            self._responsiveness.ask(tab)
            self._later(self.presence.timing.tab_silence_s * 1000, lambda: self._give_up(run.call))
        else:
            if errand.target is not None and errand.target.pins and errand.target.tab is None:
                run.pin(tab.id)
            run.is_sent = True
            tab.calls += 1
            self._pulse.watch(tab, self.now_ms())
            tab.post(run.call, run.text(errand.message(place.key), self._introduction))

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

    def _doubt(self, call: str) -> None:
        """A tab that was left without a word is not back: whoever calls it need not wait for what may never come."""
        errand, run = self._held.get(call), self._running.get(call)
        if errand is not None and run is not None and run.tab is not None and run.tab.port is None:
            run.fail(left(run.tab, errand.key))

    def _give_up(self, call: str) -> None:
        """None of the tabs that have the thing has shown for long that it reads."""
        errand, run = self._held.get(call), self._running.get(call)
        if errand is not None and run is not None and run.tab is not None and run.tab.port is not None:
            run.fail(asleep(run.tab, errand.key))

    def release_held(self) -> None:
        """Something changed: calls that waited for a tab go to it, to another that has the same, or fail."""
        if self._held:
            self.catch_up()
        for call, errand in list(self._held.items()):
            run = self._running[call]
            try:
                place = self._place(errand)
            except RoutingError as error:
                run.fail(error)
                continue
            if place is None or place.tab is None:
                assert run.tab is not None
                run.fail(stayed_away(run.tab, errand.key))
            elif place.is_ready and self.must_wait(place):
                run.tab = place.tab
                self._responsiveness.ask(place.tab)
            elif place.is_ready:
                del self._held[call]
                # defence: a tool that changed while a call waited for its page
                self._release(run, errand, place)

    def _release(self, run: Run, errand: RoutedRequest, place: Destination) -> None:
        """What is there now may be another tool than the one that was called, of a page or an operator that wants more
        to be asked about: it needs what a call that comes now would need."""
        asked, allowed = self._question(errand, place, run), self._allowed.get(run.call)
        # defence: a call that goes on with another tool
        if asked is None or (allowed is not None and allowed.is_still(asked.name, asked.item, asked.owner)):
            self._send(run, errand, place, is_new=False)
        elif allowed is not None:
            run.fail(_changed_meanwhile(errand.key))
        else:
            # Until it is sent, no tab has a say in it.
            del self._running[run.call]
            run.tab = place.tab
            self._ask_first(run, errand, asked, run, run.finish)

    def forget(self, run: Run) -> None:
        self._running.pop(run.call, None)
        self._held.pop(run.call, None)
        self._allowed.pop(run.call, None)
        if run.is_sent and run.tab is not None:
            run.tab.calls -= 1
            if not run.tab.calls:
                self._pulse.release(run.tab)


def _changed_meanwhile(name: str) -> RoutingError:
    return RoutingError(f'"{name}" was changed, or is another page\'s now. Try again. It was not run.', "tab_gone")
