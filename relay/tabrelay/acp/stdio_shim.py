"""`tabrelay mcp PORT`: stdio-to-TCP shim that an agent starts for each MCP server of the conductor.

It copies bytes in both directions. Agents wait for it, so it imports nothing slow: threads instead of an event loop, no
JSON. The first line that it sends is a nonce from its environment, without which the conductor closes the connection;
other programs that find the port do not have it. It does not interpret MCP messages.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from typing import Final

NONCE: Final = "TABRELAY_MCP_NONCE"
TRIES: Final = 10
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
CHUNK: Final = 1 << 16
FLUSH_S: Final = 2.0  # for output that is still in transit after the agent has closed stdin


def run(port: int, nonce: str) -> int:
    """Runs until one side closes; returns the exit code."""
    connection = _connect(port)
    if connection is None:
        print(f"No program listens on port {port}. Has `tabrelay acp` ended? [TR511]", file=sys.stderr)
        return 1
    connection.sendall(nonce.encode() + b"\n")
    is_over = threading.Event()
    for copy in (_copy_stdin, _copy_stdout):
        threading.Thread(target=copy, args=(connection, is_over), daemon=True).start()
    is_over.wait()
    return 0


def _connect(port: int) -> socket.socket | None:
    pause_s = FIRST_PAUSE_S
    for attempt in range(TRIES):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if attempt < TRIES - 1:
                time.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
    return None


def _copy_stdin(connection: socket.socket, is_over: threading.Event) -> None:
    """stdin to the conductor. After the end of stdin, the other direction stays open for FLUSH_S."""
    try:
        while data := os.read(0, CHUNK):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        is_over.set()
        return
    threading.Timer(FLUSH_S, is_over.set).start()


def _copy_stdout(connection: socket.socket, is_over: threading.Event) -> None:
    """Conductor to stdout."""
    try:
        while data := connection.recv(CHUNK):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]
    except OSError:
        pass  # one side is gone
    is_over.set()
