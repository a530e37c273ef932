"""Live feed of the console: what changed, in batches, to all open streams.

Changes are collected for `BATCH_S` and encoded once. A reader that does not keep up has a bounded queue: past that, its
events are dropped, counted, and reported to it when it reads again. The feed makes no rows itself and knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import orjson

BATCH_S: Final = 0.1
MAX_UNREAD: Final = 8 * 1024 * 1024  # bytes of events that one stream has not read
Event = dict[str, Any]


class FeedReader:
    """One open stream. `may_see`: the servers whose rows it gets. `is_of_node`: it is another relay's, which gets only
    the rows of this one."""

    def __init__(self, may_see: Callable[[str], bool], *, is_of_node: bool = False) -> None:
        self.may_see, self.is_of_node = may_see, is_of_node
        self._events: deque[bytes] = deque()
        self._size = 0
        self._missed = 0
        self._wake = asyncio.Event()
        self.is_over = False

    def put(self, event: bytes, count: int = 1) -> None:
        """`count`: how many rows are lost if it can't be kept."""
        # defence: a console that reads slowly
        if self._size + len(event) > MAX_UNREAD:
            self._missed += count
            return
        self._events.append(event)
        self._size += len(event)
        self._wake.set()

    def end(self) -> None:
        self.is_over = True
        self._wake.set()

    async def next(self, timeout_s: float) -> bytes | None:
        """The next event; None after `timeout_s` without any, and at the end."""
        if not self._events and not self.is_over:
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return None
        if not self._events:
            return None
        event = self._events.popleft()
        self._size -= len(event)
        if self._missed and not self._events:
            self.put(encode({"type": "sampled", "dropped": self._missed, "since": None, "why": "slow"}))
            self._missed = 0
        return event


class CaptureFeed:
    """One per relay. `collect` returns the events since the last batch, and a row's server where it is of one."""

    def __init__(self, collect: Callable[[], list[Event]]) -> None:
        self._collect = collect
        self._readers: set[FeedReader] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def consoles(self) -> int:
        """Open streams of consoles."""
        return sum(not reader.is_of_node for reader in self._readers)

    def open(self, may_see: Callable[[str], bool], *, is_of_node: bool = False) -> FeedReader:
        reader = FeedReader(may_see, is_of_node=is_of_node)
        self._readers.add(reader)
        return reader

    def close(self, reader: FeedReader) -> None:
        self._readers.discard(reader)

    def changed(self) -> None:
        """There is something to collect."""
        if self._timer is None and self._readers:
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self._send)

    def _send(self) -> None:
        self._timer = None
        for event in self._collect():
            self.send(event)

    def send(self, event: Event, *, is_of_node: bool = False) -> None:
        """Send one event to all streams. Rows go to those that may see their server. `is_of_node`: the event came from
        another relay, so no other relay gets it from this one."""
        whole: bytes | None = None
        for reader in self._readers:
            if is_of_node and reader.is_of_node:
                continue
            rows = event.get("rows")
            if rows is None:
                whole = whole or encode(event)
                reader.put(whole)
                continue
            seen = [row for row in rows if reader.may_see(row["server"])]
            if len(seen) == len(rows):
                whole = whole or encode(event)
                reader.put(whole, len(rows))
            elif seen:
                reader.put(encode({**event, "rows": seen}), len(seen))

    def end(self) -> None:
        """The relay stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for reader in self._readers:
            reader.end()


def encode(event: Event) -> bytes:
    return orjson.dumps(event)
