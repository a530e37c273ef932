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

from tabrelay.acp import message as acp_message
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone
from tabrelay.bridge.messages import Key
from tabrelay.errors import Busy

log = logging.getLogger("tabrelay.acp")

MAX_WAITING: Final = 1024
MAX_BYTES: Final = 8 << 20
QUEUE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, eq=False, slots=True)
class QueuedMessage:
    """As bytes, so that it is no larger than it counts: read, a message may be ten times that."""

    raw: bytes
    key: Key
    id: str
    deadline: float


class OrderedDelivery:
    def __init__(
        self, limit: int, start: Callable[[AcpMessage], Awaitable[None]], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """`begin`: put a request on its way; its place is free again when somebody calls `leave`, or if this raises.
        `write`: to whoever made the requests."""
        self._limit = self._free = limit
        self._start_request = start
        self._write = write
        self._queue: deque[QueuedMessage] = deque()
        self._size = 0
        self._has_slot = asyncio.Event()
        self._has_room = asyncio.Event()
        self.start_lock = asyncio.Lock()  # held while a request is put on its way: it waits no more then, nor runs yet
        self._starting: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._is_closed = False

    async def submit(self, message: AcpMessage) -> None:
        """It is on its way when this returns, or waits. While the line is full, whoever brings it waits instead."""
        if self._free and not self._queue and not self.start_lock.locked() and not self._is_closed:
            async with self.start_lock:
                await self._take_slot(message)
            return
        size = len(message.raw)
        while self._is_full(size) and not self._is_closed:
            self._has_room.clear()
            await self._has_room.wait()
        if self._is_closed:
            return
        until = asyncio.get_running_loop().time() + QUEUE_TIMEOUT_S
        self._queue.append(QueuedMessage(message.raw, message.key, message.id_text, until))
        self._size += size
        self._starting = _running(self._starting) or asyncio.create_task(self._start_next())
        self._expiring = _running(self._expiring) or asyncio.create_task(self._expire())

    def release(self) -> None:
        """One that ran is over."""
        self._free += 1
        self._has_slot.set()

    def withdraw(self, key: Key) -> bool:
        """Take back a request that waits: nobody else has heard of it. False if none does."""
        found = next((one for one in self._queue if one.key == key), None)
        if found is not None:
            self._remove(found)
        return found is not None

    async def close(self) -> None:
        """Those that wait are forgotten; none is put on its way after this."""
        self._is_closed = True
        self._queue.clear()
        self._size = 0
        self._has_room.set()
        tasks = [task for task in (self._starting, self._expiring) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_full(self, size: int) -> bool:
        """One that is larger than all the room there is has to have it for itself."""
        return len(self._queue) >= MAX_WAITING or (bool(self._queue) and self._size + size > MAX_BYTES)

    def _remove(self, one: QueuedMessage) -> None:
        self._queue.remove(one)
        self._size -= len(one.raw)
        self._has_room.set()

    async def _take_slot(self, message: AcpMessage) -> None:
        self._free -= 1
        try:
            await self._start_request(message)
        except BaseException:
            self.release()
            raise

    async def _start_next(self) -> None:
        while self._queue:
            if not self._free:
                self._has_slot.clear()
                await self._has_slot.wait()
            async with self.start_lock:
                if not self._free or not self._queue:
                    continue  # somebody was quicker
                one = self._queue[0]
                self._remove(one)
                try:
                    await self._take_slot(AcpMessage.read(one.raw))
                except ConnectionGone:
                    return  # and so will everything else be in a moment
                except Exception:
                    log.exception("A request could not be put on its way")
                    await self._refuse(one, "It could not be passed on.")

    async def _expire(self) -> None:
        """All wait equally long, so the first is the first whose time is over."""
        loop = asyncio.get_running_loop()
        while self._queue:
            await asyncio.sleep(self._queue[0].deadline - loop.time())
            while self._queue and self._queue[0].deadline <= loop.time():
                one = self._queue[0]
                self._remove(one)
                text = (
                    f"{self._limit} requests of this connection are running: no turn came within {QUEUE_TIMEOUT_S:g} s."
                )
                await self._refuse(one, text)

    async def _refuse(self, one: QueuedMessage, text: str) -> None:
        error = Busy(f"{text} This one was not delivered, and may be tried again.")
        await self._write(acp_message.refusal(one.id, error.code, error.message, error.data(None)))


def _running(task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
    return None if task is None or task.done() else task
