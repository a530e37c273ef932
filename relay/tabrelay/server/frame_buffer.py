"""The bytes of one frame that comes bit by bit, until there are as many as were announced; pure.

They are kept in blocks of one size. A buffer that grows moves whenever it finds no room, and leaves holes behind that
fit nobody else; a list of what came takes fifty times as much as is in it when it came byte by byte. What a frame is,
is not known here.
"""

from __future__ import annotations

from typing import Final

BLOCK: Final = 16 * 1024


class FrameBuffer:
    """`missing`: bytes that have not come yet. `cost`: what is held for those that have."""

    __slots__ = ("_blocks", "_room", "cost", "missing")

    def __init__(self, size: int) -> None:
        self.missing = size
        self.cost = 0
        self._blocks: list[bytes | bytearray] = []
        self._room = 0  # at the end of the last block

    def add(self, data: memoryview) -> None:
        """No more than is missing."""
        while data:
            # defence: bytes of a frame that comes in crumbs
            if not self._room and len(data) >= BLOCK:
                self._blocks.append(bytes(data[:BLOCK]))
                self.cost += BLOCK
                taken = BLOCK
            else:
                if not self._room:
                    self._room = min(BLOCK, self.missing)
                    self._blocks.append(bytearray(self._room))
                    self.cost += self._room
                last = self._blocks[-1]
                assert isinstance(last, bytearray)
                taken = min(self._room, len(data))
                start = len(last) - self._room
                last[start : start + taken] = data[:taken]
                self._room -= taken
            self.missing -= taken
            data = data[taken:]

    def take(self) -> bytes:
        """All of it, once nothing is missing; it is not kept any longer."""
        blocks, self._blocks = self._blocks, []
        self.cost = 0
        return b"".join(blocks)
