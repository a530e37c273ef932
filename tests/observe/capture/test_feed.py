"""Live feed of captured calls: batches, readers that may not see every server, and readers that do not read."""

from __future__ import annotations

import json
from typing import Any

from tabrelay.observe.capture.feed import MAX_UNREAD, CaptureFeed, FeedReader


async def read(reader: FeedReader) -> Any:
    event = await reader.next(0.01)
    return None if event is None else json.loads(event)


async def test_a_slow_reader_gets_a_bounded_part_and_a_count_of_the_rest() -> None:
    reader = FeedReader(lambda server: True)
    for _ in range(10):
        reader.put(b"7" + b" " * (MAX_UNREAD // 4 - 1), 5)
    for _ in range(4):
        assert await read(reader) is not None
    assert await read(reader) == {"type": "sampled", "dropped": 30, "since": None, "why": "slow"}
    assert await read(reader) is None
    reader.put(b"7")
    assert await read(reader) == 7


async def test_rows_go_to_readers_that_may_see_their_server() -> None:
    rows = [{"server": "notes"}, {"server": "other"}]
    collected: list[list[dict[str, Any]]] = [[{"type": "calls", "rows": rows}, {"type": "status"}]]
    feed = CaptureFeed(lambda: collected.pop() if collected else [])
    everything = feed.open(lambda server: True)
    part = feed.open(lambda server: server == "notes")
    nothing = feed.open(lambda server: False)
    feed.changed()
    assert await everything.next(5) == json.dumps({"type": "calls", "rows": rows}, separators=(",", ":")).encode()
    assert await read(part) == {"type": "calls", "rows": rows[:1]}
    for reader in (everything, part, nothing):
        assert await read(reader) == {"type": "status"}


async def test_readers_end_with_the_feed() -> None:
    feed = CaptureFeed(list)
    reader = feed.open(lambda server: True)
    feed.end()
    assert await reader.next(5) is None and reader.is_over
