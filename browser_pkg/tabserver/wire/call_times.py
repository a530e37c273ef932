"""Times of one call in its worker: taken by the worker for a request that asks for them, and read by the relay (F6).

All are seconds of the worker's clock; on the link they are whole microseconds. A page's times are clamped into the
interval in which its worker waited for it, because a page has another clock. The offset between worker and relay is
measured in `clock_offset`; what the spans mean to users is decided by the relay.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .control_messages import is_tab_id

# F6: waits in the worker that are reported of one call, and characters of their reasons.
MAX_HOLDS: Final = 8
MAX_HOLD_REASON: Final = 32
# Microseconds. More than any clock that a worker has.
MAX_TIME: Final = 2**53

LOADING: Final = "loading"  # the page of its tab is being loaded
BUSY: Final = "busy"  # its tab does not read messages
APPROVAL: Final = "approval"  # the user is asked


class CallTimes:
    """Taken while the call passes through the worker. It begins when the request is received."""

    __slots__ = ("_back", "_began", "_clock", "_held_since", "_holds", "_page", "_posted", "_received", "_tab")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._received = clock()
        self._holds: list[tuple[str, float, float]] = []
        self._held_since: tuple[str, float] | None = None
        self._posted: float | None = None
        self._began: float | None = None
        self._back: float | None = None
        self._page: tuple[float, float] | None = None
        self._tab: str | None = None

    def hold(self, why: str) -> None:
        """It waits in the worker from now on."""
        self._end_hold()
        self._held_since = why, self._clock()

    def _end_hold(self) -> None:
        held, self._held_since = self._held_since, None
        if held is not None and len(self._holds) < MAX_HOLDS:
            self._holds.append((*held, self._clock()))

    def post(self, tab: str) -> None:
        """It is about to be sent to this tab."""
        self._end_hold()
        self._posted, self._tab = self._clock(), tab

    def begin(self) -> None:
        """The worker itself is about to run it."""
        self._end_hold()
        self._began = self._clock()

    def ran_in_page(self, began_ago_s: float, ended_ago_s: float) -> None:
        """The page began and ended it so long ago."""
        now = self._clock()
        self._page = now - began_ago_s, now - ended_ago_s

    def end(self) -> None:
        """The worker has the outcome. Only the first one counts."""
        if self._back is None:
            self._end_hold()
            self._back = self._clock()

    def report(self) -> str:
        """As JSON text, when the response is written."""
        fields: dict[str, Any] = {"in": self._received, "out": self._clock()}
        named = (("post", self._posted), ("run", self._began), ("back", self._back))
        fields |= {name: value for name, value in named if value is not None}
        found: dict[str, Any] = {name: _whole(value) for name, value in fields.items()}
        if self._page is not None and self._posted is not None:
            found["page"] = [_whole(value) for value in self._page]
        if self._holds:
            found["holds"] = [[why, _whole(began), _whole(ended)] for why, began, ended in self._holds]
        if self._tab is not None:
            found["tab"] = self._tab
        return json.dumps(found, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ReportedTimes:
    """What a worker reported, in order: each time is at least as late as those before it. `run`: of a tool of the
    worker; `page`: in the tab."""

    received: float
    sent: float
    posted: float | None = None
    run: float | None = None
    back: float | None = None
    page: tuple[float, float] | None = None
    holds: tuple[tuple[str, float, float], ...] = ()
    tab: str | None = None

    @classmethod
    def read(cls, fields: object) -> ReportedTimes | None:
        """None: it is not a report. Single values that make no sense are left out."""
        if not isinstance(fields, dict):
            return None
        received, sent = _seconds(fields.get("in")), _seconds(fields.get("out"))
        if received is None or sent is None or sent < received:
            return None

        def between(value: object, least: float, most: float) -> float | None:
            seconds = _seconds(value)
            # defence: times that a worker reports
            return None if seconds is None else min(max(seconds, least), most)

        back = between(fields.get("back"), received, sent)
        latest = sent if back is None else back
        posted = between(fields.get("post"), received, latest)
        run = None if posted is not None else between(fields.get("run"), received, latest)
        page, pair = None, fields.get("page")
        if posted is not None and isinstance(pair, list) and len(pair) == 2:
            began = between(pair[0], posted, latest)
            ended = None if began is None else between(pair[1], began, latest)
            page = (began, ended) if began is not None and ended is not None else None
        tab, end = fields.get("tab"), latest if posted is None and run is None else max(posted or 0.0, run or 0.0)
        holds = tuple(_read_holds(fields.get("holds"), received, end))
        return cls(received, sent, posted, run, back, page, holds, tab if is_tab_id(tab) else None)


def _read_holds(value: object, received: float, end: float) -> list[tuple[str, float, float]]:
    """In order, without overlap."""
    found: list[tuple[str, float, float]] = []
    for each in value[:MAX_HOLDS] if isinstance(value, list) else ():
        if not isinstance(each, list) or len(each) != 3 or not isinstance(each[0], str):
            continue
        began, ended = _seconds(each[1]), _seconds(each[2])
        if began is not None and ended is not None:
            least = found[-1][2] if found else received
            began = min(max(began, least), end)
            found.append((each[0][:MAX_HOLD_REASON], began, min(max(ended, began), end)))
    return found


def _whole(seconds: float) -> int:
    return max(0, round(seconds * 1e6))


def _seconds(value: object) -> float | None:
    return value / 1e6 if type(value) is int and 0 <= value <= MAX_TIME else None
