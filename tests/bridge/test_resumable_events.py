"""Parser of event streams: splits bytes into events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabrelay.bridge.resumable_events import EventTooLarge, ResumableEvents

LINES = ["data: ä€𝄞", "data: x", "", ": c", "id: é", "event: e", "retry: 5"]


def read(*chunks: bytes, limit: int = 1000) -> tuple[list[tuple[bytes, bytes]], ResumableEvents]:
    events = ResumableEvents(limit)
    found = [event for chunk in chunks for event in events.feed(chunk)]
    last = events.close()
    return [(event.type, event.data) for event in (found if last is None else [*found, last])], events


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_three_ways(end: bytes) -> None:
    found, _ = read(end.join([b": hello", b"event: message", b"data: one", b"", b"data:two", b"data: three", b"", b""]))
    assert found == [(b"message", b"one"), (b"message", b"two\nthree")]


def test_one_blank_after_the_colon_is_left_out_and_no_more() -> None:
    found, _ = read(b"data:  x\n\n")
    assert found == [(b"message", b" x")]


def test_an_event_that_the_end_cut_off_is_given_but_its_id_does_not_count() -> None:
    found, events = read(b"id: 1\ndata: a\n\nid: 2\ndata: b")
    assert found == [(b"message", b"a"), (b"message", b"b")]
    assert events.last_id == "1"


def test_an_event_without_data_only_sets_the_position() -> None:
    found, events = read(b"id: 7\nretry: 250\ndata: \n\nid\n: \nevent: other\n\n")
    assert found == []
    assert (events.last_id, events.retry_ms) == (None, 250)
    assert read(b"id: 7\n\n")[1].last_id == "7"


def test_fields_that_make_no_sense_are_left_out() -> None:
    found, events = read(b"\xef\xbb\xbfdata: x\nretry: soon\nid: a\0b\nwhat: ever\nretry\n\n")
    assert found == [(b"message", b"x")]
    assert (events.last_id, events.retry_ms) == (None, None)


def test_a_server_can_not_send_its_clients_away_without_a_limit() -> None:
    assert read(b"retry: 999999999\n\n")[1].retry_ms == 60_000


@settings(deadline=None)
@given(st.lists(st.sampled_from(LINES)), st.integers(1, 5))
def test_it_does_not_matter_where_the_chunks_are_cut(lines: list[str], size: int) -> None:
    for end in ("\n", "\r\n", "\r"):
        data = "".join(line + end for line in lines).encode()
        cut = [data[at : at + size] for at in range(0, len(data), size)]
        (whole, one), (parts, other) = read(data), read(*cut)
        assert (whole, one.last_id, one.retry_ms) == (parts, other.last_id, other.retry_ms)


def test_an_event_at_the_limit_is_read_and_one_over_it_is_not() -> None:
    assert len(read(b"data: " + b"x" * 994 + b"\n\n")[0]) == 1
    for chunks in ([b"data: " + b"x" * 995 + b"\n\n"], [b"data: ", b"x" * 500, b"x" * 495], [b"data: x\n"] * 200):
        with pytest.raises(EventTooLarge):
            read(*chunks)


def test_the_limit_is_for_one_event_and_comments_are_none() -> None:
    found, _ = read(*[b"data: " + b"x" * 500 + b"\n\n", b": keep-alive\n" * 50] * 10)
    assert len(found) == 10


def test_a_stream_that_goes_on_begins_with_a_whole_event() -> None:
    events = ResumableEvents(1000)
    assert [event.data for event in events.feed(b"id: 1\ndata: a\n\nid: 2\ndata: hal")] == [b"a"]
    events.restart()
    assert [event.data for event in events.feed(b"id: 2\ndata: half\n\n")] == [b"half"]
    assert events.last_id == "2"


def test_after_an_id_that_no_header_can_carry_there_is_none() -> None:
    for size, last in ((1024, "x" * 1024), (1025, None)):
        _, events = read(b"id: 1\ndata: a\n\nid: " + b"x" * size + b"\ndata: b\n\n", limit=10_000)
        assert events.last_id == last
