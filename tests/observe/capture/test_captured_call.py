"""Bounds of what a captured call keeps of its notices and events."""

from __future__ import annotations

from tabrelay.calls.calls import Notice
from tabrelay.observe.capture.breakpoints import Breakpoints
from tabrelay.observe.capture.captured_call import MAX_EVENTS, MAX_NOTICES, MAX_TEXTS, CapturedCall


def test_notices_and_events_of_a_call_are_kept_up_to_a_number_and_counted_beyond_it() -> None:
    grown: list[int] = []
    breakpoints = Breakpoints(300.0, lambda: None)

    def changed(_: CapturedCall, size: int) -> None:
        grown.append(size)

    call = CapturedCall(1, "c1", "notes", "tools/call", {}, breakpoints=breakpoints, most=10_000, changed=changed)
    for _ in range(2 * MAX_NOTICES):
        call.noticed(Notice("x"))
    for _ in range(2 * MAX_EVENTS):
        call.happened("wait", "the browser is away")
    assert (len(call.notices), len(call.events)) == (MAX_NOTICES, MAX_EVENTS)
    assert call.dropped == MAX_NOTICES + MAX_EVENTS
    assert len(grown) == MAX_NOTICES + MAX_EVENTS, "the ring learns of each text that is kept"


def test_long_notices_of_a_call_have_a_size_together() -> None:
    call = CapturedCall(
        1, "c1", "notes", "tools/call", {}, breakpoints=Breakpoints(300.0, lambda: None), most=1000, changed=ignore
    )
    for _ in range(50):
        call.noticed(Notice("x" * 2000))
    assert [len(notice.text) for notice in call.notices] == [1000] * MAX_TEXTS and call.dropped == 50 - MAX_TEXTS


def ignore(_: CapturedCall, size: int) -> None: ...
