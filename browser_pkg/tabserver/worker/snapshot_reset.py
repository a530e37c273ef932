"""What a memory snapshot froze and every browser must have of its own: chance, and the time zone.

A worker's Python may have been started once, at build time, on another machine. What reads the clock or the system's
randomness when it is asked (`time.time`, `secrets`, `uuid4`) is not touched by that. The seed of `hash()` stays the
snapshot's: it can't be changed in a running Python.
"""

from __future__ import annotations

import random
import time


def reset_after_snapshot() -> None:
    """Call it once, before anything else. After an ordinary start it changes nothing that matters."""
    random.seed()
    _set_time_zone()


def _set_time_zone() -> None:
    """The module's constants, as CPython computes them when it starts: from January and July of this year."""
    year = time.gmtime().tm_year
    january, july = (time.localtime(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) for month in (1, 7))
    standard, summer = (january, july) if january.tm_gmtoff <= july.tm_gmtoff else (july, january)
    time.timezone, time.altzone = -standard.tm_gmtoff, -summer.tm_gmtoff
    time.daylight = int(standard.tm_gmtoff != summer.tm_gmtoff)
    time.tzname = (standard.tm_zone, summer.tm_zone)
