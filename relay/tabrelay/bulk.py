"""How many values JSON has, told from its text: a small object takes thirty times as much memory as it takes to write.

Asked before a text is parsed. Pure; what the values mean is not known here.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

MAX_VALUES: Final = 2_000_000
# A small object takes as much as this many other values.
OBJECT: Final = 4
FEW: Final = 256
# The densest there is: {}{}{}
SMALL: Final = MAX_VALUES * 2 // OBJECT
"""A text of no more characters has no more values than may be, whatever it says: it need not be asked about."""
# One that does not end goes on to the end, and nothing is tried twice: otherwise a text of quotes would take for ever.
_PATTERN: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_STRING: Final = re.compile(_PATTERN.encode(), re.DOTALL)
_STRING_TEXT: Final = re.compile(_PATTERN, re.DOTALL)
# As much as is looked at in one go, cut where no string is: taking millions of strings out of a text at once takes ten
# times as much memory as the text.
_STRETCH: Final = r'(?:[^"]++|' + _PATTERN + "){1,20000}+"
_SOME: Final = re.compile(_STRETCH.encode(), re.DOTALL)
_SOME_TEXT: Final = re.compile(_STRETCH, re.DOTALL)


def is_bulky(text: str | bytes, most: int = MAX_VALUES) -> bool:
    """Are there more values in it than may be?"""
    if len(text) * OBJECT // 2 <= most:  # the densest there is: {}{}{}
        return False
    # What stands in strings is not one. Looking for them takes a while, and is hardly ever needed.
    if isinstance(text, str):
        if _has_few(text) or _of_text(text) <= most:
            return False
        counts = (_of_text(_STRING_TEXT.sub("", some[0])) for some in _SOME_TEXT.finditer(text))
    else:
        if _of_bytes(text) <= most:
            return False
        counts = (_of_bytes(_STRING.sub(b"", some[0])) for some in _SOME.finditer(text))
    return any(total > most for total in accumulate(counts))


def _has_few(text: str) -> bool:
    """Are there hardly any lists, objects and commas? Nearly all of what is large is one long string. To look for the
    next one of them, where there are few, is many times faster than to count."""
    for mark in ",[{":
        at = -1
        for _ in range(FEW):
            at = text.find(mark, at + 1)
            if at < 0:
                break
        else:
            return False
    return True


def _of_text(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{") * OBJECT


def _of_bytes(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{") * OBJECT
