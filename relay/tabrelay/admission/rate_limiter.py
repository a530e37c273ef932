"""Rate limiter: one token bucket for each key, refilled at a steady rate.

Pure: time is an argument. Does not know what a key is, and does not write the refusal.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_KNOWN: Final = 1024  # buckets; the least recently used is dropped first, and its key starts with a full one


class RateLimiter:
    """`take` returns 0.0 if the request is within the rate, else the seconds until the next one is."""

    def __init__(self, per_s: float, burst: int) -> None:
        """`per_s` 0: there is no limit."""
        self.is_limited = per_s > 0
        self._per_s = per_s
        self._burst = float(max(burst, 1))
        self._buckets: OrderedDict[str, list[float]] = OrderedDict()  # [level, time of that level]

    def take(self, key: str, now: float) -> float:
        if not self._per_s:
            return 0.0
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = [self._burst, now]
            if len(self._buckets) > MAX_KNOWN:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        level = min(self._burst, bucket[0] + (now - bucket[1]) * self._per_s)
        bucket[1] = now
        if level < 1.0:
            bucket[0] = level
            return (1.0 - level) / self._per_s
        bucket[0] = level - 1.0
        return 0.0
