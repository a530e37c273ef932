"""Process of one relay: binds the port, sets up memory and the garbage collector, and runs the server.

The port is bound before anything is built, since the exact Host list needs the real one and a busy port deserves a
better answer than a traceback. This module does not depend on what the application does.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tabrelay.config.settings import Settings
from tabrelay.server.uvicorn_adapter.configuration import configure
from tabrelay.server.uvicorn_adapter.relay_server import RelayServer
from tabrelay.system.allocator import HeapTrimmer, limit_free_memory

FREE_PORTS_TRIED = 100
GC_THRESHOLD = 10_000  # new objects between two young collections; Python's default is 700
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


def run(
    app: Any,
    settings: Settings,
    sock: socket.socket,
    on_ready: Callable[[], None],
    drain: Callable[[bool], Awaitable[None]] | None = None,
    more: Sequence[socket.socket] = (),
) -> bool:
    """Serve until a stop signal arrives. Returns True if the signal asks for a restart. `more`: sockets of further
    ports."""
    # defence: memory: the allocator returns free memory
    trimmer = HeapTrimmer() if limit_free_memory() else None
    runner = RelayServer(configure(app, settings), on_ready, drain, shares_port=settings.workers > 1, trimmer=trimmer)
    tune_garbage_collector()
    # Processes that share a port accept connections one by one, so that each of them gets some.
    copies = listener_copies(sock) if settings.workers == 1 else [sock]
    runner.run(sockets=[*copies, *(copy for other in more for copy in listener_copies(other))])
    return runner.is_restart


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
