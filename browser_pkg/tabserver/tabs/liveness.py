"""Liveness check of tabs: a tab that runs a call and sends nothing for a while gets a ping, and is lost without a pong.

A tab that closes or crashes releases its Web Lock, which the worker notices at once. A tab that the browser froze, or
that is paused in a debugger, keeps its lock: this check finds it by a ping without an answer, and sooner if the page
could still report that it freezes. A tab without a call is not pinged. What happens to its calls is decided in `calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ..timing import DEFAULTS, Timing

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
