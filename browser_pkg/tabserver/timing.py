"""Timeouts and delays of the worker, and its monotonic time since 1970.

A page may override the values (`connect({ timing })`). The first tab of a worker decides. Times of the link are in
`wire.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from .wire.limits import CONNECT_S, LONGEST_DELAY_S


@dataclass(frozen=True, slots=True)
class Timing:
    """All values are seconds.

    - `connect_s`: a connection attempt is cancelled after this time.
    - `first_delay_s`, doubling to `longest_delay_s`: pauses between attempts. They start over once a link was up for
      `stable_s`.
    - `watchdog_s`: without a frame for this long, the socket is closed. 0: derived from the relay's heartbeat.
    - `tab_quiet_s`: a tab that runs a call and sends nothing for this long is pinged.
    - `tab_silence_s`: without a reply for this long, the tab's calls fail. The value is large because a tool that
      computes synchronously can't reply.
    - `tab_return_s`: a tab whose page was left is kept for this long with its tools, because most pages are reloading.
    - `last_tab_return_s`: the same for the only tab.
    - `tab_doubt_s`: calls wait only this long for a page that did not say that it navigates within its origin.
    - `tab_busy_s`: a tab that does not reply to a ping for this long gets no call that another tab could take.
    - `approve_s`: an approval dialog waits this long; `approve_unseen_s`: in a tab that is not visible.
    """

    connect_s: float = CONNECT_S
    first_delay_s: float = 1.0
    longest_delay_s: float = LONGEST_DELAY_S
    stable_s: float = 10.0
    watchdog_s: float = 0.0
    tab_quiet_s: float = 5.0
    tab_silence_s: float = 30.0
    tab_return_s: float = 3.0
    last_tab_return_s: float = 10.0
    tab_doubt_s: float = 1.0
    tab_busy_s: float = 0.5
    approve_s: float = 120.0
    approve_unseen_s: float = 10.0

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Timing:
        """A page's own timing, in milliseconds (`connect_ms`, …). A value that is not a positive number is ignored."""
        times = {}
        for item in fields(cls):
            value = given.get(item.name.removesuffix("_s") + "_ms")
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
                times[item.name] = value / 1000
        return cls(**times)


DEFAULTS: Final = Timing()


def steady_ms(since_1970_ms: float, now_s: Callable[[], float]) -> Callable[[], float]:
    """Milliseconds since 1970, which is the unit of pages, by a monotonic clock. The time of day is read once: it may
    be set at any time, forwards or backwards, and waits and durations must not depend on it (L14)."""
    offset_ms = since_1970_ms - now_s() * 1000
    return lambda: offset_ms + now_s() * 1000
