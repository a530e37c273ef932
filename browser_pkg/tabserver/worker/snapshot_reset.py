"""Reset of interpreter state after a memory snapshot: the seed of `random`, and the time zone.

A worker's Python may have been started once, at build time, on another machine, so what it read then must be read again
in the browser. Functions that read the clock or the system's randomness at each call (`time.time`, `secrets`, `uuid4`)
need no reset. The seed of `hash()` stays the snapshot's: it can't be changed in a running Python.
"""

from __future__ import annotations

import random
import time


def reset_after_snapshot() -> None:
    """Call this once, before anything else. After a start without a snapshot it has no relevant effect."""
    random.seed()
    _set_time_zone()


def _set_time_zone() -> None:
    """Set the constants of `time` as CPython computes them at its start: from January and July of this year."""
    year = time.gmtime().tm_year
    january, july = (time.localtime(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) for month in (1, 7))
    standard, summer = (january, july) if january.tm_gmtoff <= july.tm_gmtoff else (july, january)
    time.timezone, time.altzone = -standard.tm_gmtoff, -summer.tm_gmtoff
    time.daylight = int(standard.tm_gmtoff != summer.tm_gmtoff)
    time.tzname = (standard.tm_zone, summer.tm_zone)
