"""How long to wait before the next try, and when to stop trying. Pure: chance is an argument."""

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
    """After so many failures in a row; `chance` is in [0, 1). Half is certain, so that nobody hammers; the rest spreads
    out the bridges that lost the same server."""
    whole = min(LISTEN_LONGEST_S, LISTEN_FIRST_S * 2.0 ** (failures - 1))
    return whole / 2 + chance * whole / 2


def post_wait_s(attempt: int) -> float:
    return min(POST_LONGEST_S, POST_FIRST_S * 2.0 ** (attempt - 1))


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Whether a message that failed may be sent once more, and after how long."""

    attempt: int
    """The one that just failed, from 1."""

    is_repeatable: bool
    """It does no harm twice, or it certainly was not delivered."""

    def after_status(self, status: int, retry_after_s: float | None) -> float | None:
        """Seconds to wait; None: do not try again. A server that wants to be left alone for longer gets its will."""
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
    """The header's seconds, or the seconds until its date; None if it says neither."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
