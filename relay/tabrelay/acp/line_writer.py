"""Line output to one MCP connection, with a bounded buffer and a stall timeout.

Lines are written in order by one task. A client that reads nothing for 10 s is disconnected, so that it does not delay
the other connections of the conductor for longer. Lines that are written after that are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

log = logging.getLogger("tabrelay.acp")

MAX_LINES: Final = 128
MAX_BYTES: Final = 8 << 20
STALL_TIMEOUT_S: Final = 10.0
"""How long a writer waits for room; then the connection counts as dead."""


class LineWriter:
    """`broken` is set when the client no longer reads; further lines are dropped."""

    def __init__(self, writer: asyncio.StreamWriter, stall_timeout_s: float = STALL_TIMEOUT_S) -> None:
        self._writer = writer
        self._stall_timeout_s = stall_timeout_s
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._size = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.broken = asyncio.Event()
        self._writing = asyncio.create_task(self._write())

    async def wait_for_room(self) -> None:
        """Waits until a line can be written. After the stall timeout, the connection is aborted."""
        if not self._has_room.is_set():
            try:
                async with asyncio.timeout(self._stall_timeout_s):
                    await self._has_room.wait()
            except TimeoutError:
                log.warning(
                    "An MCP client of the agent has read nothing for %.0f s; its connection is closed.",
                    self._stall_timeout_s,
                )
                self._break()

    async def write(self, line: bytes) -> None:
        await self.wait_for_room()
        if self.broken.is_set():
            return
        self._size += len(line)
        self._lines.put_nowait(line)
        if self._lines.qsize() >= MAX_LINES or self._size >= MAX_BYTES:
            self._has_room.clear()

    async def close(self) -> None:
        """Writes the remaining lines for at most 1 s, then closes the connection."""
        self._lines.put_nowait(None)
        await asyncio.wait({self._writing}, timeout=1.0)
        self._writing.cancel()
        self._break()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    async def _write(self) -> None:
        try:
            while (line := await self._lines.get()) is not None:
                self._writer.write(line + b"\n")
                await self._writer.drain()
                self._size -= len(line)
                if self._lines.qsize() < MAX_LINES and self._size < MAX_BYTES:
                    self._has_room.set()
        except OSError:
            self._break()

    def _break(self) -> None:
        self.broken.set()
        self._has_room.set()
        self._writer.transport.abort()
