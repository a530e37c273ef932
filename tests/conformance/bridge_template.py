"""A process that has loaded `tabrelay stdio` and the SDK's sign-in, and forks for each connection to its socket.

A fork runs the command with the arguments and the environment of the connection's first message; the rest of the
connection is its stdin and stdout. Loading takes a second of CPU time, and the conformance suite has fifty scenarios
with a sign-in. It ends when its stdin does. It does not test the start of the command: other scenarios start a new
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.paths import ROOT

LENGTH = struct.Struct("!I")


@contextlib.asynccontextmanager
async def bridge_template(path: Path) -> AsyncIterator[None]:
    """The process, while `start` may connect to it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.conformance.bridge_template", str(listener.fileno())),
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            cwd=ROOT,
        )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def start(path: Path, argv: list[str], env: dict[str, str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Its stdout and its stdin."""
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    given = json.dumps({"argv": argv, "env": env}).encode()
    writer.write(LENGTH.pack(len(given)) + given)
    return reader, writer


# -- the process -------------------------------------------------------------------------------------------------------


def main(listener: socket.socket) -> None:
    import tabrelay.bridge.bridge
    import tabrelay.bridge.oauth.sdk_flow
    import tabrelay.bridge.stdio
    import tabrelay.cli.main
    import tabrelay.cli.stdio  # noqa: F401 - all of them for the forks

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _run(connection)
        connection.close()


def _run(connection: socket.socket) -> None:
    from tabrelay.cli.main import main as command

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        given = json.loads(_received(connection, LENGTH.unpack(_received(connection, LENGTH.size))[0]))
        os.environ.clear()
        os.environ.update(given["env"])
        for fd in (0, 1):
            os.dup2(connection.fileno(), fd)
        connection.close()
        code = command(given["argv"])
    finally:
        sys.stderr.flush()
        os._exit(code)


def _received(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("the test closed the connection")
        received += part
    return received


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
