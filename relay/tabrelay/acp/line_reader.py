"""Read-ahead buffer for the lines of an MCP client.

A few lines are read before they are needed, so that the end of the stream is noticed in the meantime.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

MAX_LINES: Final = 32
MAX_BYTES: Final = 1 << 20


class LineReader:
    """`ended` is set when it has hung up, and all that it said before can be had. It reads until it is closed."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._source = lines
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            while self._lines:
                line = self._lines.popleft()
                self._size -= len(line)
                self._has_room.set()
                yield line
            if self._reading.done():
                self._reading.result()  # a bug: let it be seen
                return
            self._has_news.clear()
            await self._has_news.wait()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        try:
            async for line in self._source:
                self._lines.append(line)
                self._size += len(line)
                self._has_news.set()
                while len(self._lines) >= MAX_LINES or self._size >= MAX_BYTES:
                    self._has_room.clear()
                    await self._has_room.wait()
            self.ended.set()
        finally:
            # Not before this task is done, which whoever is woken looks at.
            asyncio.get_running_loop().call_soon(self._has_news.set)
