"""`tabrelay mcp PORT` as agents start it: it loads little, forwards bytes unread, and ends when either end closes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tabrelay.acp import stdio_shim
from tests.support.acp_harness import WAIT_S

COMMAND = [sys.executable, "-m", "tabrelay", "mcp"]


class FakeConductor:
    """Stands in for the conductor: accepts the connection."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def __aenter__(self) -> FakeConductor:
        self.server = await asyncio.start_server(lambda *pair: self.came.put_nowait(pair), "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()

    async def accept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(WAIT_S):
            return await self.came.get()


@asynccontextmanager
async def child(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    env = {**os.environ, stdio_shim.NONCE: "secret"}
    process = await asyncio.create_subprocess_exec(*COMMAND, str(port), stdin=pipe, stdout=pipe, stderr=pipe, env=env)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: Any) -> int:
    async with asyncio.timeout(WAIT_S):
        return int(await process.wait())


def test_it_loads_nothing_that_takes_time() -> None:
    code = (
        "import sys, json; before = set(sys.modules)\n"
        "from tabrelay.cli.main import main; main(['mcp', '1']); print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    # No program listens on port 1, and it gives up after one attempt.
    code = "import tabrelay.acp.stdio_shim as shim; shim.TRIES = 1\n" + code
    env = {**os.environ, stdio_shim.NONCE: "secret"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    heavy = {"asyncio", "ssl", "httpx2", "orjson", "fastapi", "pydantic", "uvicorn", "anyio", "mcp", "logging", "json"}
    assert loaded & heavy <= {"json"}  # which the test itself imports
    ours = {name for name in json.loads(done.stdout) if name.startswith(("tabrelay", "tabserver"))}
    assert ours == {
        "tabrelay.cli",
        "tabrelay.cli.main",
        "tabrelay.cli.flags",
        "tabrelay.cli.mcp",
        "tabrelay.cli.output",
        "tabrelay.cli.colours",
        "tabrelay.cli.parsers",
        "tabrelay.system",
        "tabrelay.system.program",
    }


async def test_the_nonce_is_the_first_line_and_then_every_byte_passes() -> None:
    async with FakeConductor() as harbour, child(harbour.port) as process:
        assert process.stdin and process.stdout
        reader, writer = await harbour.accept()
        data = bytes(range(256)) * 4096  # no lines, no UTF-8, no JSON
        process.stdin.write(data)
        async with asyncio.timeout(WAIT_S):
            assert await reader.readline() == b"secret\n"
            assert await reader.readexactly(len(data)) == data
            writer.write(data[::-1])
            assert await process.stdout.readexactly(len(data)) == data[::-1]
        writer.close()
        assert await ended(process) == 0
        assert await process.stdout.read() == b""


async def test_it_ends_with_its_stdin_and_what_was_under_way_still_arrives() -> None:
    async with FakeConductor() as harbour, child(harbour.port) as process:
        assert process.stdin and process.stdout
        reader, writer = await harbour.accept()
        process.stdin.write(b"last\n")
        process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            assert await reader.read() == b"secret\nlast\n"
            writer.write(b"answer\n")
            writer.close()
            assert await process.stdout.read() == b"answer\n"
        assert await ended(process) == 0


async def test_it_ends_with_its_stdin_even_if_the_conductor_does_not_disconnect() -> None:
    async with FakeConductor() as harbour, child(harbour.port) as process:
        assert process.stdin
        reader, writer = await harbour.accept()
        process.stdin.close()
        assert await ended(process) == 0
        writer.close()
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionError):
                await reader.read()


async def test_it_ends_when_the_conductor_is_gone() -> None:
    async with FakeConductor() as harbour, child(harbour.port) as process:
        _, writer = await harbour.accept()
        writer.transport.abort()
        assert await ended(process) == 0


def test_it_tries_ten_times_with_longer_and_longer_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def refuse(address: Any) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert stdio_shim.run(1, "secret") == 1
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]


def test_without_a_nonce_it_prints_its_purpose() -> None:
    env = {name: value for name, value in os.environ.items() if name != stdio_shim.NONCE}
    done = subprocess.run([*COMMAND, "1"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "tabrelay acp" in done.stderr
