"""Bridge core: reads the client's lines, forwards them to the server, and writes the answers back.

Messages are sent in order: each starts when the previous one is written, without waiting for its answer. Only
`initialize` and `notifications/initialized` are awaited, since other messages are not valid before. Retries and
sessions are handled in `forwarder`, reading stdin and stdout in `stdio`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tabrelay.bridge.clock import Clock
from tabrelay.bridge.forwarder import Forwarder
from tabrelay.bridge.inbound import InboundMessages
from tabrelay.bridge.messages import BridgeMessage, Key, Malformed, MessageKind, answered, error_reply, key, load, parse
from tabrelay.bridge.outbound import Outbound
from tabrelay.bridge.parsing import LINES_AT_ONCE, parsed
from tabrelay.bridge.server_stream import ServerStream
from tabrelay.bridge.session import ClientSession
from tabrelay.system.pipe_lines import LineSplitter, LineTooLong
from tabrelay.system.tasks import BackgroundTasks, cancel
from tabserver.wire import jsonrpc, methods

log = logging.getLogger("tabrelay.bridge")

MAX_LINE: Final = 64 << 20
MAX_QUEUED: Final = 64 << 20  # bytes of queued messages
MAX_RUNNING: Final = 256
WRITE_S: Final = 1.0
FINISH_S: Final = 2.0


class Output(Protocol):
    broken: asyncio.Event

    async def write(self, line: bytes) -> None: ...


@dataclass(eq=False, slots=True)
class ForwardedMessage:
    """A message that is being forwarded."""

    message: BridgeMessage
    task: asyncio.Task[None]


class Bridge:
    def __init__(
        self,
        outbound: Outbound,
        output: Output,
        *,
        prepare: Callable[[], Awaitable[None]] | None = None,
        has_server_stream: bool = True,
        is_serial: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`prepare` is awaited before the first message; if it raises, so does `run`."""
        self._prepare = prepare
        clock = clock or Clock()
        self._session = ClientSession()
        self._output = output
        self._is_serial = is_serial
        self._has_server_stream = has_server_stream
        inbound = InboundMessages(self._session, outbound.tool_headers, self._deliver)
        self._forwarder = Forwarder(outbound, self._session, inbound, clock, self._start_server_stream)
        self._server_stream = ServerStream(outbound, inbound, clock, self._forwarder.renew)
        self._pending: dict[Key, ForwardedMessage] = {}
        self._running = BackgroundTasks()
        self._queue: asyncio.Queue[BridgeMessage | None] = asyncio.Queue()
        self._queued = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._stopped = asyncio.Event()

    # -- from the client -----------------------------------------------------------------------------------------------

    async def run(self, chunks: AsyncIterator[bytes]) -> None:
        """Runs until the input ends, the output is closed, or `stop` is called."""
        dispatching = asyncio.create_task(self._dispatch())
        reading = asyncio.create_task(self._read(chunks))
        ends = [asyncio.create_task(event.wait()) for event in (self._stopped, self._output.broken)]
        try:
            await asyncio.wait([reading, dispatching, *ends], return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, dispatching):
                if task.done():
                    task.result()  # raises if the task failed
            if reading.done() and not self._output.broken.is_set():
                await self._finish(dispatching, ends)
        finally:
            await self._close([dispatching, reading, *ends])

    def stop(self) -> None:
        """Ends `run` without waiting for running requests."""
        self._stopped.set()

    async def _finish(self, dispatching: asyncio.Task[None], ends: list[asyncio.Task[Any]]) -> None:
        """The input has ended: waits up to FINISH_S for running requests, except for subscriptions, which never end."""
        self._queue.put_nowait(None)
        for running in list(self._pending.values()):
            if running.message.method == methods.SUBSCRIPTIONS_LISTEN:
                running.task.cancel()

        async def rest() -> None:
            await dispatching
            while self._running:
                await asyncio.wait([*self._running])

        finishing = asyncio.create_task(rest())
        await asyncio.wait([finishing, *ends], timeout=FINISH_S, return_when=asyncio.FIRST_COMPLETED)
        if finishing.done():
            finishing.result()
        finishing.cancel()

    async def _close(self, tasks: list[asyncio.Task[Any]]) -> None:
        self._server_stream.stop()
        await cancel(*tasks, *self._running)
        await self._forwarder.end_session()

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        lines = LineSplitter(MAX_LINE)
        async for chunk in chunks:
            for number, line in enumerate(lines.feed(chunk), 1):
                await self._receive_line(line)
                # defence: bridge's loop time: lines of one read
                if number % LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        if (last := lines.close()) is not None:
            await self._receive_line(last)

    async def _receive_line(self, line: bytes | LineTooLong) -> None:
        try:
            if isinstance(line, LineTooLong):
                id = None if line.id is None else load(line.id)
                text = f"A line of {line.size} bytes is too long: at most {MAX_LINE >> 20} MiB are forwarded."
                if not line.is_answer or id is None:
                    raise Malformed(jsonrpc.INVALID_REQUEST, text, id)
                log.warning("%s", text)
                line = error_reply(id, jsonrpc.INTERNAL_ERROR, text)  # the server waits for it
            message = await parsed(parse, line)
        except Malformed as problem:
            log.warning("%s", problem)
            await self._output.write(error_reply(problem.id, problem.code, str(problem)))
            return
        if self._is_serial and (message.kind is MessageKind.RESPONSE or message.method == methods.CANCELLED):
            # A running call may wait for this message, so it must not wait for the call.
            self._start(message)
            return
        await self._has_room.wait()
        self._queued += len(message.raw)
        if self._queued > MAX_QUEUED:
            self._has_room.clear()
        self._queue.put_nowait(message)

    async def _dispatch(self) -> None:
        # Here and not before: in the meantime the end of the input is detected, and ends the --token-command program.
        if self._prepare is not None:
            await self._prepare()
        while (message := await self._queue.get()) is not None:
            self._queued -= len(message.raw)
            self._has_room.set()
            if len(self._running) >= MAX_RUNNING and message.ids:
                await self._refuse(message.ids, f"{MAX_RUNNING} requests are running already.")
                continue
            task, written = self._start(message)
            if self._is_serial or message.method in (methods.INITIALIZE, methods.INITIALIZED):
                await asyncio.wait([task])
            else:
                # The next message starts when this one is written. A server that does not read must not block all
                # others, hence the timeout.
                await asyncio.wait([task, written], timeout=WRITE_S, return_when=asyncio.FIRST_COMPLETED)

    async def _refuse(self, ids: Iterable[Any], text: str) -> None:
        for id in ids:
            await self._output.write(error_reply(id, jsonrpc.INTERNAL_ERROR, text))

    def _start(self, message: BridgeMessage) -> tuple[asyncio.Task[None], asyncio.Future[None]]:
        """The message's task, and a future that is done when the message is written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_written() -> None:
            if not written.done():
                written.set_result(None)

        work = self._cancel if message.method == methods.CANCELLED else self._forward
        task = self._running.start(work(message, on_written))
        running = ForwardedMessage(message, task)
        for one in message.keys:
            if (before := self._pending.get(one)) is not None:
                before.task.cancel()  # the id now belongs to the new request
            self._pending[one] = running
        return task, written

    async def _forward(self, message: BridgeMessage, on_written: Callable[[], None]) -> None:
        if message.method == methods.INITIALIZE:
            self._server_stream.stop()
            self._session.open(message)
        try:
            fault = await self._forwarder.forward(message, on_written)
        except Exception:
            # A bug of the bridge must not leave a request without an answer.
            log.exception("%s was not forwarded", message.method or "A message")
            waiting = [id for id in message.ids if key(id) in self._pending]
            await self._refuse(waiting, "The bridge failed; its log on stderr says more.")
            return
        finally:
            self._forget(message)
        if message.method == methods.INITIALIZED and fault is None:
            self._start_server_stream()

    def _forget(self, message: BridgeMessage) -> None:
        for one in message.keys:
            running = self._pending.get(one)
            if running is not None and running.message is message:
                del self._pending[one]

    async def _cancel(self, message: BridgeMessage, on_written: Callable[[], None]) -> None:
        """The client cancels a request: it gets no answer."""
        running = self._pending.pop(key(message.params.get("requestId")), None)
        if running is not None and running.message.is_modern:
            # 2026-07-28: a request is cancelled by closing its stream, and only so.
            running.task.cancel()
            return
        if running is None and self._session.opening is None:
            return  # too late, and no session to notify
        await self._forwarder.forward(message, on_written)
        if running is not None:
            running.task.cancel()

    # -- to the client -------------------------------------------------------------------------------------------------

    async def _deliver(self, line: bytes, value: Any) -> None:
        one = answered(value)
        if one is not None and self._pending.pop(one, None) is None:
            log.debug("An answer to no running request: %.80r", value.get("id"))
            return
        await self._output.write(line)

    def _start_server_stream(self) -> None:
        if self._has_server_stream:
            self._server_stream.start(self._session.snapshot())
