"""Backoff of the worker: whether and when to dial again, for each way in which a socket can end (L10).

After a drop 1 s, doubling to 3 s, without a limit of attempts; from the start again only after the link was stable. At
once if the relay announced a restart. While another page holds the name 2 s, doubling to 30 s. Never if dialing would
meet the same refusal, or would replace the browser that has taken over. Pure: it has no timer and no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..timing import DEFAULTS, Timing
from ..wire.events import ByeReceived
from ..wire.frames import CLOSE_FORBIDDEN, CLOSE_GOING_AWAY, CLOSE_REPLACED, CLOSE_RESTART, CLOSE_UNAUTHORIZED
from ..wire.limits import JITTER
from .dialing import DialError

# A name that another page holds is free when that page is closed, which takes longer than a restart.
TAKEN_FIRST_S: Final = 2.0
TAKEN_LONGEST_S: Final = 30.0
_RESTARTING: Final = frozenset({CLOSE_GOING_AWAY, CLOSE_RESTART})
_FINAL: Final = {
    CLOSE_UNAUTHORIZED: ("unauthorized", "The relay does not accept this token. Run: tabrelay pair"),
    CLOSE_FORBIDDEN: ("forbidden", "This token may not offer this server."),
    CLOSE_REPLACED: ("replaced", "Another browser offers this server now."),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Dial again after `delay_s`, or not at all if it is None."""

    why: str
    message: str
    delay_s: float | None


class Backoff:
    """`jitter` returns numbers from 0 to 1, as `random.random` does."""

    def __init__(self, jitter: Callable[[], float], timing: Timing = DEFAULTS) -> None:
        self._jitter = jitter
        self._timing = timing
        self.reset()

    def reset(self) -> None:
        self._drops = 0
        self._times_taken = 0
        self._has_redialed_at_once = False

    def was_up(self, seconds: float) -> None:
        """A socket closed that had been up for this long."""
        if seconds >= self._timing.stable_s:
            self.reset()

    def after_failure(self, error: DialError) -> Verdict:
        if error.permanent:
            return Verdict(error.why, error.message, None)
        delay_s = self._taken_delay_s() if error.why == "taken" else self._next_delay_s()
        return Verdict(error.why, error.message, delay_s)

    def after_close(self, code: int, reason: str, bye: ByeReceived | None, *, was_up: bool) -> Verdict:
        """A `bye` takes precedence over the close code, which a proxy or a crash may have removed."""
        if bye is not None:
            code, reason = bye.code, bye.reason or reason
        if bye is not None and code == CLOSE_FORBIDDEN and reason:
            # L8: the name is held by a page of another principal, or reserved for one during its grace.
            return Verdict("taken", reason, max((bye.retry_ms or 0) / 1000, self._taken_delay_s()))
        # L10: 4401, 4403 and 4409 end the attempts.
        if code in _FINAL:
            return Verdict(*_FINAL[code], None)
        why, message = "lost", f"The connection was lost ({code}{': ' + reason if reason else ''})."
        announced_s = ((bye.retry_ms if bye else None) or 0) / 1000
        if reason == "drain":  # L13
            why, message = "restarting", "The relay is restarting."
        if reason == "stop":  # L13
            why, message = "relay_down", "The relay was stopped."
        # L10: at once after 1001 and 1012, but only once until the link has been stable: a relay that closes every
        # socket at once would be dialed in a tight loop.
        if (code in _RESTARTING or reason in ("drain", "stop")) and was_up and not self._has_redialed_at_once:
            self._has_redialed_at_once = True
            return Verdict(why, message, announced_s)
        return Verdict(why, message, max(announced_s, self._next_delay_s()))

    def _taken_delay_s(self) -> float:
        """Doubling from 2 s to 30 s, with the same jitter."""
        delay_s = min(TAKEN_FIRST_S * 2.0 ** min(self._times_taken, 8), TAKEN_LONGEST_S)
        self._times_taken += 1
        return delay_s * (1 - JITTER + 2 * JITTER * self._jitter())

    def _next_delay_s(self) -> float:
        """± 10 %, so that many pages do not reconnect in the same instant, but never under the first delay."""
        first_s = self._timing.first_delay_s
        delay_s = min(first_s * 2.0 ** min(self._drops, 8), self._timing.longest_delay_s)
        self._drops += 1
        return float(max(first_s, delay_s * (1 - JITTER + 2 * JITTER * self._jitter())))
