"""Send queue of one WebSocket: frames leave in order, and a browser that reads too slowly is detected.

Slow means: one frame could not be handed to the network within the timeout; or the queue is over its limit, and less
than that limit was sent within the timeout. (A link that replays a full buffer is not slow for that.) Unsent frames are
discarded here; the link sends them again on the next socket.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from starlette.types import Send

from tabserver.wire.frames import CLOSE_SLOW

BATCH_CHARACTERS: Final = 64 * 1024  # characters of several frames in one write
SLOW: Final = "the browser reads too slowly"
CLOSE_S: Final = 1.0  # for the close frame, when the browser does not read


class SocketWriter:
    """`write` only queues; `run` is the task that sends."""

    def __init__(
        self,
        send: Send,
        *,
        queue_bytes: int,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        try_write: Callable[[Sequence[str]], bool] = lambda texts: False,
        on_slow: Callable[[SocketWriter], None] = lambda writer: writer.close(CLOSE_SLOW, SLOW),
    ) -> None:
        """`try_write` writes texts without the queue, if that is possible at once. `on_slow` is called once: it sends
        `bye` and closes."""
        self._send = send
        self._try_write = try_write
        self._queue_bytes = queue_bytes
        self._timeout_s = timeout_s
        self._queue: deque[str] = deque()
        self._waiting_bytes = 0
        self._over_since: float | None = None
        self._sent_bytes = 0  # since then
        self._close: tuple[int, str] | None = None
        self._wake = asyncio.Event()
        self._is_over = False
        self._clock = clock
        self._on_slow = on_slow

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def write(self, frames: Sequence[tuple[str, str | None]]) -> None:
        if self._close is not None or self._is_over:
            return
        texts = [header if payload is None else f"{header}\n{payload}" for header, payload in frames]
        if not self._queue and sum(map(len, texts)) <= BATCH_CHARACTERS and self._try_write(texts):
            return
        for text in texts:  # whether there is room for the next is known when one is written
            if self._queue or not self._try_write((text,)):
                self._enqueue(text)

    def _enqueue(self, text: str) -> None:
        self._queue.append(text)
        self._waiting_bytes += len(text)
        if self._waiting_bytes > self._queue_bytes and self._over_since is None:
            self._over_since, self._sent_bytes = self._clock(), 0
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        if self._close is None:
            # RFC 6455: a close reason has at most 123 bytes
            self._close = (code, reason.encode(errors="replace")[:120].decode(errors="ignore"))
            self._wake.set()

    async def finish(self) -> None:
        """The socket is gone."""
        self._is_over = True
        self._wake.set()

    async def run(self) -> None:
        try:
            try:
                # L12: a browser that reads too slowly gets `bye` and close 4408.
                await self._run(self._timeout_s)
            except TimeoutError:
                self._discard()
                self._on_slow(self)
                await self._run(min(self._timeout_s, CLOSE_S))
        except TimeoutError:
            # Not even the close frame was sent. The server aborts a socket that is closed this way and not writable.
            await self._send({"type": "websocket.close", "code": CLOSE_SLOW, "reason": SLOW})
        except (OSError, RuntimeError):
            # The socket closed between two frames. The reader notices it too and detaches the peer.
            self._is_over = True

    async def _run(self, timeout_s: float) -> None:
        async with asyncio.timeout(None) as timeout:
            timer = _SendTimer(timeout, timeout_s)
            try:
                await self._drain(timer)
            finally:
                timer.stop()

    async def _drain(self, timer: _SendTimer) -> None:
        while True:
            while self._queue:
                timer.begin()
                await self._send({"type": "websocket.send", "text": self._queue[0]})
                timer.end()
                self._sent()
            if self._close is not None:
                code, reason = self._close
                timer.begin()
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return
            if self._is_over:
                return
            await self._wake.wait()
            self._wake.clear()

    def _sent(self) -> None:
        size = len(self._queue.popleft())
        self._waiting_bytes -= size
        self._sent_bytes += size
        if self._waiting_bytes <= self._queue_bytes:
            self._over_since = None
        elif self._sent_bytes > self._queue_bytes:
            self._over_since, self._sent_bytes = self._clock(), 0
        elif self._over_since is not None and self._clock() - self._over_since > self._timeout_s:
            raise TimeoutError

    def _discard(self) -> None:
        self._queue.clear()
        self._waiting_bytes = 0
        self._over_since = None


class _SendTimer:
    """Lets a timeout expire when one send takes too long. A timeout around each send would cost more than the send.
    This timer fires when the first send would be late, and then again when the current one would be."""

    def __init__(self, timeout: asyncio.Timeout, timeout_s: float) -> None:
        self._timeout = timeout
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._next_check: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._since = self._loop.time()
        if self._next_check is None:
            self._next_check = self._loop.call_at(self._since + self._timeout_s, self._check)

    def end(self) -> None:
        self._since = None

    def stop(self) -> None:
        if self._next_check is not None:
            self._next_check.cancel()

    def _check(self) -> None:
        self._next_check = None
        if self._since is None:
            return
        due = self._since + self._timeout_s
        if due <= self._loop.time():
            self._timeout.reschedule(due)
        else:
            self._next_check = self._loop.call_at(due, self._check)
