"""Is a tab alive? It is asked only while it runs a call, and only when it has said nothing for a while.

A tab that closes or crashes gives up its Web Lock, and that tells at once. A tab that the browser froze keeps its lock,
and so does one that stands in a debugger: those are found here, by a question over the port that stays unanswered, and
sooner if the tab could still say that it freezes. Nothing here decides about calls: it says which tab is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ..timing import DEFAULTS, Timing

T = TypeVar("T", bound=Hashable)

Later = Callable[[float, Callable[[], None]], None]

# A timer that rings this late was held up by the worker itself, and answers may lie unread: then the question is new.
LATE_MS: Final = 500.0


@dataclass(slots=True)
class _WatchedTab:
    received_ms: float
    asked_ms: float | None = None
    is_frozen: bool = False


class LivenessCheck(Generic[T]):
    """Watches tabs. `ask` sends the question, `lost` is told of a tab that did not answer; `later` is a timer in ms."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], float],
        later: Later,
        ask: Callable[[T], None],
        lost: Callable[[T], None],
        timing: Timing = DEFAULTS,
    ) -> None:
        self.timing = timing
        self._now_ms = now_ms
        self._later = later
        self._ask = ask
        self._lost = lost
        self._watched: dict[T, _WatchedTab] = {}
        self._due_ms: float | None = None

    def watch(self, tab: T, now_ms: float) -> None:
        """A call waits in this tab."""
        if tab not in self._watched:
            self._watched[tab] = _WatchedTab(now_ms)
            # A timer that is set before its time rings first, and then looks at all of them.
            if self._due_ms is None or now_ms + self.timing.tab_quiet_s * 1000 < self._due_ms:
                self._arm()

    def received(self, tab: T) -> None:
        """It said something, whatever that was."""
        watched = self._watched.get(tab)
        if watched is None:
            return
        was_doubted = watched.is_frozen or watched.asked_ms is not None
        watched.received_ms, watched.asked_ms, watched.is_frozen = self._now_ms(), None, False
        if was_doubted:  # else there is more time than before, and the timer that is set finds nothing to do
            self._arm()

    def frozen(self, tab: T) -> None:
        """It said that the browser stops it now. It may be back soon, but to ask would be in vain."""
        if tab in self._watched:
            self._watched[tab] = _WatchedTab(self._now_ms(), is_frozen=True)
            self._arm()

    def release(self, tab: T) -> None:
        """Nobody waits for this tab any more."""
        self._watched.pop(tab, None)

    def _arm(self) -> None:
        """One timer for all tabs. One that is too late is replaced; one that is too early finds nothing to do."""
        if not self._watched:
            return
        due_ms = min(map(self._deadline, self._watched.values()))
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._later(max(0.0, due_ms - self._now_ms()), lambda: self._timer_fired(due_ms))

    def _deadline(self, watched: _WatchedTab) -> float:
        if watched.asked_ms is None:
            return watched.received_ms + self.timing.tab_quiet_s * 1000
        return watched.asked_ms + self.timing.tab_silence_s * 1000

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
