"""Detection of busy tabs: a call that several tabs could take goes to a tab that reads its messages.

A page that computes without a pause reads nothing, and a call that was posted to it can't be taken back. So a call that
another tab could take as well is posted only to a tab that sent a message a moment ago and has few unread calls. Any
other tab is pinged first, and the call waits. Calls are sent and held in `calls`; unread messages are counted in `tab`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..timing import Timing
from .liveness import Later
from .tab import Tab, TabReadState

# If a timer fires this late, the worker itself was blocked, and the tab's answer may be unread: wait once more.
LATE_MS: Final = 250.0


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
            if self._now_ms() - due_ms > LATE_MS:
                self._wait(tab, state, busy_ms)
            elif left_ms > 0:
                self._wait(tab, state, left_ms)
            else:
                tab.is_busy = True
                self._changed()

        self._later(wait_ms, fire)
