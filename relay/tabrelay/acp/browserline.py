"""One MCP connection to a server of the relay's, for a program that is not at the other end of a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from tabrelay.bridge.bridge import Bridge
from tabrelay.bridge.outbound import Outbound

MAX_LINES: Final = 128

Deliver = Callable[[bytes], Awaitable[None]]


class BrowserLine:
    """What the server says goes to `deliver`. It runs from the moment it is made, until it is closed."""

    def __init__(self, outbound: Outbound, deliver: Deliver, *, has_listener: bool) -> None:
        self.broken = asyncio.Event()  # an output of the bridge's: this one never breaks
        self._deliver = deliver
        self._outbound = outbound
        self._lines: asyncio.Queue[bytes] = asyncio.Queue(MAX_LINES)
        self._bridge = Bridge(outbound, self, has_listener=has_listener)
        self._running = asyncio.create_task(self._run())

    async def say(self, line: bytes) -> None:
        await self._lines.put(line + b"\n")

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

    async def _run(self) -> None:
        try:
            await self._bridge.run(self._chunks())
        finally:
            await self._outbound.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._lines.get()
