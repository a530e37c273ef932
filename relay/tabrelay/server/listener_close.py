"""Graceful close of a listening socket: no reset for connections that the kernel has accepted and the process has not.

When a listening socket is closed, Linux resets the connections in its accept queue, and their clients do not know what
became of the requests that they had sent. So new handshakes are stopped first, by a socket filter that drops SYN
segments; then the event loop accepts what is in the queue; then the socket can be closed. A client whose SYN was
dropped sends it again after a second: it is refused, or reaches the next relay on this port. On other systems, and
where filters are not allowed, the queue is emptied as far as possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import select
import socket
import struct
import sys
from typing import Final

ACCEPT_S: Final = 0.5  # for what is in the queue
POLL_S: Final = 0.01
_SO_ATTACH_FILTER: Final = 26
# Classic BPF. A TCP socket's filter sees the segment from its TCP header on; byte 13 of it has the flags.
_DROP_SYN: Final = (
    (0x30, 0, 0, 13),  # load byte 13
    # defence: connections that are not accepted yet when the relay stops
    (0x45, 0, 1, 0x02),  # is SYN set?
    (0x06, 0, 0, 0),  # then drop the segment
    (0x06, 0, 0, 0xFFFFFFFF),  # else keep it
)


def stop_handshakes(listener: socket.socket) -> bool:
    """From now on the kernel begins no new connection. False if this is not possible here."""
    if sys.platform != "linux":
        return False
    code = b"".join(struct.pack("HBBI", *line) for line in _DROP_SYN)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(buffer))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True


async def empty_queue(listener: socket.socket) -> None:
    """Wait until the event loop has accepted all connections that are there, within `ACCEPT_S`."""
    await asyncio.sleep(POLL_S)  # a handshake that has begun ends within this, on this computer
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ACCEPT_S):
            while has_unread(listener.fileno()):  # noqa: ASYNC110 - asyncio has no event for an empty accept queue
                await asyncio.sleep(POLL_S)


def has_unread(descriptor: int) -> bool:
    """Is there something to read, or to accept, that the event loop has not read yet?"""
    if descriptor < 0:
        return False
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])
