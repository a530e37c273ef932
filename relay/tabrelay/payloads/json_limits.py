"""Limits of JSON before it is used: how deep a parsed value nests, and how much CPU time a text takes to parse.

The weight of a text estimates its parse time. The unit is one small number in a list. A key weighs 2, so does a list;
an object, `TEXT_BYTES` bytes of text and `ESCAPES` backslashes weigh 1 each. orjson takes 3 to 21 ms for a text of
weight 200,000, depending on its shape. The estimate uses operations that run at C speed over a whole piece of text, and
ignores punctuation inside strings. The depth check does not recurse: a hostile value could exhaust the stack.

Pure. Does not check whether the text is JSON, and does not decide what is refused.
"""

from __future__ import annotations

from typing import Any, Final

TEXT_BYTES: Final = 64
ESCAPES: Final = 8
# No character weighs more than this.
DENSEST: Final = 3
PIECE: Final = 256 * 1024
"""Bytes that `Weight.add` takes in one callback: up to 4 ms."""
_MARKS: Final = b',:[{"'
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _MARKS)
# Compared with the type of each value: `isinstance` with a union of types takes three times as long.
_COMPOUND: Final = frozenset({dict, list})


def is_deeper_than(value: Any, levels: int) -> bool:
    """Do lists and objects nest more than `levels` deep? An empty one counts like any other.

    `value` must come from a JSON parser: subclasses of list and dict do not count. 250,000 values take about 14 ms.
    """
    layer = [value] if type(value) in _COMPOUND else []
    while layer and levels > 0:
        levels -= 1
        layer = [
            item
            for node in layer
            for item in (node.values() if type(node) is dict else node)
            if type(item) in _COMPOUND
        ]
    return bool(layer)


class Weight:
    """Weight of one text that is added piece by piece, in UTF-8. `total` is complete after the last piece. `size`: in
    bytes."""

    __slots__ = ("_carried", "_escapes", "_is_inside", "_units", "size")

    def __init__(self) -> None:
        self._units = 0
        self._escapes = 0
        self.size = 0
        self._carried = b""  # a backslash whose second character is in the next piece
        self._is_inside = False  # of a string

    @property
    def total(self) -> int:
        return self._units + self.size // TEXT_BYTES + self._escapes // ESCAPES

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._carried:
            piece, self._carried = self._carried + piece, b""
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece, self._carried = piece[:-1], b"\\"
        if b"\\" in piece:
            self._escapes += piece.count(b"\\")
            # From left to right: a backslash that remains after the first step escapes the character behind it.
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        marks = piece.translate(None, _OTHERS)
        if b'"' in marks:
            marks = self._outside(marks)
        elif self._is_inside:
            return
        count = marks.count
        self._units += count(b",") + count(b"{") + 2 * (count(b":") + count(b"["))

    def _outside(self, marks: bytes) -> bytes:
        """`marks`, which has a quote, without those inside strings."""
        if self._is_inside:
            marks = marks[marks.index(b'"') + 1 :]
        # Most strings contain no mark. In JSON, a mark is between the end of a string and the next string.
        parts = marks.replace(b'""', b"").split(b'"')
        self._is_inside = len(parts) % 2 == 0
        return b"".join(parts[::2])


def is_heavy(text: str | bytes, most: int) -> bool:
    """Does the text weigh more than `most`? The answer is exact for JSON; other text is left to the parser."""
    if len(text) * DENSEST <= most:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    weight, view = Weight(), memoryview(data)
    for start in range(0, len(data), PIECE):
        weight.add(bytes(view[start : start + PIECE]))
        if weight.total > most:
            return True
    return False
