"""One MCP connection to a server of the relay, for a client that sends lines by function calls instead of a pipe.

It runs a bridge (`bridge.bridge`) with a bounded input queue. A server that takes nothing for 10 s makes the session
stuck: it is stopped, and lines that are sent after that are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from tabrelay.bridge.bridge import Bridge
from tabrelay.bridge.outbound import Outbound

log = logging.getLogger("tabrelay.acp")

MAX_LINES: Final = 128
MAX_BYTES: Final = 8 << 20
STALL_TIMEOUT_S: Final = 10.0
"""How long `send` waits for room: it runs in the agent's reader, and all other messages of the agent wait too."""

Deliver = Callable[[bytes], Awaitable[None]]


class RelaySession:
    """Runs from its creation until it is closed. `deliver` gets each line of the server."""

    def __init__(
        self,
        outbound: Outbound,
        deliver: Deliver,
        *,
        has_server_stream: bool,
        on_stuck: Callable[[], None] | None = None,
    ) -> None:
        """`on_stuck` is called when the server no longer reads; further lines are dropped."""
        self.broken = asyncio.Event()  # part of the bridge's Output protocol; never set here
        self._deliver = deliver
        self._outbound = outbound
        self._on_stuck = on_stuck
        self._is_stuck = False
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._has_lines = asyncio.Event()
        self._has_room = asyncio.Event()
        self._bridge = Bridge(outbound, self, has_server_stream=has_server_stream)
        self._running = asyncio.create_task(self._run())

    async def send(self, line: bytes) -> None:
        try:
            async with asyncio.timeout(STALL_TIMEOUT_S):
                while self._is_full and not self._is_stuck:
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            log.warning("A browser's server has read nothing for %.0f s; the connection is closed.", STALL_TIMEOUT_S)
            self._is_stuck = True
            self._has_room.set()
            self.stop()
            if self._on_stuck is not None:
                self._on_stuck()
        if not self._is_stuck:
            self._lines.append(line + b"\n")
            self._size += len(line) + 1
            self._has_lines.set()

    async def write(self, line: bytes) -> None:
        """A line of the server, from the bridge."""
        await self._deliver(line)

    def stop(self) -> None:
        """Cancels the running requests."""
        self._bridge.stop()

    async def close(self) -> None:
        """Stops and waits for the end."""
        self.stop()
        await asyncio.wait({self._running})

    @property
    def _is_full(self) -> bool:
        return len(self._lines) >= MAX_LINES or self._size >= MAX_BYTES

    async def _run(self) -> None:
        try:
            await self._bridge.run(self._chunks())
        finally:
            await self._outbound.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            while not self._lines:
                self._has_lines.clear()
                await self._has_lines.wait()
            line = self._lines.popleft()
            self._size -= len(line)
            self._has_room.set()
            yield line
