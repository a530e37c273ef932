"""Monotonic clock of the worker, in seconds and in milliseconds since 1970.

All waits and durations of the worker use it. It does not follow changes of the time of day.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import js

from ..timing import steady_ms

# Python reads this clock without a proxy; a call into JavaScript would need one.
now_s: Final = time.monotonic


def steady_clock() -> Callable[[], float]:
    """Milliseconds since 1970, as in `steady_ms`. `granted_calls.js` reads the same clock."""
    # defence: stalls: the time of day is set, and the worker's waits go on
    return steady_ms(js.performance.timeOrigin + js.performance.now(), now_s)
