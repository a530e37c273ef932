"""Loopback addresses that a listening relay holds, and the reservation of the other address family.

`localhost` may mean 127.0.0.1 or ::1. A program that listens on the address to which the relay is not bound could
forward a challenge to the relay and impersonate it. So the relay binds the same port there too, without listening: the
system refuses connections, and clients try the other address. Does not listen and accepts no connection.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import Final

from tabrelay.http.addresses import LOOPBACK_NAMES, bracketed, is_wildcard

V4, V6 = "127.0.0.1", "::1"
# The system has no such address, so no program can listen there.
_ABSENT: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}


@dataclass(slots=True)
class Reservation:
    """`is_taken`: another program has the port on the other loopback address."""

    socket: socket.socket | None = None
    is_taken: bool = False

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


def reserve(listener: socket.socket) -> Reservation:
    """Bind the listener's port on the other loopback address until the reservation is closed."""
    has_v4, has_v6 = _families(listener)
    if has_v4 == has_v6:
        return Reservation()
    family, address = (socket.AF_INET6, V6) if has_v4 else (socket.AF_INET, V4)
    try:
        twin = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return Reservation()
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows
            twin.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        # defence: another program on the port: the other loopback address
        twin.bind((address, listener.getsockname()[1]))
    except OSError as error:
        twin.close()
        return Reservation(is_taken=error.errno not in _ABSENT)
    return Reservation(twin)


def held_names(listener: socket.socket, host: str, *, is_taken: bool = False) -> list[str]:
    """Names at which no other program can listen on this port, in the form of a Host header."""
    has_v4, has_v6 = _families(listener)
    names = [V4] * has_v4 + [bracketed(V6)] * has_v6
    if names and not is_taken:
        names.append("localhost")
    given = bracketed(host)
    return names if is_wildcard(host) or given in LOOPBACK_NAMES else [*names, given]


def _families(listener: socket.socket) -> tuple[bool, bool]:
    """Does the listener accept connections to 127.0.0.1, and to ::1?"""
    address = listener.getsockname()[0]
    if listener.family != socket.AF_INET6:
        return address in (V4, "0.0.0.0"), False
    is_both = address == "::" and not listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    return is_both, address in (V6, "::")
