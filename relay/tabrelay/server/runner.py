"""uvicorn server of the relay: binds the port, configures protocols and limits, drains on a stop signal.

The port is bound before anything is built, since the exact Host list needs the real one and a busy port deserves a
better answer than a traceback. A stop signal first drains the application, since uvicorn would begin by closing the
WebSockets that calls in flight are waiting for. This module does not depend on what the application does.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tabrelay.config.settings import Settings
from tabrelay.server.connection_slots import ConnectionSlots
from tabrelay.server.listener_close import empty_queue, stop_handshakes
from tabrelay.server.uvicorn_adapter.fast_request import is_uvicorn_supported
from tabrelay.server.uvicorn_adapter.http_protocol import HttpProtocol
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol
from tabrelay.system.allocator import HeapTrimmer, limit_free_memory
from tabserver.wire.frames import MAX_HEADER
from tabserver.wire.limits import LARGEST_PART

FREE_PORTS_TRIED = 100
LINGER_S = 1.0  # for HTTP responses that are left after the drain; their browsers are gone by then
HEADER_ROOM = MAX_HEADER + 1024  # bytes of a frame beside its payload
GC_THRESHOLD = 10_000  # new objects between two young collections; Python's default is 700
RETURN_MEMORY_EVERY_S = 5.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# uvloop accepts one connection per listening socket and loop iteration. With one socket, a client that connects while
# iterations are long would wait one iteration for each client before it.
# defence: one door for all
LISTENER_COPIES = 32


class BindError(Exception):
    """The address can't be used. ``free_port`` is one that can, when the problem is that the port is taken."""

    def __init__(self, message: str, free_port: int | None = None) -> None:
        super().__init__(message)
        self.free_port = free_port


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds the port."""
    name = host.strip("[]")
    try:
        return _bind(name, port)
    except socket.gaierror:
        raise BindError(f"{host} is not an address or name that this computer knows.") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = _free_port(name, port)
            raise BindError(f"Port {port} is taken (maybe by another tabrelay). Free: {free}.", free) from None
        if error.errno == errno.EACCES:
            raise BindError(f"Port {port} needs special rights. Use one above 1023.") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise BindError(f"{host} is not an address of this computer.") from None
        raise BindError(f"Can't listen on {host} port {port}: {error.strerror}.") from None


def _bind(name: str, port: int) -> socket.socket:
    family, kind, proto, _, address = socket.getaddrinfo(
        name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, proto)
    try:
        if hasattr(signal, "SIGHUP"):  # POSIX; on Windows the option would let two programs share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)  # with SO_REUSEADDR, some systems report a taken port only here
    except BaseException:
        sock.close()
        raise
    return sock


def _free_port(name: str, taken: int) -> int:
    for port in [*range(taken + 1, min(taken + FREE_PORTS_TRIED, 65536)), 0]:
        with contextlib.suppress(OSError), _bind(name, port) as sock:
            return int(sock.getsockname()[1])
    return 0


class RelayServer(uvicorn.Server):
    """uvicorn's server with a callback when it is ready, and a shutdown that is neither an error nor slow."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], None],
        drain: Callable[[], Awaitable[None]] | None = None,
        *,
        shares_port: bool = False,
    ) -> None:
        """`drain` runs after the first stop signal, while everything still works; the server ends when it returns.
        `shares_port`: other processes accept connections from the same listening socket, and keep using it."""
        super().__init__(config)
        self.trimmer: HeapTrimmer | None = None
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
            if self.trimmer is not None:
                self._return_memory(self.trimmer, self._loop)
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
        if issubclass(protocol, HttpProtocol):
            protocol.is_stopping = True
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpProtocol):
                connection.close_after_response()

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
            self._loop.call_soon_threadsafe(self._start_drain, drain)
            return
        # The second signal stops at once.
        self.force_exit = self.should_exit or self._draining is not None
        self.should_exit = True

    def _start_drain(self, drain: Callable[[], Awaitable[None]]) -> None:
        async def leave() -> None:
            self._close_after_responses()
            try:
                await drain()
            finally:
                self.should_exit = True

        self._draining = asyncio.create_task(leave())


def configure(app: Any, settings: Settings) -> uvicorn.Config:
    """uvicorn's configuration. The limits of connections are class attributes of the protocols."""
    WebSocketProtocol.abort_after_s = settings.abort_after_s
    WebSocketProtocol.budget = settings.body_budget
    WebSocketProtocol.max_handshakes = max(16, settings.max_connections // 8)
    HttpProtocol.max_header = settings.max_header
    HttpProtocol.max_ahead = settings.max_ahead
    HttpProtocol.header_deadline_s = settings.header_deadline_s
    HttpProtocol.body_deadline_s = settings.body_deadline_s
    HttpProtocol.max_connections = settings.max_connections

    is_fast = settings.fast_lane  # style: ok - the name of the setting is public

    class Connection(HttpProtocol):
        fast_path = getattr(app, "fast_path", None) if is_fast and is_uvicorn_supported() else None
        slots = ConnectionSlots()  # of this relay's connections

    if settings.trusted_proxies:
        # Outermost: all other layers see the client's address and scheme, as the proxy reports them.
        # defence: proxies that are not trusted
        app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))
    return uvicorn.Config(
        app,
        http=Connection,
        ws=WebSocketProtocol,
        loop="auto",
        ws_ping_interval=settings.ping_interval_s,
        ws_ping_timeout=settings.ping_timeout_s,
        ws_max_size=_largest_frame(settings),
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.connection_idle_s,  # type: ignore[arg-type]  # any number of seconds will do
        timeout_graceful_shutdown=int(LINGER_S) + 2,
    )


def run(
    app: Any,
    settings: Settings,
    sock: socket.socket,
    on_ready: Callable[[], None],
    drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until a stop signal arrives."""
    runner = RelayServer(configure(app, settings), on_ready, drain, shares_port=settings.workers > 1)
    # defence: memory: the allocator returns free memory
    runner.trimmer = HeapTrimmer() if limit_free_memory() else None
    tune_garbage_collector()
    # Processes that share a port accept connections one by one, so that each of them gets some.
    runner.run(sockets=listener_copies(sock) if settings.workers == 1 else [sock])


def listener_copies(sock: socket.socket) -> list[socket.socket]:
    """The listening socket and duplicates of it: one for each connection that may be accepted per loop iteration."""
    if not hasattr(signal, "SIGHUP"):
        return [sock]
    # Not `sock.dup()`: that makes the socket blocking, also for other processes that share it, and a process that finds
    # no connection left would block.
    return [sock, *(socket.socket(fileno=os.dup(sock.fileno())) for _ in range(LISTENER_COPIES - 1))]


def tune_garbage_collector() -> None:
    """Loaded modules stay until the end: exclude them from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def _largest_frame(settings: Settings) -> int:
    """Bytes of one WebSocket message. Large messages come in slices, except from plain pages."""
    slice_bytes = 4 * max(settings.max_part, LARGEST_PART)  # a character takes up to four bytes
    return max(slice_bytes, settings.max_message if settings.plain else 0) + HEADER_ROOM
