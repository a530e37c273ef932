"""Retry policy: how long to wait before the next attempt, and when to give up.

Two schedules: reconnecting the server's stream (0.5 to 30 s, with jitter) and repeating a POST (0.2 to 1 s, and
Retry-After up to 60 s). Pure: the random number and the time are arguments. It does not decide which messages may be
repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LISTEN_TRIES: Final = 10
LISTEN_FIRST_S: Final = 0.5
LISTEN_LONGEST_S: Final = 30.0

POST_TRIES: Final = 3
POST_FIRST_S: Final = 0.2
POST_LONGEST_S: Final = 1.0
TRANSIENT: Final = frozenset({429, 500, 502, 503, 504})
LONGEST_RETRY_AFTER_S: Final = 60.0


def listen_wait_s(failures: int, chance: float) -> float:
    """The wait after `failures` in a row; `chance` is in [0, 1). Half of it is fixed, so that a bridge does not flood
    the server; the other half spreads out the bridges that lost the same server."""
    whole = min(LISTEN_LONGEST_S, LISTEN_FIRST_S * 2.0 ** (failures - 1))
    return whole / 2 + chance * whole / 2


def post_wait_s(attempt: int) -> float:
    return min(POST_LONGEST_S, POST_FIRST_S * 2.0 ** (attempt - 1))


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Whether a message that failed may be sent again, and after how long."""

    attempt: int
    """The attempt that just failed, counted from 1."""

    is_repeatable: bool
    """The message is idempotent, or it was certainly not delivered."""

    def after_status(self, status: int, retry_after_s: float | None) -> float | None:
        """Seconds to wait; None: do not try again, also when the server asks for a longer wait."""
        if status not in TRANSIENT or not self._may:
            return None
        if retry_after_s is None:
            return post_wait_s(self.attempt)
        return max(retry_after_s, post_wait_s(self.attempt)) if retry_after_s <= LONGEST_RETRY_AFTER_S else None

    def after_failure(self) -> float | None:
        return post_wait_s(self.attempt) if self._may else None

    @property
    def _may(self) -> bool:
        return self.is_repeatable and self.attempt < POST_TRIES


def read_retry_after(value: str | None, now: float) -> float | None:
    """The header's seconds, or the seconds until its date; None if it has neither."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
