"""Buffers of WebSockets: a frame in parts takes little more memory than its bytes, and the running total is the sum."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabrelay.server.uvicorn_adapter.websocket_buffers import BLOCK, BufferedBytes, FrameBuffer

THRESHOLD = 10


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=6))
def test_what_was_added_is_taken_and_costs_no_more_than_was_announced(sizes: list[int]) -> None:
    whole = b"".join(bytes([number + 1]) * size for number, size in enumerate(sizes))
    pieces = FrameBuffer(len(whole))
    at = 0
    for size in sizes:
        pieces.add(memoryview(whole)[at : at + size])
        at += size
        assert pieces.missing == len(whole) - at
        assert at <= pieces.cost <= len(whole)
        assert pieces.cost < at + BLOCK
    assert pieces.take() == whole
    assert pieces.cost == 0


@pytest.mark.parametrize("step", [1, 100, 5_000, BLOCK, 200_000])
def test_a_buffer_takes_the_memory_that_it_counts_however_its_frame_arrives(step: int) -> None:
    size = 400_000
    data = memoryview(b"x" * step)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        pieces = FrameBuffer(size + 1)
        for _ in range(0, size, step):
            pieces.add(data)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= pieces.cost * 1.05


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 30)))))
def test_the_total_is_the_sum_and_the_oldest_is_the_first_over_the_threshold(
    steps: list[tuple[int, int | None]],
) -> None:
    buffered: BufferedBytes[int] = BufferedBytes()
    held: dict[int, int] = {}
    large: list[int] = []
    for holder, size in steps:
        if size is None:
            buffered.remove(holder)
        else:
            buffered.set(holder, size, is_large=size > THRESHOLD)
        held[holder] = size or 0
        if held[holder] <= THRESHOLD:
            large = [other for other in large if other != holder]
        elif holder not in large:
            large.append(holder)
        assert buffered.total == sum(held.values())
        assert buffered.oldest == (large[0] if large else None)
