"""A request's header that came before on its connection: the same, byte for byte, means the same.

A program sends the same header with each call, but for the length of its body. What was found out about the first one
need not be found out again, and the next is not even parsed: its bytes are compared. Pure.
"""

from __future__ import annotations

import re
from typing import Final

# Its value alone may be another one. A line can't begin within a value: there are no line breaks in one.
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,5})(?=[ \t]*\r\n)", re.IGNORECASE)
_DIGITS: Final = 5
_END: Final = b"\r\n\r\n"


class HeaderCache:
    """Cut by `cut` from a request that was understood. The last one is remembered with its length, which most of the
    next have too."""

    __slots__ = ("_after", "_before", "_head", "_size", "_start")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._start = len(before)
        self._head = b""
        self._size = -1  # of the whole request: none yet

    def body(self, data: bytes) -> bytes | None:
        """The body of a request with this header, if that is all there is and all of it is there."""
        if len(data) == self._size and data.startswith(self._head):
            return data[len(self._head) :]
        if not data.startswith(self._before):
            return None
        end = data.find(self._after, self._start, self._start + _DIGITS + len(self._after))
        digits = data[self._start : end]
        if end < 0 or not digits.isdigit():
            return None
        start = end + len(self._after)
        if len(data) - start != int(digits):
            return None
        self._head, self._size = data[:start], len(data)
        return data[start:]


def header_cache_of(data: bytes) -> HeaderCache | None:
    """`data`: one whole request. None if its length is not said in a way that could be another one."""
    end = data.find(_END) + len(_END)
    found = list(_LENGTH.finditer(data, 0, end))
    if len(found) != 1 or end + int(found[0][1]) != len(data):
        return None
    return HeaderCache(data[: found[0].start(1)], data[found[0].end(1) : end])
