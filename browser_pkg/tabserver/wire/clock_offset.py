"""Offset between the clocks of the two ends of a link, from exchanges of time stamps as in NTP (F7).

An exchange bounds the offset to half of its round trip. The best exchange counts until a later one is better, its
error plus the drift of both clocks since then: one slow direction of the network changes nothing for minutes. Reads no
clock and sends nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# By how much two clocks may drift apart: 200 ppm is twice what quartz and time servers do.
DRIFT: Final = 200e-6
# An answer to an older question is of no use.
LONGEST_S: Final = 60.0
# At first several exchanges, because the first ones wait for a process that has just been woken.
EARLY: Final = 8
EARLY_PAUSE_S: Final = 0.1
PAUSE_S: Final = 5.0


class ClockExchange(NamedTuple):
    """`offset_s`: the other end's clock minus ours, at most `error_s` wrong; `at`: by our clock."""

    offset_s: float
    error_s: float
    at: float

    def error_at(self, now: float) -> float:
        return self.error_s + abs(now - self.at) * DRIFT


class ClockOffset:
    """One for each link."""

    def __init__(self) -> None:
        self.best: ClockExchange | None = None
        self._asked = float("-inf")
        self._count = 0

    def is_due(self, now: float) -> bool:
        """Is it time for another exchange?"""
        return now - self._asked >= (EARLY_PAUSE_S if self._count < EARLY else PAUSE_S)

    def asked(self, now: float) -> None:
        self._asked = now

    def answered(self, sent: float, theirs: float, now: float) -> None:
        """The other end's clock read `theirs` between `sent` and `now` of ours. A stamp that we can't have sent is
        ignored."""
        # defence: time stamps of a worker
        if not 0.0 <= now - sent <= LONGEST_S:
            return
        self._count += 1
        half = (now - sent) / 2
        new = ClockExchange(theirs - (sent + half), half, now)
        if self.best is None or new.error_s <= self.best.error_at(now):
            self.best = new
