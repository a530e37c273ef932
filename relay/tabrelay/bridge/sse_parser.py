"""Server-sent events parser: splits the bytes of a stream into events.

It works on bytes, so a character that is split over two chunks needs no handling, and data is passed on unchanged. An
event that the end of the stream cut off is returned too: many servers omit the last blank line. Pure; it does not
reconnect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
MAX_RETRY_MS: Final = 60_000
MAX_EVENT_ID: Final = 1024  # bytes


class EventTooLarge(Exception):
    """An event is larger than the limit; the rest of the stream can't be read."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    type: str
    data: bytes


class SseParser:
    """Yields the events with data from chunks. `last_id` and `retry_ms` are the server's values for resuming."""

    def __init__(self, limit: int, last_id: str | None = None) -> None:
        self._limit = limit
        self.last_id = last_id
        self.retry_ms: int | None = None
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self.restart()

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        if not chunk:
            return
        if self._after_cr:
            # The second half of a line end that was split.
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        *ends, rest = _LINE_END.split(chunk)
        for end in ends:
            self._line.append(end)
            self._grow(len(end))
            event = self._take(b"".join(self._line))
            self._line.clear()
            if event is not None:
                yield event
        if rest:
            self._line.append(rest)
            self._grow(len(rest))

    def restart(self) -> None:
        """A new stream resumes where this one broke: an incomplete event is sent again."""
        self._line.clear()
        self._data.clear()
        self._type, self._id, self._size = "", self.last_id, 0
        self._after_cr, self._is_first = False, True

    def close(self) -> SseEvent | None:
        """The incomplete event at the end of the stream. Its id is ignored: it may be cut off."""
        if self._line:
            self._field(b"".join(self._line))
            self._line.clear()
        data = b"\n".join(self._data)
        return SseEvent(self._type or "message", data) if data else None

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise EventTooLarge

    def _take(self, line: bytes) -> SseEvent | None:
        if self._is_first:
            line = line.removeprefix(_BOM)
            self._is_first = False
        if line:
            self._field(line)
            return None
        data, type = b"\n".join(self._data), self._type or "message"
        self._data.clear()
        self._type, self._size, self.last_id = "", 0, self._id
        return SseEvent(type, data) if data else None

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            # The next GET sends it in a header. After an id that is too long, the stream can't be resumed.
            self._id = (value.decode(errors="replace") or None) if len(value) <= MAX_EVENT_ID else None
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = min(int(value), MAX_RETRY_MS)
        elif not name:
            # A comment: it keeps the stream alive and does not count as part of an event.
            self._size -= len(line)
