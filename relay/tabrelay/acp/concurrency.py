"""Requests of one MCP connection: so many run at a time, the next ones wait for their turn, and none of them for ever.

Only requests wait, in the order in which they came, and only when no more may run. Whatever else is said goes past
them: what runs may be waiting for just that, for an answer, or for the cancellation that ends it. Notices do so too:
what they belong to is never a request that stands before them, but a question of the other side's, and its progress
must not come after its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.acp import message as frames
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone
from tabrelay.bridge.messages import Key
from tabrelay.errors import Busy

log = logging.getLogger("tabrelay.acp")

MAX_WAITING: Final = 1024
MAX_BYTES: Final = 8 << 20
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, eq=False, slots=True)
class QueuedMessage:
    """As bytes, so that it is no larger than it counts: read, a message may be ten times that."""

    raw: bytes
    key: Key
    id: str
    until: float


class OrderedDelivery:
    def __init__(
        self, places: int, begin: Callable[[AcpMessage], Awaitable[None]], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """`begin`: put a request on its way; its place is free again when somebody calls `leave`, or if this raises.
        `write`: to whoever made the requests."""
        self._places = self._free = places
        self._begin = begin
        self._write = write
        self._line: deque[QueuedMessage] = deque()
        self._size = 0
        self._has_place = asyncio.Event()
        self._has_room = asyncio.Event()
        self.order = asyncio.Lock()  # held while a request is put on its way: it waits no more then, nor runs yet
        self._starting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    async def enter(self, frame: AcpMessage) -> None:
        """It is on its way when this returns, or waits. While the line is full, whoever brings it waits instead."""
        if self._free and not self._line and not self.order.locked() and not self._is_closed:
            async with self.order:
                await self._start(frame)
            return
        size = len(frame.raw)
        while self._is_full(size) and not self._is_closed:
            self._has_room.clear()
            await self._has_room.wait()
        if self._is_closed:
            return
        until = asyncio.get_running_loop().time() + PATIENCE_S
        self._line.append(QueuedMessage(frame.raw, frame.key, frame.id_text, until))
        self._size += size
        self._starting = _running(self._starting) or asyncio.create_task(self._start_next())
        self._watching = _running(self._watching) or asyncio.create_task(self._watch())

    def leave(self) -> None:
        """One that ran is over."""
        self._free += 1
        self._has_place.set()

    def withdraw(self, key: Key) -> bool:
        """Take back a request that waits: nobody else has heard of it. False if none does."""
        found = next((one for one in self._line if one.key == key), None)
        if found is not None:
            self._take(found)
        return found is not None

    async def close(self) -> None:
        """Those that wait are forgotten; none is put on its way after this."""
        self._is_closed = True
        self._line.clear()
        self._size = 0
        self._has_room.set()
        tasks = [task for task in (self._starting, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_full(self, size: int) -> bool:
        """One that is larger than all the room there is has to have it for itself."""
        return len(self._line) >= MAX_WAITING or (bool(self._line) and self._size + size > MAX_BYTES)

    def _take(self, one: QueuedMessage) -> None:
        self._line.remove(one)
        self._size -= len(one.raw)
        self._has_room.set()

    async def _start(self, frame: AcpMessage) -> None:
        self._free -= 1
        try:
            await self._begin(frame)
        except BaseException:
            self.leave()
            raise

    async def _start_next(self) -> None:
        while self._line:
            if not self._free:
                self._has_place.clear()
                await self._has_place.wait()
            async with self.order:
                if not self._free or not self._line:
                    continue  # somebody was quicker
                one = self._line[0]
                self._take(one)
                try:
                    await self._start(AcpMessage.read(one.raw))
                except ConnectionGone:
                    return  # and so will everything else be in a moment
                except Exception:
                    log.exception("A request could not be put on its way")
                    await self._refuse(one, "It could not be passed on.")

    async def _watch(self) -> None:
        """All wait equally long, so the first is the first whose time is over."""
        loop = asyncio.get_running_loop()
        while self._line:
            await asyncio.sleep(self._line[0].until - loop.time())
            while self._line and self._line[0].until <= loop.time():
                one = self._line[0]
                self._take(one)
                text = f"{self._places} requests of this connection are running: no turn came within {PATIENCE_S:g} s."
                await self._refuse(one, text)

    async def _refuse(self, one: QueuedMessage, text: str) -> None:
        error = Busy(f"{text} This one was not delivered, and may be tried again.")
        await self._write(frames.refusal(one.id, error.code, error.message, error.data(None)))


def _running(task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
    return None if task is None or task.done() else task
