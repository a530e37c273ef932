"""uvicorn's server, with a drain before the stop and an orderly end of all connections.

A stop signal first drains the application, since uvicorn would begin by closing the WebSockets that calls in flight are
waiting for. SIGUSR1 asks for a restart: the server stops in the same way, and reports it to its caller. This module
does not depend on what the application does.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import Any

import uvicorn

from tabrelay.server.listener_close import empty_queue, stop_handshakes
from tabrelay.system.allocator import HeapTrimmer

LINGER_S = 1.0  # for HTTP responses that are left after the drain; their browsers are gone by then
RETURN_MEMORY_EVERY_S = 5.0
RESTART = getattr(signal, "SIGUSR1", None)  # not on Windows
SIGNALS = tuple(number for number in (signal.SIGINT, signal.SIGTERM, RESTART) if number is not None)


class RelayServer(uvicorn.Server):
    """uvicorn's server with a callback when it is ready, and a shutdown that is neither an error nor slow."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], None],
        drain: Callable[[bool], Awaitable[None]] | None = None,
        *,
        shares_port: bool = False,
        trimmer: HeapTrimmer | None = None,
    ) -> None:
        """`drain` runs after the first stop signal, while everything still works; the server ends when it returns. Its
        argument: the signal asks for a restart. `shares_port`: other processes accept connections from the same
        listening socket, and keep using it. `trimmer` returns free memory every few seconds."""
        super().__init__(config)
        self.is_restart = False
        self._trimmer = trimmer
        self._memory_timer: asyncio.TimerHandle | None = None
        self._shares_port = shares_port
        self._on_ready = on_ready
        self._drain = drain
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._loop = asyncio.get_running_loop()
            if self._trimmer is not None:
                self._return_memory(self._trimmer, self._loop)
            self._on_ready()

    def _return_memory(self, trimmer: HeapTrimmer, loop: asyncio.AbstractEventLoop) -> None:
        trimmer.trim()
        # defence: memory: free memory at the end of the heap is given back every few seconds
        self._memory_timer = loop.call_later(RETURN_MEMORY_EVERY_S, self._return_memory, trimmer, loop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._memory_timer is not None:
            self._memory_timer.cancel()
        # defence: answers when the relay stops
        self._close_after_responses()
        if sockets and not self.force_exit and not self._shares_port:
            stop_handshakes(sockets[0])
            await empty_queue(sockets[0])
        # An event stream ends when its client disconnects. After LINGER_S the server aborts the connection, so that the
        # application ends normally, where uvicorn would cancel it and log a traceback.
        timer = asyncio.get_running_loop().call_later(0 if self.force_exit else LINGER_S, self._abort_connections)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _close_after_responses(self) -> None:
        """From now on every response closes its connection, so that no client sends its next request on a connection
        that is about to be closed."""
        protocol: Any = self.config.http_protocol_class
        protocol.is_stopping = True
        for connection in list(self.server_state.connections):
            close: Callable[[], None] | None = getattr(connection, "close_after_response", None)
            if close is not None:
                close()

    def _abort_connections(self) -> None:
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Unlike uvicorn's, a handled signal is not raised again, so that a normal stop exits with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._drain is not None and self._loop is not None:
            drain, self._drain = self._drain, None
            self.is_restart = number == RESTART
            self._loop.call_soon_threadsafe(self._start_drain, drain)
            return
        if number == RESTART:
            return  # it stops already
        # The second signal stops at once.
        self.is_restart = False
        self.force_exit = self.should_exit or self._draining is not None
        self.should_exit = True

    def _start_drain(self, drain: Callable[[bool], Awaitable[None]]) -> None:
        async def leave() -> None:
            self._close_after_responses()
            try:
                await drain(self.is_restart)
            finally:
                self.should_exit = True

        self._draining = asyncio.create_task(leave())
