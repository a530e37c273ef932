"""When to dial again, and whether: one decision for each way a socket can end. Pure: no timer, no clock of its own.

After a drop 1 s, doubling to 3 s, for ever; from the start again only after the link was stable. At once when the relay
said that it comes back. Never when dialling would meet the same refusal, or throw out whoever took our place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..timing import DEFAULTS, Timing
from ..wire.events import Parted
from ..wire.frames import CLOSE_FORBIDDEN, CLOSE_GOING_AWAY, CLOSE_REPLACED, CLOSE_RESTART, CLOSE_UNAUTHORIZED
from ..wire.limits import JITTER
from .dialing import DialError

_RESTARTING: Final = frozenset({CLOSE_GOING_AWAY, CLOSE_RESTART})
_FINAL: Final = {
    CLOSE_UNAUTHORIZED: ("unauthorized", "The relay does not accept this token. Run: tabrelay pair"),
    CLOSE_FORBIDDEN: ("forbidden", "This token may not offer this server."),
    CLOSE_REPLACED: ("replaced", "Another browser offers this server now."),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comes next: dial after `delay_s`, or, if that is None, not at all."""

    why: str
    message: str
    delay_s: float | None


class Backoff:
    """`jitter` gives numbers from 0 to 1, as `random.random` does."""

    def __init__(self, jitter: Callable[[], float], timing: Timing = DEFAULTS) -> None:
        self._jitter = jitter
        self._timing = timing
        self.reset()

    def reset(self) -> None:
        self._drops = 0
        self._has_redialled_at_once = False

    def was_up(self, seconds: float) -> None:
        """A socket went away that had been welcomed that long ago."""
        if seconds >= self._timing.stable_s:
            self.reset()

    def after_failure(self, error: DialError) -> Verdict:
        return Verdict(error.why, error.message, None if error.permanent else self._next_delay_s())

    def after_close(self, code: int, reason: str, parted: Parted | None, *, was_up: bool) -> Verdict:
        """A goodbye that was said before knows better than the close code, which a proxy or a crash may have eaten."""
        if parted is not None:
            code, reason = parted.code, parted.reason or reason
        if parted is not None and code == CLOSE_FORBIDDEN and reason:
            # L8: the name is held by a page of another principal, or kept for one that is expected back soon.
            retry_ms = parted.retry_ms
            return Verdict("taken", reason, None if retry_ms is None else max(retry_ms / 1000, self._next_delay_s()))
        if code in _FINAL:
            return Verdict(*_FINAL[code], None)
        why, message = "lost", f"The connection was lost ({code}{': ' + reason if reason else ''})."
        announced_s = ((parted.retry_ms if parted else None) or 0) / 1000
        if reason == "drain":
            why, message = "restarting", "The relay is restarting."
        # Only once until the link has been stable, or a relay that closes at once would be dialled in a tight loop.
        if (code in _RESTARTING or reason == "drain") and was_up and not self._has_redialled_at_once:
            self._has_redialled_at_once = True
            return Verdict(why, message, announced_s)
        return Verdict(why, message, max(announced_s, self._next_delay_s()))

    def _next_delay_s(self) -> float:
        """± 10 %, so that many pages do not come back in the same instant, but never under the first delay."""
        first_s = self._timing.first_delay_s
        delay_s = min(first_s * 2.0 ** min(self._drops, 8), self._timing.longest_delay_s)
        self._drops += 1
        return float(max(first_s, delay_s * (1 - JITTER + 2 * JITTER * self._jitter())))
