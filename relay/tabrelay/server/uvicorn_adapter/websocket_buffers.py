"""Byte buffers of WebSockets: the payload of one frame that arrives in parts, and the total over all connections.

Both are pure: the owner decides what to do when a limit is passed. They know nothing of frames and messages.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

BLOCK: Final = 16 * 1024

Holder = TypeVar("Holder")


class FrameBuffer:
    """Collects a known number of bytes in blocks of one size. `missing`: bytes to come. `cost`: memory held so far.

    A growing buffer would move whenever it finds no room, and leave holes in the heap that fit nothing else. A list of
    the parts would take fifty times their size if they arrive byte by byte.
    """

    __slots__ = ("_blocks", "_room", "cost", "missing")

    def __init__(self, size: int) -> None:
        self.missing = size
        self.cost = 0
        self._blocks: list[bytes | bytearray] = []
        self._room = 0  # free bytes at the end of the last block

    def add(self, data: memoryview) -> None:
        """`data` is never longer than `missing`."""
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
        """All bytes, once none is missing. The buffer is empty then."""
        blocks, self._blocks = self._blocks, []
        self.cost = 0
        return b"".join(blocks)


class BufferedBytes(Generic[Holder]):
    """Running total of bytes that many connections buffer, and the connection that has been over the threshold longest.

    That one is the first to be closed when the total is too large.
    """

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[Holder, int] = {}
        self._large: dict[Holder, None] = {}  # over the threshold, the longest first

    def set(self, holder: Holder, held: int, *, is_large: bool) -> None:
        """`is_large`: over the threshold, so it may be closed. Falling below the threshold resets its age."""
        self.total += held - self._held.get(holder, 0)
        if held:
            self._held[holder] = held
        else:
            self._held.pop(holder, None)
        if not is_large:
            self._large.pop(holder, None)
        elif holder not in self._large:
            self._large[holder] = None

    def remove(self, holder: Holder) -> None:
        self.total -= self._held.pop(holder, 0)
        self._large.pop(holder, None)

    @property
    def oldest(self) -> Holder | None:
        return next(iter(self._large), None)
