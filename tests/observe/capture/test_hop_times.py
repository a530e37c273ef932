"""Spans of a captured call from the times of its hops, with a clock that the test advances."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tabrelay.calls.peer import PeerKind
from tabrelay.observe.capture.hop_times import MAX_WAITS, HopSpan, HopTimes
from tabserver.wire.call_times import APPROVAL, ReportedTimes
from tabserver.wire.clock_offset import ClockOffset


class Clock:
    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


def shown(spans: Sequence[HopSpan]) -> list[tuple[str, str, float]]:
    return [(span.name, span.hop, round(span.ended - span.began, 6)) for span in spans]


def offset_of(offset_s: float) -> ClockOffset:
    clock = ClockOffset()
    clock.answered(1.0, 1.0 + offset_s, 1.0)
    return clock


def sent(clock: Clock, kind: PeerKind = PeerKind.BROWSER) -> HopTimes:
    hops = HopTimes(9.5, clock)
    clock.now = 10.1
    clock.now = 10.2
    hops.send(kind)
    return hops


REPORTED = ReportedTimes(
    *(5010.25, 5010.9),
    posted=5010.5,
    back=5010.8,
    page=(5010.55, 5010.75),
    holds=((APPROVAL, 5010.3, 5010.45),),
    tab="t1",
)


def test_the_times_of_a_worker_are_converted_by_the_offset_of_its_clock() -> None:
    clock = Clock()
    hops = sent(clock)
    clock.now = 11.0
    hops.answer(REPORTED, offset_of(5000.0))
    clock.now = 11.1
    hops.end()
    clock.now = 11.3
    hops.release()
    spans = hops.spans()
    assert shown(spans) == [
        ("receive", "client", 0.5),
        ("admit", "relay", 0.2),
        ("send", "link", 0.05),
        ("route", "worker", 0.05),
        ("hold", "worker", 0.15),
        ("route", "worker", 0.05),
        ("post", "tab", 0.05),
        ("run", "tab", 0.2),
        ("return", "tab", 0.05),
        ("reply", "worker", 0.1),
        ("deliver", "link", 0.1),
        ("answer", "relay", 0.3),
    ]
    assert spans[4].why == "The user is asked in the page."
    assert sum(span.ended - span.began for span in spans) == pytest.approx(11.3 - 9.5)


@pytest.mark.parametrize("offset_s", [4000.0, 6000.0, 5000.6, 4999.2])
def test_an_offset_that_is_wrong_moves_no_span_out_of_the_call(offset_s: float) -> None:
    clock = Clock()
    hops = sent(clock)
    clock.now = 11.0
    hops.answer(REPORTED, offset_of(offset_s))
    hops.end()
    spans = hops.spans()
    assert all(span.ended > span.began for span in spans)
    assert [span.began for span in spans[1:]] == [span.ended for span in spans[:-1]]
    assert (spans[0].began, spans[-1].ended) == (9.5, 11.0)


@pytest.mark.parametrize(
    ("kind", "hop"),
    [(PeerKind.BROWSER, "link"), (PeerKind.UPSTREAM, "upstream"), (PeerKind.NODE, "node"), (PeerKind.PLAIN, "page")],
)
def test_without_times_of_a_worker_one_span_has_the_time_from_sending_to_the_answer(kind: PeerKind, hop: str) -> None:
    clock = Clock()
    hops = sent(clock, kind)
    clock.now = 11.0
    hops.answer(None, None)
    hops.end()
    assert shown(hops.spans())[2:] == [("call", hop, 0.8)]


def test_a_call_that_runs_ends_now() -> None:
    clock = Clock()
    hops = sent(clock)
    clock.now = 12.2
    assert shown(hops.spans())[-1] == ("call", "link", 2.0)


def test_waits_before_and_after_the_call_have_their_reason() -> None:
    clock = Clock()
    hops = HopTimes(None, clock)
    clock.now = 10.1
    hops.wait("offline")
    clock.now = 10.5
    assert shown(hops.spans()) == [("admit", "relay", 0.1), ("wait", "relay", 0.4)]
    clock.now = 11.0
    hops.send(PeerKind.UPSTREAM)
    clock.now = 12.0
    hops.answer(None, None)
    clock.now = 12.1
    hops.wait("held")
    clock.now = 12.6
    hops.end()
    assert [(span.name, span.why) for span in hops.spans()] == [
        *(("admit", None), ("wait", "offline"), ("call", None), ("answer", None), ("wait", "held"))
    ]


def test_waits_are_bounded() -> None:
    clock = Clock()
    hops = HopTimes(None, clock)
    for _ in range(3 * MAX_WAITS):
        hops.wait("offline")
        clock.now += 0.1
    assert len(hops.waits) == MAX_WAITS
