"""A `tabrelay` command as a real child process, and what can be read of any process from outside."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Self

from tabrelay.system.process_guard import SCRIPT
from tests.support.waiting import BOUND_S

WAIT_S = BOUND_S


class Program:
    """`tabrelay VERB …` with pipes on all sides. Use `async with`: the process ends with the test."""

    def __init__(self, verb: str, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", "tabrelay", verb, *map(str, arguments)]
        self._env = {**os.environ, **(env or {})}

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, limit=1 << 27
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self._stdout = self.process.stdin, self.process.stdout
        self._log = asyncio.create_task(self.process.stderr.read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._log

    async def line(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return (await self._stdout.readline()).rstrip(b"\n")

    def close(self) -> None:
        self.stdin.close()

    def close_output(self) -> None:
        """Close the pipe as a client does that has died, while another process still holds its other end."""
        transport = self._stdout._transport  # type: ignore[attr-defined]
        transport.close()
        transport._pipe.close()  # the transport does it in a later iteration, when an answer may have been written

    def pause(self) -> None:
        """Stop reading."""
        self._stdout._transport.pause_reading()  # type: ignore[attr-defined]

    def resume(self) -> None:
        self._stdout._transport.resume_reading()  # type: ignore[attr-defined]

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()

    async def log(self) -> str:
        """Its whole stderr, once it has ended."""
        async with asyncio.timeout(WAIT_S):
            return (await self._log).decode()


def children(pid: int) -> list[int]:
    """The processes that it has started, except the guard process of `tabrelay.system.process_guard`."""
    return [child for child in all_children(pid) if not is_guard(child)]


def all_children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_guard(pid: int) -> bool:
    """A new process has no command line for a moment, while its parent already goes on."""
    until_s = time.monotonic() + WAIT_S
    try:
        while not (line := Path(f"/proc/{pid}/cmdline").read_text()) and time.monotonic() < until_s:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
        return line.rstrip("\0").endswith(SCRIPT)
    except OSError:  # it has just ended
        return False


def memory(pid: int) -> int:
    """The peak memory, in bytes."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def traffic(pid: int) -> str:
    return Path(f"/proc/{pid}/io").read_text()


async def gone(pid: int) -> None:
    """The process has ended, whether or not its parent has collected it."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(WAIT_S):
            await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def quiet(pid: int) -> None:
    """The process has read and written nothing for a while, so it has finished its work."""
    seen, calm = "", 0
    async with asyncio.timeout(WAIT_S):
        while calm < 10:
            now = traffic(pid)
            seen, calm = now, calm + 1 if now == seen else 0
            await asyncio.sleep(0.05)
