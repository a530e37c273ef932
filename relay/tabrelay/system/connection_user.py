"""Users of a loopback TCP connection: which users of this computer have the client's end, by the kernel's tables.

Linux only (`/proc/net/tcp`, `tcp6`). Another program can send any Origin header, but not from another user's socket.
Does not decide what a user may do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL: Final = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
_UID: Final = 7  # column


def users_of_connection(client_port: int, server_port: int) -> frozenset[int] | None:
    """The user ids of loopback sockets from the one port to the other; empty if there is none. None: this system does
    not tell. Reads files, so it is run in a thread."""
    if not sys.platform.startswith("linux"):
        return None
    found: set[int] = set()
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split(maxsplit=_UID + 1) for line in lines):
            address, _, port = fields[1].partition(":")
            if (port, fields[2].rpartition(":")[2]) == (f"{client_port:04X}", f"{server_port:04X}"):
                found |= {int(fields[_UID])} if address in _LOCAL else set()
    return frozenset(found)
