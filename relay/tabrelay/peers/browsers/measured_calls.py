"""Measured calls of a browser: what observers of calls get to know of the link, and the offset of the worker's clock.

The clock is read only while calls are observed (F7), at first several times, then every few seconds. Calls without an
observer cost one check. What an observer makes of it is decided in `observe`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from tabrelay.calls.calls import Pending
from tabrelay.calls.trace_context import Trace
from tabserver.wire.call_times import ReportedTimes
from tabserver.wire.clock_offset import ClockOffset
from tabserver.wire.link import Link


class MeasuredCalls:
    """One for each link."""

    def __init__(self, link: Link[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._link, self._loop = link, loop
        self._clock = ClockOffset()

    def sending(self, trace: Trace, *, again: bool) -> bool:
        """A call with an observer is about to be sent. Should the worker take its times?"""
        if again:
            trace.happened("replay", "The call is sent again: the worker of the browser knows whether it has run.")
        if not trace.is_timed:
            return False
        now = time.monotonic()  # the time of the event loop is up to an iteration old
        if self._clock.is_due(now):
            self._clock.asked(now)
            self._link.ask_clock(round(now * 1e6), self._loop.time())
        return True

    def clock_read(self, stamp: int, theirs: float) -> None:
        self._clock.answered(stamp / 1e6, theirs, time.monotonic())

    def answered(self, trace: Trace, reported: object) -> None:
        trace.answered(ReportedTimes.read(reported), self._clock)


def report(calls: Iterable[Pending], kind: str, text: str) -> None:
    """Something happened to the connection that has these calls."""
    for pending in calls:
        if pending.call.trace is not None:
            pending.call.trace.happened(kind, text)
