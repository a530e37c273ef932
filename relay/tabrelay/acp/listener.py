"""A port of this computer where `tabrelay mcp` comes in. Whoever does not know the nonce is sent away.

It accepts from the moment it is there: agents may connect before they have answered `session/new`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from tabrelay.acp.outlet import Outlet

log = logging.getLogger("tabrelay.acp")

NONCE_S: Final = 5.0
MAX_CONNECTIONS: Final = 64

Serve = Callable[[asyncio.StreamReader, Outlet], Awaitable[None]]


class Listener:
    """`serve` is called for each connection, and the connection ends when it returns."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.nonce = secrets.token_hex(16)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._is_closed = False  # somebody may have been accepted and not looked at yet
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """The port is free and all connections are gone when this returns."""
        if self._server is not None:
            self._server.close()
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_closed or len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await self._connection(reader, writer)
        except asyncio.CancelledError:
            pass  # by close: asyncio would report a cancelled connection as a failed one
        except Exception:
            log.exception("An MCP connection failed")
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ValueError, OSError):
            async with asyncio.timeout(NONCE_S):
                said = await reader.readline()
            if hmac.compare_digest(said.strip(), self.nonce.encode()):
                outlet = Outlet(writer)
                try:
                    await self._serve(reader, outlet)
                finally:
                    await outlet.close()
                return
        log.warning("Somebody came to port %d without the nonce, and was sent away.", self.port)
