"""Bytes of a pipe, cut into lines: one JSON value each. Pure.

A line that is too long is skipped to its end, and the lines after it are read as usual. Its beginning and its end are
kept, since the id of a message most often stands in one of them: a request wants an answer, and somebody waits for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

KEPT: Final = 4096
_ID: Final = rb'("(?:[^"\\]|\\.){0,256}"|-?\d{1,19})'
# Before any other member, and after all of them: nothing else can stand there but the message's own members.
_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*' + _ID + rb"\s*[,}]")
_LAST: Final = re.compile(rb'"id"\s*:\s*' + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line over the limit: its size, and the text of its message's id if that could be found."""

    size: int
    id: bytes | None


class Lines:
    """Feed it bytes; it gives whole lines without their ends, and no blank ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""  # of a line that is too long; also says that the current one is
        self._tail = b""

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            if (line := self.close()) is not None:
                yield line
        self._add(rest)

    def close(self) -> bytes | TooLong | None:
        """The line that was begun: at its end, or at the end of everything."""
        parts, size, head = self._parts, self._size, self._head
        self._parts, self._size, self._head = [], 0, b""
        if head:
            return TooLong(size, _find_id(head, self._tail))
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


def _find_id(head: bytes, tail: bytes) -> bytes | None:
    found = _FIRST.match(head) or _LAST.search(tail)
    return found[1] if found else None
