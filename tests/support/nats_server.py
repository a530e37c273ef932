"""A real nats-server on any free port, for tests of several relays. It can be killed, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path


def program() -> str:
    """The configured program, or the one on the PATH, or Debian's."""
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
        # It takes a free port and reports it. After a restart it must have the same port.
        log = self._folder / "nats.log"
        place = ["-a", "127.0.0.1", "-p", str(self.port or -1), "--ports_file_dir", str(self._folder)]
        self._process = await asyncio.create_subprocess_exec(program(), *place, "-l", str(log), *flags)
        async with asyncio.timeout(60):
            while not (port := self._listens_on(self._process.pid)):
                assert self._process.returncode is None, log.read_text(encoding="utf-8")
                await asyncio.sleep(0.02)
        self.port = port

    def _listens_on(self, pid: int) -> int:
        """The port from the file that the server writes; 0 while the file is incomplete."""
        for path in self._folder.glob(f"*_{pid}.ports"):
            with suppress(ValueError):
                return int(json.loads(path.read_text(encoding="utf-8"))["nats"][0].rpartition(":")[2])
        return 0

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
