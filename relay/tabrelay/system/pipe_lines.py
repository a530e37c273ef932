"""Bytes of a pipe, cut into lines: one JSON value each. Pure.

A line that is too long is skipped to its end, and the lines after it are read as usual. Its beginning and its end are
kept, since the id of a message most often stands in one of them, and what kind it is: a request wants an answer, and
for an answer somebody waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

KEPT: Final = 4096
_ID: Final = rb'("(?:[^"\\]|\\.){0,256}"|-?\d{1,19})'
# Before the first member that holds others, and after all of them, nothing can stand but the message's own members.
_NAME: Final = re.compile(rb'\s*[{,]\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_PLAIN: Final = re.compile(rb'("(?:[^"\\]|\\.)*"|[\w.+-]+)\s*(?=,)')
_LAST: Final = re.compile(rb'"id"\s*:\s*' + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """A line over the limit: its size, the text of its message's id if that could be found, and which kind it is."""

    size: int
    id: bytes | None
    is_answer: bool = False


class LineSplitter:
    """Feed it bytes; it gives whole lines without their ends, and no blank ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""  # of a line that is too long; also says that the current one is
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
        """The line that was begun: at its end, or at the end of everything."""
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
    """What is known of a whole line that is not read."""
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
