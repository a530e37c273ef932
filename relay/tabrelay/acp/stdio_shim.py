"""`tabrelay mcp PORT`: the program that an agent starts for each MCP server. Bytes in, bytes out, and nothing else.

Agents wait for it, so it loads nothing that takes time: threads that copy, no event loop, no JSON. The first line that
it sends is a nonce of its environment, without which the conductor hangs up; whoever else finds the port has none.
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
FLUSH_S: Final = 2.0  # for what is still on its way when the agent has said everything


def run(port: int, nonce: str) -> int:
    """The exit code."""
    line = _connect(port)
    if line is None:
        print(f"Nobody listens on port {port} any more: has `tabrelay acp` ended?", file=sys.stderr)
        return 1
    line.sendall(nonce.encode() + b"\n")
    is_over = threading.Event()
    for copy in (_copy_stdin, _copy_stdout):
        threading.Thread(target=copy, args=(line, is_over), daemon=True).start()
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


def _copy_stdin(line: socket.socket, is_over: threading.Event) -> None:
    """stdin to the conductor. At its end the other direction may still say something, for a moment."""
    try:
        while data := os.read(0, CHUNK):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)
    except OSError:
        is_over.set()
        return
    threading.Timer(FLUSH_S, is_over.set).start()


def _copy_stdout(line: socket.socket, is_over: threading.Event) -> None:
    """The conductor to stdout."""
    try:
        while data := line.recv(CHUNK):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]
    except OSError:
        pass  # one of the two is gone, and that is the end
    is_over.set()
