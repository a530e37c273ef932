"""Line splitter for pipes: bytes to lines of bounded length, one JSON message each.

A line over the limit is skipped, and the next lines are read as usual. Its first and last bytes are kept: they most
often contain the message's id and show its kind, so that a request can be refused and a waiting caller gets an error.
Pure. Does not parse the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

KEPT: Final = 4096
_ID: Final = rb'("(?:[^"\\]|\\.){0,256}"|-?\d{1,19})'
# Before the first nested member, and after the last one, there can only be the message's own members.
_NAME: Final = re.compile(rb'\s*[{,]\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_PLAIN: Final = re.compile(rb'("(?:[^"\\]|\\.)*"|[\w.+-]+)\s*(?=,)')
_LAST: Final = re.compile(rb'"id"\s*:\s*' + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """A line over the limit: its size, the text of its message's id if it was found, and whether it is a reply."""

    size: int
    id: bytes | None
    is_answer: bool = False


class LineSplitter:
    """`feed` yields complete lines without line ends; blank lines are skipped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""  # of a line that is too long; not empty while the current line is
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[bytes | LineTooLong]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            if not end and not self._size:
                continue  # a blank line
            self._add(end)
            if (line := self.close()) is not None:
                yield line
        self._add(rest)

    def close(self) -> bytes | LineTooLong | None:
        """The current line: at its end, or at the end of the input."""
        parts, size, head = self._parts, self._size, self._head
        self._parts, self._size, self._head = [], 0, b""
        if head:
            return _too_long(size, head, self._tail)
        return b"".join(parts).strip() or None

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._head:
            self._tail = (self._tail + part)[-KEPT:]
        elif self._size > self._limit:
            whole = b"".join((*self._parts, part))
            self._head, self._tail = whole[:KEPT], whole[-KEPT:]
            self._parts = []
        elif part:
            self._parts.append(part)


def too_long(line: bytes) -> LineTooLong:
    """A complete line, as one over the limit."""
    return _too_long(len(line), line[:KEPT], line[-KEPT:])


def _too_long(size: int, head: bytes, tail: bytes) -> LineTooLong:
    id, is_answer, at = None, False, 0
    while name := _NAME.match(head, at):
        is_answer = is_answer or name[1] in (b"result", b"error")
        value = _PLAIN.match(head, name.end())
        if value is None:
            break
        if name[1] == b"id" and re.fullmatch(_ID, value[1]):
            id = value[1]
        at = value.end()
    if id is None and (last := _LAST.search(tail)):
        id = last[1]
    return LineTooLong(size, id, is_answer)
