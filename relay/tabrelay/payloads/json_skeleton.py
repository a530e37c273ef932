"""Incremental JSON skeleton: a long JSON text without its long strings, built slice by slice as the text arrives.

Most of a large message is one long string: a picture, a file, a page. Parsing it as a whole would block the event loop
for tens of milliseconds. Here each slice is scanned when it arrives, and only the skeleton is parsed in the end. The
skeleton is valid JSON if and only if the text is.

Pure. Does not interpret the text, except for the key `id`: its string may be long and is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from typing import Final

import orjson

from tabrelay.payloads.json_limits import Weight

SHORT: Final = 64
"""A string of at most this many characters is kept: keys and short values. Longer ones take time to parse."""
LONGEST_ID: Final = 16 * 1024
MAX_KEPT: Final = 6 * 1024 * 1024
"""Bytes of a skeleton. orjson takes up to 4 ms for each MiB of digits or spaces."""

# Outside of strings, including short strings. Possessive quantifiers: no backtracking, so linear time.
_OUTSIDE: Final = re.compile(r'(?:[^"]++|"[^"\\]{0,64}+(?:\\.[^"\\]{0,8}+){0,4}+")*+', re.DOTALL)
_ID: Final = re.compile(r'"id"\s*:\s*\Z')
_BEFORE: Final = 32  # characters before a string that contain its key
# RFC 8259, 7: the contents of a string. Surrogates only in pairs, as in orjson.
_ESCAPE: Final = (
    r'\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
_INSIDE: Final = re.compile(rf'[^"\\\x00-\x1f]*+(?:{_ESCAPE}[^"\\\x00-\x1f]*+)*+')
_PAIR: Final = len(r"\ud83e\udd80")  # the longest sequence that a slice boundary can split


# Bytes of memory of a text that is weighed by its skeleton: one character outside of ASCII can make Python use four
# bytes for each of the others.
MAX_MEMORY: Final = 17 * 1024 * 1024
MAX_ESCAPES: Final = 1_500_000
PIECE: Final = 64 * 1024


class JsonSkeleton:
    """`is_bad`: the text is not JSON, whatever follows. `is_heavy`: the skeleton weighs more than `most`, and was
    dropped. `cost`: bytes of memory that it takes."""

    __slots__ = (
        *("_before", "_begun", "_carried", "_is_inside", "_kept", "_length", "_longest", "_most", "_weight"),
        *("cost", "is_bad", "is_heavy"),
    )

    def __init__(self, most: int) -> None:
        self.is_bad = self.is_heavy = False
        self.cost = 0
        self._most = most
        self._weight = Weight()
        self._before = ""  # the last characters that were kept
        self._longest = SHORT  # characters of the current string, if it is to be kept
        self._kept: list[str] = []
        self._is_inside = False
        self._begun: list[str] = []  # parts of the current string, while it may be a short one
        self._length = 0  # of the current string, so far
        self._carried = ""  # an incomplete escape at the end of a slice

    def add(self, slice: str) -> None:
        if self.is_bad or self.is_heavy:
            return
        text, at, kept = self._carried + slice, 0, len(self._kept)
        self._carried = ""
        while at < len(text) and not self.is_bad:
            at = self._inside(text, at) if self._is_inside else self._outside(text, at)
        self._weigh("".join(self._kept[kept:]))

    def _weigh(self, text: str) -> None:
        self._weight.add(text.encode("utf-8", "surrogatepass"))
        # defence: values of a browser's message
        if self._weight.total > self._most or self._weight.size > MAX_KEPT:
            self.is_heavy = True
            self._kept.clear()

    def text(self) -> str | None:
        """The skeleton, after the last slice; None if the text is not JSON, or heavy."""
        if self.is_bad or self.is_heavy or self._is_inside:
            return None
        return "".join(self._kept)

    def _outside(self, text: str, at: int) -> int:
        found = _OUTSIDE.match(text, at)
        assert found is not None  # it also matches the empty string
        end = found.end()
        self._keep(text[at:end])
        if end == len(text):
            return end
        self._is_inside, self._length = True, 0
        self._longest = LONGEST_ID if _ID.search(self._before) else SHORT
        return end + 1

    def _inside(self, text: str, at: int) -> int:
        end = text.find('"', at)
        end = len(text) if end < 0 else end
        if text.find("\\", at, end) < 0:
            # defence: control characters in a long string
            self.is_bad = not _is_plain(text[at:end])
        elif at == 0 and _is_within(text):  # tested once for each slice, not for each string
            end = len(text)
        else:
            found = _INSIDE.match(text, at)
            assert found is not None
            end = found.end()
            if end < len(text) and text[end] != '"':
                self._carried = text[end:]
                self.is_bad = text[end] != "\\" or len(self._carried) >= _PAIR
        self._length += end - at
        if self._length <= self._longest:
            self._begun.append(text[at:end])
        if self._carried or end == len(text):
            return len(text)
        self._keep(f'"{"".join(self._begun) if self._length <= self._longest else ""}"')
        self._begun.clear()
        self._is_inside = False
        return end + 1

    def _keep(self, text: str) -> None:
        self._kept.append(text)
        self._before = (self._before + text)[-_BEFORE:] if len(text) < _BEFORE else text[-_BEFORE:]
        # One character outside of ASCII can make Python use four bytes for each of the others.
        self.cost += len(text) if text.isascii() else 4 * len(text)


def checking_weight(text: str, most: int) -> Generator[None, None, bool]:
    """Does a long text take too long to parse? True if its skeleton weighs more than `most`, or if it has too many
    escapes or takes too much memory. Yields after each piece."""
    skeleton = JsonSkeleton(most)
    for start in range(0, len(text), PIECE):
        skeleton.add(text[start : start + PIECE])
        yield
    return skeleton.is_heavy or sys.getsizeof(text) > MAX_MEMORY or text.count("\\") > MAX_ESCAPES


def _is_plain(text: str) -> bool:
    """Is a text without quotes and backslashes valid inside a JSON string? Only control characters are not. orjson
    would escape them, so the length of its output shows them. The fastest test: it reads many characters at a time."""
    try:
        written = orjson.dumps(text)
    except orjson.JSONEncodeError:  # half of a surrogate pair
        return False
    return len(written) == len(text if text.isascii() else text.encode()) + 2


def _is_within(text: str) -> bool:
    """Is all of it inside one string, and does no escape continue in the next slice? The parser is several times
    faster than a regular expression."""
    try:
        orjson.loads(f'"{text}"')
    except orjson.JSONDecodeError:
        return False
    return True
