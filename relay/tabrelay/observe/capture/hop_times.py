"""Times of one captured call at each hop, and the spans that follow: client, relay, link, worker, tab, and back.

All times are the relay's monotonic clock; those of the worker are converted by the offset that the link has measured.
The spans are contiguous and in order, so they add up to the total. A time that contradicts its neighbours is clamped.
Text for users is in `rows`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from tabrelay.calls.peer import PeerKind
from tabserver.wire.call_times import APPROVAL, BUSY, LOADING, ReportedTimes
from tabserver.wire.clock_offset import ClockExchange, ClockOffset

MAX_WAITS: Final = 16
# What a call waited for in its worker.
HOLDS: Final = {
    LOADING: "Its page is being loaded.",
    BUSY: "Its tab does not read messages at the moment.",
    APPROVAL: "The user is asked in the page.",
}


class HopSpan(NamedTuple):
    """`began`, `ended`: seconds."""

    name: str
    hop: str
    began: float
    ended: float
    why: str | None = None


class Waited(NamedTuple):
    why: str
    began: float
    ended: float


class HopTimes:
    """One call. `received`: its first byte, if that came before the others."""

    __slots__ = (
        *("_now", "_waits_for", "answered", "began", "clock", "ended", "kind", "received", "released"),
        *("reported", "sent", "waits"),
    )

    def __init__(self, received: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.began = now()
        self.received = received
        self.sent: float | None = None
        self.answered: float | None = None
        self.ended: float | None = None
        self.released: float | None = None
        self.kind: PeerKind | None = None
        self.reported: ReportedTimes | None = None
        self.clock: ClockOffset | None = None
        self.waits: list[Waited] = []
        self._waits_for: tuple[str, float] | None = None

    # -- marks --------------------------------------------------------------------------------------------------------

    def wait(self, why: str) -> None:
        """It waits from now on."""
        self.stop_waiting()
        self._waits_for = why, self._now()

    def stop_waiting(self) -> None:
        waited, self._waits_for = self._waits_for, None
        if waited is not None and len(self.waits) < MAX_WAITS:
            self.waits.append(Waited(*waited, self._now()))

    def send(self, kind: PeerKind) -> None:
        self.stop_waiting()
        self.sent, self.kind = self._now(), kind

    def answer(self, reported: ReportedTimes | None, clock: ClockOffset | None) -> None:
        """The response is here. The first one counts."""
        if self.answered is None:
            self.answered, self.reported, self.clock = self._now(), reported, clock

    def end(self) -> None:
        self.stop_waiting()
        self.ended = self._now()

    def release(self) -> None:
        self.released = self._now()

    # -- spans --------------------------------------------------------------------------------------------------------

    @property
    def exchange(self) -> ClockExchange | None:
        """How the worker's clock was read, if its times are used."""
        return self.clock.best if self.clock is not None and self.reported is not None else None

    def spans(self) -> list[HopSpan]:
        """So far: the last one of a call that runs ends now."""
        now = self._now()
        end = self.released or self.ended or now
        found = _Spans(self.began if self.received is None else min(self.received, self.began))
        if self.received is not None:
            found.add("receive", "client", self.began)
        waits = [*self.waits, *([] if self._waits_for is None else [Waited(*self._waits_for, now)])]
        answered = self.answered or self.ended
        sent = self.sent
        before = [each for each in waits if sent is None or each.began <= sent]
        found.add("admit", "relay", before[0].began if before else sent if sent is not None else end)
        found.add_waits(before, "admit")
        if sent is not None:
            found.add("admit", "relay", sent)
            self._add_peer(found, end if answered is None else min(answered, end))
            found.add_waits([each for each in waits if each.began > sent], "answer")
        if self.ended is not None:
            found.add("answer", "relay", end)
        return found.spans

    def _add_peer(self, found: _Spans, answered: float) -> None:
        """From sending it to its response."""
        if self.kind is not PeerKind.BROWSER:
            name = "page" if self.kind is PeerKind.PLAIN else str(self.kind)
            found.add("call", name, answered)
            return
        exchange, reported = self.exchange, self.reported
        if exchange is None or reported is None:
            found.add("call", "link", answered)
            return
        offset_s = exchange.offset_s

        def here(theirs: float) -> float:
            return min(theirs - offset_s, answered)

        found.add("send", "link", here(reported.received))
        for why, began, ended in reported.holds:
            found.add("route", "worker", here(began))
            found.add("hold", "worker", here(ended), HOLDS.get(why, why))
        posted, run, page, back = reported.posted, reported.run, reported.page, reported.back
        if posted is not None:
            found.add("route", "worker", here(posted))
            if page is not None:
                found.add("post", "tab", here(page[0]))
                found.add("run", "tab", here(page[1]))
            if back is not None:
                found.add("return" if page is not None else "run", "tab", here(back))
        elif run is not None:
            found.add("route", "worker", here(run))
            if back is not None:
                found.add("run", "worker", here(back))
        found.add("reply" if back is not None else "route", "worker", here(reported.sent))
        found.add("deliver", "link", answered)


class _Spans:
    """Spans in order, each from the end of the one before it."""

    def __init__(self, began: float) -> None:
        self._at = began
        self.spans: list[HopSpan] = []

    def add(self, name: str, hop: str, ended: float, why: str | None = None) -> None:
        """Nothing is added for a span without length. Two of the same name are one."""
        if ended <= self._at:
            return
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.name, last.hop, last.why) == (name, hop, why):
            self.spans[-1] = last._replace(ended=ended)
        else:
            self.spans.append(HopSpan(name, hop, self._at, ended, why))
        self._at = ended

    def add_waits(self, waits: list[Waited], between: str) -> None:
        """`between`: what the relay does before and between them."""
        for wait in waits:
            self.add(between, "relay", wait.began)
            self.add("wait", "relay", wait.ended, wait.why)
