"""Pagination of lists, with opaque cursors.

A cursor is an offset into the list as it is now; there is no snapshot of earlier pages.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from ..rpc import Refusal
from ..wire.jsonrpc import INVALID_PARAMS, show

PAGE: Final = 100


def page(key: str, items: list[dict[str, Any]], cursor: object) -> dict[str, Any]:
    """The page at a cursor. If the list has become shorter, the page is shorter or empty."""
    start = 0 if cursor is None else _read(key, cursor)
    result: dict[str, Any] = {key: items[start : start + PAGE]}
    return result | ({"nextCursor": _write(key, start + PAGE)} if len(items) > start + PAGE else {})


def _write(key: str, start: int) -> str:
    return base64.urlsafe_b64encode(f"{key}:{start}".encode()).decode()


def _read(key: str, cursor: object) -> int:
    try:
        name, _, start = base64.urlsafe_b64decode(str(cursor).encode()).decode().partition(":")
        if isinstance(cursor, str) and name == key and start.isdecimal():
            return int(start)
    except (binascii.Error, UnicodeError, ValueError):
        pass
    raise Refusal(INVALID_PARAMS, f"params.cursor: unknown cursor {show(cursor)}; begin again without one")
