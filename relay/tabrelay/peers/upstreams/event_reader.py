"""Parser of a server-sent event stream: bytes in, events out.

The bytes of one event have a limit; of a longer event only the beginning is kept. Comments and unknown fields are
dropped. Pure: it reads from no connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_FIELDS: Final = (b"event", b"id", b"retry")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"  # allowed before the first line
KEPT_BYTES: Final = 4096


@dataclass(slots=True)
class UpstreamEvent:
    """One event. `is_too_long`: `data` is only its beginning."""

    data: bytes
    fields: dict[bytes, bytes] = field(default_factory=dict)
    is_too_long: bool = False

    def text(self) -> bytes:
        lines = [name + b": " + value for name, value in self.fields.items()]
        lines += [b"data: " + line for line in self.data.split(b"\n")] if self.data else []
        return b"\n".join([*lines, b"", b""])


class EventReader:
    """Parser of one stream. `max_bytes`: of one event."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._is_first = True
        self._had_return = False  # at the end of the previous chunk: a line feed belongs to it
        self._line: list[bytes] = []  # of a line that is not complete
        self._fields: dict[bytes, bytes] = {}
        self._data: list[bytes] = []
        self._size = 0  # of the event so far
        self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[UpstreamEvent]:
        if self._is_first:
            self._is_first, chunk = False, chunk.removeprefix(_BYTE_ORDER_MARK)
        if self._had_return:
            chunk = chunk.removeprefix(b"\n")
        self._had_return = chunk.endswith(b"\r")
        *ends, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ends:
            self._add(end)
            line = b"".join(self._line)
            self._line.clear()
            if line:
                self._add_line(line)
            elif self._data or self._fields:
                yield UpstreamEvent(b"\n".join(self._data), self._fields, self._is_too_long)
                self._reset()
            else:
                self._reset()
        self._add(rest)

    def _reset(self) -> None:
        self._fields, self._data, self._size, self._is_too_long = {}, [], 0, False

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes and not self._is_too_long:
            self._is_too_long = True
            self._add_line(b"".join((*self._line, part)))
            self._data = [b"\n".join(self._data)[:KEPT_BYTES]]
            self._line.clear()
        elif part and not self._is_too_long:
            self._line.append(part)

    def _add_line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name in _FIELDS:
            self._fields[name] = value.removeprefix(b" ")
