"""Shared text buffer between JavaScript and Python: JavaScript writes UTF-8 into Python's memory.

A string that crosses from JavaScript is copied character by character, which for a usual frame takes as long as all the
link's work on it. A text that does not fit into the buffer is passed as a string.
"""

from __future__ import annotations

from typing import Final

# In bytes of UTF-8. More than a part of a large message has.
SIZE: Final = 1024 * 1024


class SharedBuffer:
    """One for all listeners of a worker: its content is read before any listener can write again."""

    def __init__(self) -> None:
        self.memory = bytearray(SIZE)
        self._view = memoryview(self.memory)

    def read(self, size: int) -> str:
        return str(self._view[:size], "utf-8")
