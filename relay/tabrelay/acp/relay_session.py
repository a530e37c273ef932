"""One MCP connection to a server of the relay's, for a program that is not at the other end of a pipe."""

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
"""How long whoever says something waits for room: it is the agent's reader, and all that the agent says waits too."""

Deliver = Callable[[bytes], Awaitable[None]]


class RelaySession:
    """What the server says goes to `deliver`. It runs from the moment it is made, until it is closed."""

    def __init__(
        self,
        outbound: Outbound,
        deliver: Deliver,
        *,
        has_server_stream: bool,
        on_stuck: Callable[[], None] | None = None,
    ) -> None:
        """`on_stuck`: nothing is taken any more, and what is said from now on is gone."""
        self.broken = asyncio.Event()  # an output of the bridge's: this one never breaks
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
            log.warning("A browser's server has taken nothing for %.0f s; hung up.", STALL_TIMEOUT_S)
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
        """What the bridge says."""
        await self._deliver(line)

    def stop(self) -> None:
        """Nothing more is wanted: what is on its way is given up."""
        self._bridge.stop()

    async def close(self) -> None:
        """Stop, and wait for the end."""
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
