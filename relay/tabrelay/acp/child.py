"""Child process of the conductor: an agent or a proxy, with lines on stdin and stdout.

It inherits the editor's environment and stderr, which the conductor neither reads nor changes. Ending it ends its whole
process group. The content of the lines is not interpreted here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
from collections.abc import AsyncIterator, Sequence
from typing import Final

from tabrelay.acp import line_reader
from tabrelay.system import process_group
from tabrelay.system.pipe_lines import LineTooLong

CHUNK: Final = 1 << 18
EXIT_S: Final = 2.0
TERM_S: Final = 2.0


class ChildError(Exception):
    """The program can't be started; the text gives the reason."""


def _start_error(program: str, error: Exception) -> str:
    """The reason why a program could not be started, and a hint."""
    found = shutil.which(program, os.F_OK) or (program if os.sep in program and os.path.exists(program) else None)
    if found is None and isinstance(error, FileNotFoundError | PermissionError):
        return f'There is no program "{program}" here. Is it installed? If it is, write its whole path: {_PATH_HINT}'
    hint = ""
    if isinstance(error, FileNotFoundError):
        hint = f" The interpreter that its first line names does not exist: {_PATH_HINT}"
    elif found is not None and os.path.isdir(found):
        hint = " It is a folder."
    elif isinstance(error, PermissionError):
        hint = f" Is it a program that you may run? If so: chmod +x {shlex.quote(found or program)}"
    elif getattr(error, "errno", None) == errno.ENOEXEC:
        hint = " It is not a program for this computer, or a script whose first line names no interpreter."
    return f'"{program}" could not be started: {getattr(error, "strerror", None) or error}.{hint}'


_PATH_HINT: Final = "editors often have another PATH than your shell."


class ChildProcess:
    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None
        self._is_input_closed = False

    async def start(self) -> None:
        """Raises ChildError."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await process_group.start(*self.command, stdin=pipe, stdout=pipe)
        except (OSError, ValueError) as error:
            raise ChildError(_start_error(self.command[0], error)) from None

    @property
    def code(self) -> int | None:
        return self._process.returncode if self._process is not None else None

    async def write(self, line: bytes) -> None:
        """Waits while the process does not read. Does nothing when it has ended: its reader detects that."""
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line + b"\n")
            with contextlib.suppress(OSError):
                await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[bytes | LineTooLong]:
        """Lines until the process closes its output."""
        async for line in line_reader.split_lines(self._chunks()):
            yield line

    async def _chunks(self) -> AsyncIterator[bytes]:
        assert self._process is not None and self._process.stdout is not None
        while data := await self._process.stdout.read(CHUNK):
            yield data

    async def exit_reason(self) -> str:
        """How the process ended; called when its output has ended."""
        await process_group.wait_until(lambda: self.code is not None, process_group.KILL_S)
        return f"{self.command[0]}: {process_group.describe_exit(self.code)}"

    def close_input(self) -> None:
        """Asks the process to end. The caller waits for it, so `end` does not wait again."""
        self._is_input_closed = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> None:
        if self._process is not None:
            await process_group.stop(self._process, 0 if self._is_input_closed else EXIT_S, TERM_S)
            process_group.release(self._process)
