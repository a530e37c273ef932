"""Parser of a server-sent event stream: bytes in, events out.

It works on bytes, so a character that is split over two chunks needs no handling. The bytes of one event have a limit;
of a longer event only the beginning is kept. Comments and unknown fields are dropped. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_FIELDS: Final = (b"event", b"id", b"retry")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # allowed before the first line
KEPT_BYTES: Final = 4096


@dataclass(slots=True)
class SseEvent:
    """One event. `is_too_long`: `data` is only its beginning."""

    data: bytes
    fields: dict[bytes, bytes] = field(default_factory=dict)
    is_too_long: bool = False

    @property
    def type(self) -> bytes:
        return self.fields.get(b"event") or b"message"

    def text(self) -> bytes:
        lines = [name + b": " + value for name, value in self.fields.items()]
        lines += [b"data: " + line for line in self.data.split(b"\n")] if self.data else []
        return b"\n".join([*lines, b"", b""])


class SseParser:
    """Parser of one stream. `max_bytes`: of one event, without comments."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.restart()

    def restart(self) -> None:
        """Begin another stream. An event that is not complete is dropped."""
        self._is_first = True
        self._had_return = False  # at the end of the previous chunk: a line feed belongs to it
        self._line: list[bytes] = []  # of a line that is not complete
        self._next_event()

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """The events that end in this chunk: those with data or another field."""
        if self._had_return:
            chunk = chunk.removeprefix(b"\n")
        self._had_return = chunk.endswith(b"\r")
        *ends, rest = _LINE_END.split(chunk)
        for end in ends:
            self._add(end)
            line = self._take_line()
            if line:
                self._add_line(line)
                continue
            if self._data or self._fields:
                yield self._event()
            self._next_event()
        self._add(rest)

    def close(self) -> SseEvent:
        """The event that the end of the stream cut off. Many servers omit the last blank line."""
        self._add_line(self._take_line())
        return self._event()

    def _event(self) -> SseEvent:
        return SseEvent(b"\n".join(self._data), self._fields, self.is_too_long)

    def _next_event(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self._data: list[bytes] = []
        self._size = 0  # of the event so far
        self.is_too_long = False

    def _take_line(self) -> bytes:
        line = b"".join(self._line)
        self._line.clear()
        if self._is_first:
            self._is_first, line = False, line.removeprefix(_BYTE_ORDER_MARK)
        return line

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes and not self.is_too_long:
            self.is_too_long = True
            self._line.append(part)
            self._add_line(self._take_line())
            self._data = [b"\n".join(self._data)[:KEPT_BYTES]]
        elif part and not self.is_too_long:
            self._line.append(part)

    def _add_line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name in _FIELDS:
            self._fields[name] = value.removeprefix(b" ")
        elif not name:
            self._size -= len(line)  # a comment, which keeps the stream alive
