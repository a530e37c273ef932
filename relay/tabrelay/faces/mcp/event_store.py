"""Event store for resumable streams of legacy sessions: sent and unsent events, kept so that a client can resume.

Streams are dropped whole, unread ones first and oldest first, when all of them together exceed the limit. Nothing is
on disk: after a restart of the relay, stream ids are unknown. Of several relays the one that holds a stream serves it
to the others (`remote_streams`); the stream's id names that relay.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Final

from tabrelay.calls.calls import MAX_UNREAD_NOTICES
from tabrelay.payloads.sliced import Body
from tabserver.wire.jsonrpc import RequestId

MIB: Final = 1024 * 1024
GET_PREFIX: Final = "get-"
# Streams of answered requests that a session keeps; clients resume at once or never.
MAX_FINISHED: Final = 16
# Bytes of one stream, read or not: a slow client must not make the relay keep events without a limit.
MAX_STREAM: Final = 20 * MIB
TOO_OLD: Final = "This stream can't be resumed: it is too old, or the relay was restarted."


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One message of a stream. `id` is what the client sends in Last-Event-ID."""

    seq: int
    id: str
    payload: Body


class EventStream:
    """One stream of one session: its events, the last one that was sent, and its current reader."""

    __slots__ = (
        "_arrived",
        "_dropped",
        "_events",
        "_last",
        "_size",
        "_store",
        "id",
        "is_over",
        "is_paused",
        "reader",
        "request",
        "retry_ms",
        "sent",
    )

    def __init__(self, id: str, store: EventStore) -> None:
        self.id = id
        self.is_over = False
        self.is_paused = False
        self.retry_ms: int | None = None
        self.reader: object | None = None
        self.request: RequestId | None = None  # the request that this stream answers
        self.sent = 0
        self._last = 0
        self._dropped = 0
        self._size = 0
        self._events: deque[StreamEvent] = deque()
        self._store = store
        self._arrived = asyncio.Event()

    @property
    def size(self) -> int:
        return self._size

    def event_id(self, seq: int) -> str:
        return f"{self.id}_{seq}"

    def add(self, payload: Body) -> None:
        if self.is_over:
            return
        self._last += 1
        self._events.append(StreamEvent(self._last, self.event_id(self._last), payload))
        self._size += len(payload)
        while len(self._events) > MAX_UNREAD_NOTICES or (self._size > MAX_STREAM and len(self._events) > 1):
            gone = self._events.popleft()
            self._dropped = gone.seq
            self._size -= len(gone.payload)
            self._store.freed(len(gone.payload))
        self._store.used(self, len(payload))
        self.wake()

    def finish(self) -> None:
        """No more events will be added."""
        self.is_over = True
        self.wake()

    def pause(self, retry_ms: int | None) -> None:
        """Make the current reader stop; its client may resume later."""
        if self.reader is not None:
            self.is_paused = True
            self.retry_ms = retry_ms
            self.wake()

    def can_resume(self, seq: int) -> bool:
        """Was this event sent, and is everything after it kept? A client that missed one would wait permanently."""
        return self._dropped <= seq <= self._last

    def after(self, seq: int) -> list[StreamEvent]:
        return [event for event in self._events if event.seq > seq]

    def wake(self) -> None:
        self._arrived.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for an event, the end, a pause or a change of reader. False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return False
        self._arrived.clear()
        return True

    def forget(self) -> None:
        self._store.forget(self, self._size)
        self._dropped = self._last
        self._events.clear()
        self._size = 0


class EventStore:
    """Size limit for all streams of the relay together."""

    def __init__(self, most_bytes: int = 64 * MIB) -> None:
        self._most = most_bytes
        self._streams: dict[EventStream, None] = {}
        self.held = 0

    def used(self, stream: EventStream, size: int) -> None:
        self.held += size
        self._streams[stream] = None
        if self.held > self._most:
            others = [old for old in self._streams if old is not stream]
            unread = [old for old in others if old.reader is None]
            # Then the slowest readers: a fast reader has little unread.
            slow = sorted((old for old in others if old.reader is not None), key=lambda old: -old.size)
            for old in [*unread, *slow]:
                old.forget()
                if self.held <= self._most:
                    break

    def freed(self, size: int) -> None:
        self.held -= size

    def forget(self, stream: EventStream, size: int) -> None:
        self._streams.pop(stream, None)
        self.held -= size


class SessionStreams:
    """The streams of one session. `get_stream` belongs to no request: it is the client's GET."""

    def __init__(self, store: EventStore, node: str = "") -> None:
        """`node`: this relay's id, if it is one of several."""
        # Ids must be valid for one incarnation of a session only: after a restart the numbers start again.
        self._tag = f"{node}.{secrets.token_hex(3)}" if node else secrets.token_hex(3)
        self._store = store
        self._numbers = itertools.count(1)
        self._by_id: dict[str, EventStream] = {}
        self.get_stream = EventStream(f"{GET_PREFIX}{self._tag}", store)

    def open(self, request: RequestId) -> EventStream:
        """A stream for one request. The oldest finished streams without a reader are dropped."""
        finished = [old for old in self._by_id.values() if old.is_over and old.reader is None]
        for old in finished[: max(0, len(finished) - MAX_FINISHED + 1)]:
            self.drop(old)
        stream = EventStream(f"{self._tag}-{next(self._numbers)}", self._store)
        stream.request = request
        self._by_id[stream.id] = stream
        return stream

    def drop(self, stream: EventStream) -> None:
        self._by_id.pop(stream.id, None)
        stream.forget()

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream of an event id, and the position in it; None if it is unknown or was dropped."""
        name, _, number = event_id.rpartition("_")
        seq = int(number) if number.isascii() and number.isdigit() and len(number) < 12 else None
        if seq is None:
            return None
        if name == self.get_stream.id:
            return self.get_stream, seq
        stream = self._by_id.get(name)
        return None if stream is None or not stream.can_resume(seq) else (stream, seq)

    def end(self) -> None:
        for stream in (self.get_stream, *self._by_id.values()):
            stream.finish()
            stream.forget()
        self._by_id.clear()


def node_of(event_id: str) -> str | None:
    """The relay that holds this event's stream; None if the id names none."""
    node, found, _ = event_id.removeprefix(GET_PREFIX).partition(".")
    return node if found else None


def is_get_event(event_id: str) -> bool:
    """Is this an event of a GET stream, maybe of an earlier relay process?"""
    return event_id.startswith(GET_PREFIX)
