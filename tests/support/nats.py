"""A real nats-server on any free port, for tests of several relays. It can be killed, stopped and started again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from pathlib import Path


def program() -> str:
    """The one that is named, or on the PATH, or where Debian puts it."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = os.environ.get("TABRELAY_NATS_SERVER") or shutil.which("nats-server", path=places)
    assert found, "no nats-server: run `python3 .ci/setup.py test`, or set TABRELAY_NATS_SERVER"
    return found


class NatsServer:
    """Start it with `async with`. The port stays the same when it is started again."""

    def __init__(self, folder: Path, *flags: str, config: str = "") -> None:
        self._folder = folder
        self._flags = flags
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.scheme = "nats"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> NatsServer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()

    async def start(self) -> None:
        flags = [*self._flags]
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._config:
            path = self._folder / "nats.conf"
            path.write_text(self._config, encoding="utf-8")
            flags += ["-c", str(path)]
        # The one that it chooses could be anybody's when it is started again: it is chosen here, and kept.
        port = self.port or _free_port()
        log = self._folder / "nats.log"
        self._process = await asyncio.create_subprocess_exec(
            program(), "-a", "127.0.0.1", "-p", str(port), "-l", str(log), *flags
        )
        async with asyncio.timeout(20):
            while not await _answers(port):
                assert self._process.returncode is None, log.read_text(encoding="utf-8")
                await asyncio.sleep(0.02)
        self.port = port

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            await self._process.wait()

    @property
    def rss(self) -> int:
        """Its resident memory, in bytes."""
        assert self._process is not None
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        return (await reader.read(4)) == b"INFO"
    finally:
        writer.close()
