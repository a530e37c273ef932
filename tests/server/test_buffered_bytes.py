"""One running total is what adding up would say, and whoever has held much for longest is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tabrelay.server.buffered_bytes import BufferedBytes

LITTLE = 10


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 30)))))
def test_the_total_is_what_all_hold_and_the_oldest_is_whoever_had_much_first(
    steps: list[tuple[int, int | None]],
) -> None:
    tally: BufferedBytes[int] = BufferedBytes()
    held: dict[int, int] = {}
    much: list[int] = []
    for holder, size in steps:
        if size is None:
            tally.remove(holder)
        else:
            tally.set(holder, size, is_large=size > LITTLE)
        held[holder] = size or 0
        if held[holder] <= LITTLE:
            much = [other for other in much if other != holder]
        elif holder not in much:
            much.append(holder)
        assert tally.total == sum(held.values())
        assert tally.oldest == (much[0] if much else None)
