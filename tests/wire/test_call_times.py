"""Times of a call in its worker (F6) and the offset of its clock (F7): what is reported, and what is read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabserver.wire import frames
from tabserver.wire.call_times import BUSY, MAX_HOLDS, CallTimes, ReportedTimes
from tabserver.wire.clock_offset import EARLY, LONGEST_S, PAUSE_S, ClockOffset
from tabserver.wire.eras import Era
from tabserver.wire.errors import RemoteProtocolError
from tabserver.wire.events import ClockRead, Event, Received, Violation
from tabserver.wire.frames import Caller, Greeting, Kind, Terms
from tabserver.wire.link import Link

CALLER = Caller(Era.MODERN, "2026-07-28", "tester")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def read(times: CallTimes) -> ReportedTimes:
    found = ReportedTimes.read(json.loads(times.report()))
    assert found is not None
    return found


def test_a_call_in_a_tab_has_its_times_in_order() -> None:
    times = CallTimes(Clock())
    times.hold(BUSY)
    times.post("t1")
    times.ran_in_page(0.75, 0.25)
    times.end()
    found = read(times)
    assert found == ReportedTimes(
        101, 107, posted=104, back=106, page=(104.25, 104.75), holds=((BUSY, 102, 103),), tab="t1"
    )


def test_a_tool_of_the_worker_has_no_tab() -> None:
    times = CallTimes(Clock())
    times.begin()
    times.end()
    times.end()  # only the first outcome counts
    found = read(times)
    assert (found.received, found.run, found.back, found.sent, found.tab, found.page) == (
        101,
        102,
        103,
        104,
        None,
        None,
    )


def test_waits_are_bounded() -> None:
    times = CallTimes(Clock())
    for _ in range(3 * MAX_HOLDS):
        times.hold(BUSY)
    times.post("t1")
    assert len(read(times).holds) == MAX_HOLDS


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {"in": st.integers(0, 1000), "out": st.integers(0, 2000)},
        optional={name: values | st.integers(0, 3000) for name in ("post", "run", "back", "page", "holds", "tab")},
    )
)
def test_what_is_read_of_any_report_is_in_order(fields: dict[str, Any]) -> None:
    found = ReportedTimes.read(fields)
    assert (found is None) is (fields["out"] < fields["in"])
    if found is None:
        return
    holds = [time for _, *both in found.holds for time in both]
    page = list(found.page or ())
    steps = [found.received, *holds, found.posted, found.run, *page, found.back, found.sent]
    known = [step for step in steps if step is not None]
    assert known == sorted(known) and all(math.isfinite(step) for step in known)
    assert found.tab is None or 0 < len(found.tab) <= 64


@pytest.mark.parametrize("value", [None, [], "x", {}, {"in": 1}, {"in": True, "out": 2}, {"in": 1, "out": 2.5}])
def test_anything_else_is_no_report(value: object) -> None:
    assert ReportedTimes.read(value) is None


# -- the clock --------------------------------------------------------------------------------------------------------


def test_the_best_exchange_counts_until_its_drift_makes_another_one_better() -> None:
    clock = ClockOffset()
    clock.answered(10.0, 1010.5, 11.0)
    assert clock.best is not None and (clock.best.offset_s, clock.best.error_s) == (1000.0, 0.5)
    clock.answered(20.0, 1020.005, 20.010)
    assert clock.best.offset_s == pytest.approx(1000.0) and clock.best.error_s == pytest.approx(0.005)
    clock.answered(30.0, 1030.05, 30.05)  # the way back is slow: that moves nothing
    assert clock.best.error_s == pytest.approx(0.005)
    clock.answered(400.0, 1401.02, 400.04)
    assert clock.best.offset_s == pytest.approx(1001.0)


def test_stamps_that_were_never_sent_are_ignored() -> None:
    clock = ClockOffset()
    for sent in (11.0, 10.0 - 2 * LONGEST_S):
        clock.answered(sent, 5.0, 10.0)
    assert clock.best is None


def test_the_clock_is_read_often_at_first_and_rarely_later() -> None:
    clock, now, asked = ClockOffset(), 0.0, []
    while now < 60:
        if clock.is_due(now):
            clock.asked(now)
            clock.answered(now, now, now)
            asked.append(now)
        now += 0.01
    assert EARLY < len(asked) <= EARLY + 60 / PAUSE_S


# -- on the link ------------------------------------------------------------------------------------------------------


class Ends:
    def __init__(self) -> None:
        self.worker: Link[str] = Link.dialer(Greeting("notes", "w1", "b"))
        self.relay: Link[str] = Link.accepter(Terms("s", "e", "b"))
        self.worker.connected(0.0)
        self.relay.connected(0.0)
        self.frames: list[str] = []
        self.settle()

    def settle(self, now: float = 0.0) -> tuple[list[Event], list[Event]]:
        """What both ends got: at the relay, at the worker."""
        at_relay: list[Event] = []
        at_worker: list[Event] = []
        while (up := self.worker.frames()) or (down := self.relay.frames()):
            down = [] if up else down
            self.frames += [header for header, _ in up + down]
            for header, payload in up:
                self.relay.receive(header, payload, now)
            for header, payload in down:
                self.worker.receive(header, payload, now)
            at_relay += self.relay.events()
            at_worker += self.worker.events()
        return at_relay, at_worker


def test_a_request_asks_for_its_times_and_its_response_reports_them() -> None:
    ends = Ends()
    ends.relay.send("c1", Kind.REQ, "{}", 0.0, id=1, caller=CALLER, is_measured=True)
    ends.relay.send("c2", Kind.REQ, "{}", 0.0, id=1, caller=CALLER)
    asked = [event for event in ends.settle()[1] if isinstance(event, Received)]
    assert [event.is_measured for event in asked] == [True, False]
    ends.worker.send("c1", Kind.RES, "{}", 0.0, id=1, times='{"in":1,"out":2}')
    ends.worker.send("c2", Kind.RES, "{}", 0.0, id=1)
    answers = [event for event in ends.settle()[0] if isinstance(event, Received)]
    assert [event.reported for event in answers] == [{"in": 1, "out": 2}, None]
    assert ends.frames[-1] == '{"t":"msg","s":2,"a":2,"c":"c2","k":"res","i":1}'  # nothing is added to other frames


def test_a_large_response_reports_its_times_too() -> None:
    ends = Ends()
    ends.worker.send("c1", Kind.RES, "x" * 200_000, 0.0, id=1, times='{"in":1,"out":2}')
    [answer] = [event for event in ends.settle()[0] if isinstance(event, Received)]
    assert answer.reported == {"in": 1, "out": 2} and len(answer.payload) == 200_000


def test_the_relay_reads_the_clock_of_the_worker() -> None:
    ends = Ends()
    ends.relay.ask_clock(42, 0.0)
    at_relay, at_worker = ends.settle(7.25)
    assert at_relay == [ClockRead(42, 7.25)] and at_worker == []
    # An acknowledgement that follows does not replace a stamp that waits to be written.
    ends.relay.ask_clock(43, 0.0)
    ends.relay._send_ack(0.0)
    assert len(ends.relay.frames()) == 2


def test_a_worker_that_does_not_know_stamps_and_times_takes_the_frames_as_they_are() -> None:
    """F3: fields that are not known are ignored. So it takes these frames for a request and an acknowledgement."""
    ends = Ends()
    ends.relay.ask_clock(42, 0.0)
    ends.relay.send("c1", Kind.REQ, "{}", 0.0, id=1, caller=CALLER, is_measured=True)
    for header, payload in ends.relay.frames():
        known = {name: value for name, value in json.loads(header).items() if name not in ("p", "m")}
        ends.worker.receive(json.dumps(known), payload, 0.0)
    [event] = ends.worker.events()
    assert isinstance(event, Received) and not event.is_measured


def test_a_relay_answers_no_stamp_and_a_worker_reads_no_clock() -> None:
    ends = Ends()
    ends.relay.receive('{"t":"ack","p":1,"a":0}', None, 0.0)
    ends.worker.receive('{"t":"ack","e":[1,2],"a":0}', None, 0.0)
    assert not ends.relay.frames() and not ends.relay.events() and not ends.worker.events()


@pytest.mark.parametrize("fields", ['"e":[1]', '"e":[1,-2]', '"e":["1",2]', '"e":[1,2,3]', '"e":[1,true]'])
def test_an_answer_of_another_form_is_a_violation(fields: str) -> None:
    ends = Ends()
    ends.relay.receive(f'{{"t":"ack",{fields},"a":0}}', None, 0.0)
    assert isinstance(ends.relay.events()[0], Violation)


@pytest.mark.parametrize("header", ['{"t":"ack","p":"1","a":0}', '{"t":"ack","p":-1,"a":0}', '{"t":"ack","e":1,"a":0}'])
def test_fields_have_types(header: str) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.decode(header)
