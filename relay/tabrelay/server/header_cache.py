"""Header cache for keep-alive connections: a header block that equals the previous one is not parsed again.

Programs send the same header block with each call, except for the digits of Content-Length. The bytes of the next
request are compared with the cached ones; route, principal and MCP envelope are reused. Pure: token and rate are
checked again by the fast path.
"""

from __future__ import annotations

import re
from typing import Final

# Only its value may differ. No other header value contains a line break, so a line begins with a field name.
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,5})(?=[ \t]*\r\n)", re.IGNORECASE)
_DIGITS: Final = 5
_END: Final = b"\r\n\r\n"


class HeaderCache:
    """Made by `header_cache_of` from a request that was accepted. The last header block is cached with its length,
    which most of the next ones have too."""

    __slots__ = ("_after", "_before", "_head", "_size", "_start")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._start = len(before)
        self._head = b""
        self._size = -1  # of the whole request: none yet

    def body(self, data: bytes) -> bytes | None:
        """The body of a request with this header block, if `data` is exactly one complete request."""
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
    """`data`: one complete request. None if it has no Content-Length, or more than one, or an unusual one."""
    end = data.find(_END) + len(_END)
    found = list(_LENGTH.finditer(data, 0, end))
    if len(found) != 1 or end + int(found[0][1]) != len(data):
        return None
    return HeaderCache(data[: found[0].start(1)], data[found[0].end(1) : end])
