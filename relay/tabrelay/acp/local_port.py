"""Loopback TCP port for the connections of `tabrelay mcp`, authenticated by a nonce.

The port accepts connections from its creation: agents may connect before they have answered `session/new`. Every
process on the computer can connect, so connections that have not sent the nonce are counted separately and cannot block
those that send it. What is done with an authenticated connection is up to the caller (`serve`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from tabrelay.acp.line_writer import LineWriter
from tabrelay.system.tasks import cancel

log = logging.getLogger("tabrelay.acp")

NONCE_S: Final = 5.0
MAX_CONNECTIONS: Final = 64
MAX_UNAUTHENTICATED: Final = 64
# Connections that asyncio accepts in one go. `tabrelay mcp` sends the nonce immediately, so it is read before the batch
# after the next is accepted: a connection that is closed in favour of newer ones had time to send it.
BACKLOG: Final = MAX_UNAUTHENTICATED // 4

Serve = Callable[[asyncio.StreamReader, LineWriter], Awaitable[None]]


class LocalPort:
    """`serve` is called for each authenticated connection. The connection is closed when it returns."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.nonce = secrets.token_hex(16)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._is_closed = False  # a connection may have been accepted and not handled yet
        self._has_warned = False
        self._unauthenticated: dict[asyncio.Task[None], None] = {}  # oldest first
        self._authenticated = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises OSError."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """The port is free and all connections are gone when this returns."""
        if self._server is not None:
            self._server.close()
        self._is_closed = True
        await cancel(*self._tasks)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_closed:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            if await self._sends_nonce(task, reader):
                await self._serve_connection(reader, writer)
        except asyncio.CancelledError:
            pass  # by `close`, or in favour of a newer connection; asyncio would log it as a failure
        except Exception:
            log.exception("An MCP connection failed")
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _sends_nonce(self, task: asyncio.Task[None], reader: asyncio.StreamReader) -> bool:
        if len(self._unauthenticated) >= MAX_UNAUTHENTICATED:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.cancel()
        self._unauthenticated[task] = None
        try:
            async with asyncio.timeout(NONCE_S):
                line = await reader.readline()
            if hmac.compare_digest(line.strip(), self.nonce.encode()):
                return True
        except (TimeoutError, ValueError, OSError):
            pass
        finally:
            self._unauthenticated.pop(task, None)
        if not self._has_warned:  # once: any process could fill the log by connecting
            self._has_warned = True
            log.warning("A connection to port %d did not send the nonce and was closed.", self.port)
        return False

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._authenticated >= MAX_CONNECTIONS:
            log.warning("An agent has %d connections to one MCP server; another one was closed.", MAX_CONNECTIONS)
            return
        lines = LineWriter(writer)
        self._authenticated += 1
        try:
            with contextlib.suppress(OSError):
                await self._serve(reader, lines)
        finally:
            self._authenticated -= 1
            await lines.close()
