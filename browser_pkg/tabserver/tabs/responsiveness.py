"""Which tabs read their messages: a call that several tabs could take goes to one that does.

A page that computes without a pause reads nothing, and a call that was posted to it can't be taken back. So a call that
another tab could take as well is posted only to a tab that has shown that it reads: a moment ago it had answered all
that it was sent. Any other tab is pinged first, and the call waits. A tab that does not answer the ping in time is
busy: until it says something, other tabs come first. Which call goes where is decided in `traffic`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..timing import DEFAULTS
from .liveness import Later
from .tab import Signs, Tab

# How long an answer shows that a tab reads. Callers that wait for each answer are faster, and need no ping.
FRESH_MS: Final = 100.0
# A timer that rings this late was held up by the worker itself, and the tab's answer may wait unread: wait once more.
LATE_MS: Final = 250.0


class Responsiveness:
    """`changed` is called when a tab becomes busy."""

    def __init__(self, *, now_ms: Callable[[], float], later: Later, changed: Callable[[], None]) -> None:
        self.timing = DEFAULTS
        self._now_ms, self._later, self._changed = now_ms, later, changed

    def responds(self, tab: Tab) -> bool:
        """May a call be posted to it, although another tab could take the call?"""
        return tab.signs.is_current and 0 <= self._now_ms() - tab.signs.heard_ms <= FRESH_MS

    def heard(self, tab: Tab, is_pong: bool = False) -> None:
        """It said something. A pong answers the oldest ping, and everything that was posted before that."""
        signs = tab.signs
        signs.heard_ms, signs.is_awaited = self._now_ms(), False
        if is_pong:
            signs.pongs += 1
        # defence: a busy tab: an answer to an older ping shows nothing
        if not tab.calls or (is_pong and signs.is_ping_last and signs.pongs >= signs.pings):
            signs.is_current = True

    def ask(self, tab: Tab) -> None:
        """A call waits for a sign of this tab."""
        signs = tab.signs
        if signs.is_awaited:
            return
        signs.is_awaited, signs.asked_ms = True, self._now_ms()
        # One ping at a time. Whatever the tab says makes calls that wait ask again: more pings would fill its queue.
        # defence: a busy tab: one ping at a time
        if signs.pings <= signs.pongs:
            tab.ping()
        if not signs.is_timed:
            self._wait(tab, signs, self.timing.tab_busy_s * 1000)

    def _wait(self, tab: Tab, signs: Signs, wait_ms: float) -> None:
        due_ms = self._now_ms() + wait_ms
        signs.is_timed = True

        def ring() -> None:
            signs.is_timed = False
            if not signs.is_awaited or tab.signs is not signs or tab.port is None:
                return
            busy_ms = self.timing.tab_busy_s * 1000
            left_ms = signs.asked_ms + busy_ms - self._now_ms()
            if self._now_ms() - due_ms > LATE_MS:
                self._wait(tab, signs, busy_ms)
            elif left_ms > 0:
                self._wait(tab, signs, left_ms)
            else:
                tab.is_busy = True
                self._changed()

        self._later(wait_ms, ring)
