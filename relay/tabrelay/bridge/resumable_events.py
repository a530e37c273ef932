"""Events of a stream that can be resumed: the last event id and the pause that the server asked for.

A stream breaks where an event is larger than the limit. Pure; it does not reconnect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tabrelay.http.sse_parser import SseEvent, SseParser

MAX_RETRY_MS: Final = 60_000
MAX_EVENT_ID: Final = 1024  # bytes


class EventTooLarge(Exception):
    """An event is larger than the limit; the rest of the stream can't be read."""


class ResumableEvents:
    """Yields the events with data. `last_id` and `retry_ms` are the server's values for resuming."""

    def __init__(self, limit: int) -> None:
        self._parser = SseParser(limit)
        self.last_id: str | None = None
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        for event in self._parser.feed(chunk):
            if event.is_too_long:
                raise EventTooLarge
            self._record(event.fields)
            if event.data:
                yield event
        if self._parser.is_too_long:
            raise EventTooLarge

    def restart(self) -> None:
        """A new stream resumes where this one broke: an incomplete event is sent again."""
        self._parser.restart()

    def close(self) -> SseEvent | None:
        """The incomplete event at the end of the stream. Its id is ignored: it may be cut off."""
        event = self._parser.close()
        return event if event.data else None

    def _record(self, fields: dict[bytes, bytes]) -> None:
        id, retry = fields.get(b"id", b"\0"), fields.get(b"retry", b"")
        if b"\0" not in id:
            # The next GET sends it in a header. After an id that is too long, the stream can't be resumed.
            self.last_id = (id.decode(errors="replace") or None) if len(id) <= MAX_EVENT_ID else None
        if retry.isdigit() and len(retry) < 10:
            self.retry_ms = min(int(retry), MAX_RETRY_MS)
