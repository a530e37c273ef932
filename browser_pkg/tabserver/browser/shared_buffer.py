"""The slate: a piece of Python's memory that JavaScript writes texts on, instead of handing over a string.

A string goes over letter by letter, which for an ordinary frame takes as long as the link has to do with it. What does
not fit is handed over as it was.
"""

from __future__ import annotations

from typing import Final

# In bytes of UTF-8. More than a part of a large message has.
SIZE: Final = 1024 * 1024


class SharedBuffer:
    """One for all listeners of a worker: what is on it is read before anything else can be written."""

    def __init__(self) -> None:
        self.memory = bytearray(SIZE)
        self._view = memoryview(self.memory)

    def read(self, size: int) -> str:
        return str(self._view[:size], "utf-8")
