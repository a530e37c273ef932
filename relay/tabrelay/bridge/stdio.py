"""Non-blocking stdin and stdout for an event loop: pipes, files and terminals.

A thread reads and a thread writes: only that works for every kind of file on every system. Both queues are bounded, so
a client that does not read slows the server down instead of filling memory. Lines are not interpreted here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from typing import Final

CHUNK: Final = 1 << 18
MAX_UNWRITTEN: Final = 8 << 20
FLUSH_S: Final = 1.0
POLL_S: Final = 0.5


class Stdin:
    """`ended` is set when the writing end is closed, even if some of the input was not read yet."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self.ended = asyncio.Event()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Chunks until the end of the input."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="stdin", daemon=True).start()
        while chunk := await self._chunks.get():
            yield chunk

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                chunk = os.read(self._fd, CHUNK)
            except BlockingIOError:  # another process with the same file made it non-blocking
                select.select([self._fd], [], [])
                continue
            except OSError:
                chunk = b""  # closed: treated as the end
            try:
                if not chunk:
                    loop.call_soon_threadsafe(self.ended.set)
                self._queue(chunk, loop)
            except (RuntimeError, futures.CancelledError):
                return  # the loop has ended
            if not chunk:
                return

    def _queue(self, chunk: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Waits for room. Nothing is read meanwhile, so the end of the input is detected by polling."""
        queued = asyncio.run_coroutine_threadsafe(self._chunks.put(chunk), loop)
        while not futures.wait([queued], POLL_S).done:
            if self._is_hung_up():
                loop.call_soon_threadsafe(self.ended.set)
        queued.result()

    def _is_hung_up(self) -> bool:
        if not hasattr(select, "poll"):
            return False  # not on this system: the end is detected when everything before it was read
        poll = select.poll()
        poll.register(self._fd, 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))


class Stdout:
    """Writes lines in order. `broken` is set when the reading end is closed; further lines are dropped."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unwritten = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._loop = asyncio.get_running_loop()
        self.broken = asyncio.Event()
        self._ended = asyncio.Event()
        threading.Thread(target=self._write, name="stdout", daemon=True).start()

    async def write(self, line: bytes) -> None:
        await self._has_room.wait()
        if self.broken.is_set():
            return
        self._unwritten += len(line)
        if self._unwritten > MAX_UNWRITTEN:
            self._has_room.clear()
        self._lines.put(line + b"\n")

    async def close(self) -> None:
        """Waits up to FLUSH_S for the remaining output."""
        self._lines.put(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._ended.wait()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._write_whole(memoryview(line))
            except OSError:
                self._call_in_loop(self._break)
                break
            self._call_in_loop(self._written, len(line) - 1)
        self._call_in_loop(self._ended.set)

    def _write_whole(self, rest: memoryview) -> None:
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                select.select([], [self._fd], [])

    def _call_in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _written(self, size: int) -> None:
        self._unwritten -= size
        if self._unwritten <= MAX_UNWRITTEN:
            self._has_room.set()

    def _break(self) -> None:
        self.broken.set()
        self._has_room.set()


def use_bytes() -> None:
    """On Windows, the C library would translate line ends."""
    if sys.platform == "win32":
        import msvcrt

        for fd in (0, 1):
            msvcrt.setmode(fd, os.O_BINARY)
