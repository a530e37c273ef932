"""The waits of the worker, as one value. The defaults are for everybody; a page may bring others, as tests do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from .wire.limits import CONNECT_S, LONGEST_DELAY_S


@dataclass(frozen=True, slots=True)
class Timing:
    """`connect_s`: a dial that takes longer is given up. `first_delay_s`, doubling to `longest_delay_s`: the pauses
    between dials; from the start again once a link was up for `stable_s`. `watchdog_s`: a relay that says nothing
    for so long is gone; 0: the wait follows from the heartbeat that the relay announces. `tab_quiet_s`: a tab that
    runs a call and says nothing for so long is asked whether it lives. `tab_silence_s`: without an answer for so
    long, its calls fail. That is long on purpose: a tool that computes without a pause can't answer either, and is
    not dead. `tab_return_s`: a tab whose page was left is kept for so long, with its tools and the calls that come
    meanwhile: most pages that go are only being reloaded. `last_tab_return_s`: the same for the only tab, for which
    there is nobody else anyway. `tab_doubt_s`: calls for a tab wait only so long if its page did not say that it
    leads to another one: closed, or reloaded by the browser's own button, nobody can tell. `tab_busy_s`: a tab that
    does not answer a ping for so long gets no call that another tab could take. `approve_s`: a question to the user
    waits so long, and `approve_unseen_s` in a tab that nobody sees.
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
        """A page's own timing, in milliseconds (`connect_ms`, …). What is no positive number stays as it is."""
        times = {}
        for item in fields(cls):
            value = given.get(item.name.removesuffix("_s") + "_ms")
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
                times[item.name] = value / 1000
        return cls(**times)


DEFAULTS: Final = Timing()


def steady_ms(since_1970_ms: float, now_s: Callable[[], float]) -> Callable[[], float]:
    """Milliseconds since 1970, as pages understand time, by a clock that goes on evenly. The time of day is read once:
    it may be set at any time, forwards or backwards, and waits and durations must not depend on it."""
    offset_ms = since_1970_ms - now_s() * 1000
    return lambda: offset_ms + now_s() * 1000
