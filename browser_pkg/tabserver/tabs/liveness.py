"""Liveness check of tabs, and detection of busy ones.

A tab that runs a call and sends nothing for a while gets a ping, and is lost without a pong. A tab that closes or
crashes releases its Web Lock, which the worker notices at once. A tab that the browser froze, or that is paused in a
debugger, keeps its lock: the ping finds it, and sooner if the page could still report that it freezes.

A page that computes without a pause reads nothing, and a call that was posted to it can't be taken back. So a call that
another tab could take as well is posted only to a tab that sent a message a moment ago and has few unread calls. Any
other tab is pinged first, and the call waits. Calls are sent and held in `calls`; unread messages are counted in `tab`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ..timing import DEFAULTS, Timing
from .tab import Tab, TabReadState

T = TypeVar("T", bound=Hashable)

Later = Callable[[float, Callable[[], None]], None]

# If a timer fires this late, the worker itself was blocked, and answers may still be unread: the ping is sent again.
LATE_MS: Final = 500.0


@dataclass(slots=True)
class _WatchedTab:
    received_ms: float
    asked_ms: float | None = None
    is_frozen: bool = False


class LivenessCheck(Generic[T]):
    """`ask` sends a ping, `lost` is called with a tab that did not answer, `later` starts a timer of milliseconds."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], float],
        later: Later,
        ask: Callable[[T], None],
        lost: Callable[[T], None],
        timing: Timing = DEFAULTS,
    ) -> None:
        self._timing = timing
        self._now_ms = now_ms
        self._later = later
        self._ask = ask
        self._lost = lost
        self._watched: dict[T, _WatchedTab] = {}
        self._due_ms: float | None = None

    def watch(self, tab: T, now_ms: float) -> None:
        """A call runs in this tab from now on."""
        if tab not in self._watched:
            self._watched[tab] = _WatchedTab(now_ms)
            # A timer that fires before this tab is due checks all tabs and starts the next timer.
            if self._due_ms is None or now_ms + self._timing.tab_quiet_s * 1000 < self._due_ms:
                self._arm()

    def received(self, tab: T) -> None:
        """The tab sent a message of any kind."""
        watched = self._watched.get(tab)
        if watched is None:
            return
        was_doubted = watched.is_frozen or watched.asked_ms is not None
        watched.received_ms, watched.asked_ms, watched.is_frozen = self._now_ms(), None, False
        if was_doubted:  # otherwise the deadline moved back, and the running timer finds nothing to do
            self._arm()

    def frozen(self, tab: T) -> None:
        """The page reported that the browser freezes it. It may resume soon, but it could not answer a ping."""
        if tab in self._watched:
            self._watched[tab] = _WatchedTab(self._now_ms(), is_frozen=True)
            self._arm()

    def release(self, tab: T) -> None:
        """No call runs in this tab any more."""
        self._watched.pop(tab, None)

    def _arm(self) -> None:
        """One timer serves all tabs. An earlier deadline replaces it; a timer that fires too early does nothing."""
        if not self._watched:
            return
        due_ms = min(map(self._deadline, self._watched.values()))
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._later(max(0.0, due_ms - self._now_ms()), lambda: self._timer_fired(due_ms))

    def _deadline(self, watched: _WatchedTab) -> float:
        if watched.asked_ms is None:
            return watched.received_ms + self._timing.tab_quiet_s * 1000
        return watched.asked_ms + self._timing.tab_silence_s * 1000

    def _timer_fired(self, due_ms: float) -> None:
        if due_ms != self._due_ms:
            return  # replaced by an earlier one
        self._due_ms = None
        now_ms = self._now_ms()
        for tab, watched in list(self._watched.items()):
            if self._deadline(watched) > now_ms:
                continue
            if now_ms - due_ms > LATE_MS or not (watched.is_frozen or watched.asked_ms is not None):
                watched.asked_ms = now_ms
                self._ask(tab)
            else:
                self.release(tab)
                self._lost(tab)
        self._arm()


# If a timer fires this late, the worker itself was blocked, and the tab's answer may be unread: wait once more.
BUSY_LATE_MS: Final = 250.0


class Responsiveness:
    """`changed` is called when a tab becomes busy: it did not answer a ping in time. Until it sends a message, other
    tabs are preferred.

    The window of unread calls is one after a pause, and one more each time that the tab reads on with that many calls
    before it, up to a limit.
    """

    def __init__(
        self, *, now_ms: Callable[[], float], later: Later, changed: Callable[[], None], timing: Timing
    ) -> None:
        self._timing = timing
        self._now_ms, self._later, self._changed = now_ms, later, changed

    def responds(self, tab: Tab, is_new: bool) -> bool:
        """May a call be posted to the tab, although another tab could take it? A tab with an open ping has calls that
        wait for it, and a new call must wait behind those."""
        # defence: a busy tab: calls that wait come first
        return not (is_new and tab.read_state.pings) and tab.read_state.has_room(self._now_ms())

    def received(self, tab: Tab, call: str | None, is_pong: bool) -> None:
        """The tab sent a message, possibly about that call."""
        tab.read_state.is_awaited = False
        tab.read_state.received(self._now_ms(), call)
        if is_pong:
            tab.read_state.received_pong()

    def ask(self, tab: Tab) -> None:
        """A call waits until this tab reads its messages: ping it, and start the timer for the answer."""
        state = tab.read_state
        if state.is_awaited:
            return
        state.is_awaited, state.asked_ms = True, self._now_ms()
        # One ping at a time. Any message of the tab makes held calls ask again: more pings would fill its queue.
        # defence: a busy tab: one ping at a time
        if not state.pings:
            tab.ping()
        if not state.is_timed:
            self._wait(tab, state, self._timing.tab_busy_s * 1000)

    def _wait(self, tab: Tab, state: TabReadState, wait_ms: float) -> None:
        due_ms = self._now_ms() + wait_ms
        state.is_timed = True

        def fire() -> None:
            state.is_timed = False
            if not state.is_awaited or tab.read_state is not state or tab.port is None:
                return
            busy_ms = self._timing.tab_busy_s * 1000
            left_ms = state.asked_ms + busy_ms - self._now_ms()
            if self._now_ms() - due_ms > BUSY_LATE_MS:
                self._wait(tab, state, busy_ms)
            elif left_ms > 0:
                self._wait(tab, state, left_ms)
            else:
                tab.is_busy = True
                self._changed()

        self._later(wait_ms, fire)
