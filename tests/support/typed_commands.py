"""A user who types documented commands into a shell, with an empty home directory and a separate port.

Lines are typed in order; `export` applies to later lines. A line that starts a relay returns when the relay is ready,
and the relay runs until `stop`. What a line prints is returned; it is the test that compares it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

from tabrelay.system import relay_records
from tests import canary
from tests.support.recorder import Wiretap
from tests.support.waiting import BOUND_S, until

STARTS_RELAY = ("make demo", "tabrelay serve", "tabrelay demo", "tabrelay dev")


class TypedCommands:
    """The shell of a user. `home` is empty at first; lines are typed in `folder`."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder = home, folder
        self.programs = home.parent / "programs"
        for path in (home, folder, self.programs):
            path.mkdir(exist_ok=True)
        # `tabrelay dev` also takes the next port.
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = str(probe.getsockname()[1])
        self.tap = Wiretap()
        kept = {name: os.environ[name] for name in ("LANG", "TZ", "TMPDIR") if name in os.environ}
        path_ = os.pathsep.join([str(self.programs), "/usr/local/bin", "/usr/bin", "/bin"])
        self.env = {**kept, **self.tap.env, "HOME": str(home), "PATH": path_, "TABRELAY_PORT": self.port}
        self._exports: list[str] = []
        self._relays: list[asyncio.subprocess.Process] = []

    def use_environment(self) -> None:
        """The commands of the environment that runs the tests, as in a shell that has activated it."""
        self.env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), self.env["PATH"]])

    def add_program(self, name: str, script: str) -> None:
        """A program on the user's PATH, before all others."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @property
    def state(self) -> Path:
        return self.home / ".config" / "tabrelay"

    @property
    def token(self) -> str:
        return (self.state / "token").read_text().strip()

    async def type(self, line: str) -> str:
        """The output of the line. A line that starts a relay returns when the relay is ready."""
        line = line.replace("4747", self.port)
        if line.startswith("export "):
            self._exports.append(line)
            return ""
        if line.startswith(STARTS_RELAY):
            return await self._start(self._script(line))
        code, out, err = await self._run(line)
        assert code == 0, f"{line}\n{out}\n{err}"
        return out

    async def type_and_fail(self, line: str) -> str:
        """What a terminal shows for a line whose exit code is not 0: its output, then its errors."""
        code, out, err = await self._run(line.replace("4747", self.port))
        assert code != 0, f"{line}\n{out}"
        return out + err

    def _script(self, line: str) -> str:
        return "\n".join(["set -e", *self._exports, line])

    async def _run(self, line: str) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", self._script(line)),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(BOUND_S):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def _start(self, script: str) -> str:
        log = self.folder.parent / f"relay-{len(self._relays)}.txt"
        with log.open("w") as file:
            relay = await asyncio.create_subprocess_exec(
                *("bash", "-c", script), cwd=self.folder, env=self.env, stdout=file, stderr=file
            )
        self._relays.append(relay)
        await until(lambda: "Ctrl+C stops" in log.read_text())
        canary.register(self.token)
        return log.read_text()

    async def stop(self) -> None:
        """Stop all relays that were started."""
        for record in relay_records.read(self.state):
            await self.type(f"tabrelay stop --port {record.port}")
        for relay in self._relays:
            async with asyncio.timeout(BOUND_S):
                await relay.wait()
