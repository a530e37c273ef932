"""An agent or a proxy as a child process: lines in, lines out, and an end that leaves nothing behind.

It has the editor's environment and the editor's stderr: what it needs and what it says there is between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from tabrelay import family
from tabrelay.lines import Lines, TooLong

MAX_LINE: Final = 50 << 20
CHUNK: Final = 1 << 18
LEAVE_S: Final = 2.0
TERM_S: Final = 2.0


class ComponentError(Exception):
    """It can't be started; the text says why."""


class Component:
    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None
        self._is_told = False

    async def start(self) -> None:
        """Raises ComponentError."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await family.begin(*self.command, stdin=pipe, stdout=pipe)
        except FileNotFoundError:
            raise ComponentError(f'There is no program "{self.command[0]}".') from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ComponentError(f'"{self.command[0]}" could not be started: {why}.') from None

    @property
    def code(self) -> int | None:
        return self._process.returncode if self._process is not None else None

    async def write(self, line: bytes) -> None:
        """Waits while it does not read. One that has ended takes nothing, which whoever reads from it finds out."""
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line + b"\n")
            with contextlib.suppress(OSError):
                await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[bytes | TooLong]:
        """Until it closes its output."""
        assert self._process is not None and self._process.stdout is not None
        lines = Lines(MAX_LINE)
        while data := await self._process.stdout.read(CHUNK):
            for line in lines.feed(data):
                yield line
        if (last := lines.close()) is not None:
            yield last

    async def farewell(self) -> str:
        """How it ended, when its output has."""
        await family.becomes(lambda: self.code is not None, family.KILL_S)
        return f"{self.command[0]}: {family.farewell(self.code)}"

    def close_input(self) -> None:
        """The polite way to ask it to end; whoever does has waited for it too."""
        self._is_told = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> None:
        if self._process is not None:
            await family.end(self._process, 0 if self._is_told else LEAVE_S, TERM_S)
            family.release(self._process)
