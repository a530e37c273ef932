"""Concurrency limit for the requests of one MCP connection: a bounded FIFO queue with a deadline for each request.

Only requests wait, in the order of arrival, and only when the limit is reached. All other messages pass them: a running
request may depend on one of these, such as an answer or the cancellation that ends it. Notifications pass too: they
belong to a request of the other side, never to a queued one, and its progress must not arrive after its answer.
Sending the requests is not done here: the owner passes a function for that.
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
from tabrelay.bridge.parsing import parsed
from tabrelay.errors import Busy
from tabrelay.system.tasks import cancel

log = logging.getLogger("tabrelay.acp")

MAX_WAITING: Final = 1024
MAX_BYTES: Final = 8 << 20
QUEUE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, eq=False, slots=True)
class QueuedMessage:
    """Kept as bytes, so that it takes no more memory than it counts: a parsed message may take ten times as much."""

    raw: bytes
    key: Key
    id: str
    deadline: float


class OrderedDelivery:
    def __init__(
        self, limit: int, start: Callable[[AcpMessage], Awaitable[None]], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """`limit`: requests that run at a time. `start` sends a request; its slot is free again after `release`, or if
        `start` raises. `write` sends to the client that made the requests."""
        self._limit = self._free = limit
        self._start_request = start
        self._write = write
        self._queue: deque[QueuedMessage] = deque()
        self._size = 0
        self._has_slot = asyncio.Event()
        self._has_room = asyncio.Event()
        self.start_lock = asyncio.Lock()  # held while a request starts: it is neither queued nor running
        self._starting: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._is_closed = False

    async def submit(self, message: AcpMessage) -> None:
        """Starts the request or queues it. While the queue is full, the caller waits."""
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
        deadline = asyncio.get_running_loop().time() + QUEUE_TIMEOUT_S
        self._queue.append(QueuedMessage(message.raw, message.key, message.id_text, deadline))
        self._size += size
        self._starting = _running(self._starting) or asyncio.create_task(self._start_next())
        self._expiring = _running(self._expiring) or asyncio.create_task(self._expire())

    def release(self) -> None:
        """A running request has ended."""
        self._free += 1
        self._has_slot.set()

    def withdraw(self, key: Key) -> bool:
        """Removes a queued request, which was not sent yet. False if no queued request has this key."""
        found = next((one for one in self._queue if one.key == key), None)
        if found is not None:
            self._remove(found)
        return found is not None

    async def close(self) -> None:
        """Drops the queued requests. No request is started after this."""
        self._is_closed = True
        self._queue.clear()
        self._size = 0
        self._has_room.set()
        await cancel(*(task for task in (self._starting, self._expiring) if task is not None))

    def _is_full(self, size: int) -> bool:
        """A request larger than the whole queue is accepted when the queue is empty."""
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
                    continue  # `submit` took the slot, or the queued request was withdrawn
                one = self._queue[0]
                self._remove(one)
                try:
                    await self._take_slot(await parsed(AcpMessage.read, one.raw))
                except ConnectionGone:
                    return  # the connection is closing, and the queue with it
                except Exception:
                    log.exception("A request could not be sent")
                    await self._refuse(one, "It could not be sent.")

    async def _expire(self) -> None:
        """All requests wait for the same time, so the first in the queue expires first."""
        loop = asyncio.get_running_loop()
        while self._queue:
            await asyncio.sleep(self._queue[0].deadline - loop.time())
            while self._queue and self._queue[0].deadline <= loop.time():
                one = self._queue[0]
                self._remove(one)
                text = (
                    f"{self._limit} requests of this connection are running, none ended within {QUEUE_TIMEOUT_S:g} s."
                )
                await self._refuse(one, text)

    async def _refuse(self, one: QueuedMessage, text: str) -> None:
        error = Busy(f"{text} This one was not delivered, and may be tried again.")
        await self._write(acp_message.refusal(one.id, error.code, error.message, error.data(None)))


def _running(task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
    return None if task is None or task.done() else task
