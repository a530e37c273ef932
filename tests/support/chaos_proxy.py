"""A TCP proxy that injects faults between a browser and the relay: cuts, delays, throttling and refused connections.

It forwards bytes and parses only what it needs: the head of a request tells a WebSocket from a page, and the frames of
a WebSocket determine where to cut. It does not interpret their contents.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

READ_SIZE: Final = 64 * 1024
HEAD_END: Final = b"\r\n\r\n"
SHOWN: Final = 2_000  # a frame's bytes that a planned cut can inspect: a link's header, the start of its payload
AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER on with zero seconds: the close becomes a reset


class Direction(StrEnum):
    """A direction: UP is from the browser to the relay."""

    UP = "up"
    DOWN = "down"


class Cut(StrEnum):
    """How a connection ends: with a reset, with a regular close, or open but with nothing forwarded any more."""

    RESET = "reset"
    CLOSE = "close"
    HALF_OPEN = "half-open"


Moment = Literal["before", "within", "after"]


@dataclass(slots=True)
class Conditions:
    """Conditions of one direction. `chunk`: bytes per write. `is_frozen`: nothing is read, so that buffers fill up."""

    latency_s: float = 0.0
    bytes_per_s: float | None = None
    chunk: int = READ_SIZE
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One WebSocket frame that is being forwarded, and the beginning of its payload."""

    way: Direction
    opcode: int
    size: int
    text: str


@dataclass(slots=True, eq=False)
class PlannedCut:
    """A cut at a certain frame. It happens once, on the first connection that carries such a frame."""

    when: Callable[[Frame], bool]
    moment: Moment
    cut: Cut
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


class ChaosProxy:
    """Start it with `async with`, then set `target`.

    With `only_websockets`, conditions, cuts and refusals do not apply to pages. Counters count what the browser has
    sent.
    """

    def __init__(self, *, only_websockets: bool = True) -> None:
        self.target: tuple[str, int] = ("127.0.0.1", 0)
        self.only_websockets = only_websockets
        self.conditions = {way: Conditions() for way in Direction}
        self.is_refusing = False
        self.accepted = 0
        self.sockets_accepted = 0
        self.cuts = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._traps: list[PlannedCut] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._change = asyncio.Condition()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sockets(self) -> list[Connection]:
        """The WebSockets that still forward data."""
        return [each for each in self._connections if each.is_socket and not each.is_cut and all(each.is_held.values())]

    def held(self, way: Direction) -> int:
        """How many WebSockets are still open at the end where a direction begins, including those that are cut."""
        return sum(each.is_socket and each.is_held[way] for each in self._connections)

    async def __aenter__(self) -> ChaosProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=READ_SIZE)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    # -- operations of a test ------------------------------------------------------------------------------------------

    def cut(self, how: Cut = Cut.RESET) -> int:
        """Cut all present connections; returns how many there were."""
        victims = [each for each in self._connections if not each.is_cut and self.affects(each)]
        for connection in victims:
            connection.cut(how)
        return len(victims)

    def cut_at(self, when: Callable[[Frame], bool], moment: Moment = "before", cut: Cut = Cut.RESET) -> PlannedCut:
        """Cut a WebSocket at the next frame for which `when` is true: before it, in its middle, or after it."""
        planned = PlannedCut(when, moment, cut)
        self._traps.append(planned)
        return planned

    def release(self, planned: PlannedCut) -> None:
        """Cancel a planned cut that has not happened."""
        self._traps.remove(planned)

    def cut_after(self, way: Direction, count: int, cut: Cut = Cut.RESET) -> None:
        """Forward this many more bytes of each present WebSocket in one direction, then cut it."""
        for connection in self.sockets:
            connection.allowance[way] = (count, cut)

    def freeze(self, way: Direction) -> None:
        self.conditions[way].is_frozen = True

    def unfreeze(self, way: Direction) -> None:
        self.conditions[way].is_frozen = False
        self.changed()

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = 15.0) -> None:
        """Wait for a condition on the connections."""
        async with asyncio.timeout(timeout_s), self._change:
            await self._change.wait_for(condition)

    # -- called by connections -----------------------------------------------------------------------------------------

    def affects(self, connection: Connection) -> bool:
        return connection.is_socket or not self.only_websockets

    def trigger(self, frame: Frame) -> PlannedCut | None:
        planned = next((planned for planned in self._traps if planned.when(frame)), None)
        if planned is not None:
            self._traps.remove(planned)
        return planned

    def changed(self) -> None:
        self._run(self._notify())

    async def _notify(self) -> None:
        async with self._change:
            self._change.notify_all()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._run(self._carry(reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = None
        try:
            if self.is_refusing and not self.only_websockets:
                return
            head = await reader.readuntil(HEAD_END)
            is_socket = b"upgrade: websocket" in head.lower()
            self.sockets_accepted += is_socket
            if self.is_refusing and is_socket:
                return
            upstream = await asyncio.open_connection(*self.target, limit=READ_SIZE)
            connection = Connection(self, (reader, writer), upstream, is_socket=is_socket)
            self._connections.add(connection)
            self.changed()
            await connection.carry(head)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one end has closed; the other end detects that by itself
        finally:
            if connection is not None:
                self._connections.discard(connection)
                connection.let_go()
            _reset(writer)
            self.changed()


# Queued data: when it may be sent, the bytes, and the frame that they belong to; None is the end of the stream.
_Queue = asyncio.Queue[tuple[float, bytes, Frame | None] | None]


class Connection:
    """One connection from the browser and its continuation to the relay."""

    def __init__(
        self,
        proxy: ChaosProxy,
        browser: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        relay: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        is_socket: bool,
    ) -> None:
        self.is_socket = is_socket
        self.is_cut = False
        self.is_held = dict.fromkeys(Direction, True)
        self.allowance: dict[Direction, tuple[int, Cut]] = {}
        self.relay_sees = relay[1].get_extra_info("sockname")  # the address from which the relay is connected
        self._proxy = proxy
        self._source = {Direction.UP: browser, Direction.DOWN: relay}
        self._sink = {Direction.UP: relay[1], Direction.DOWN: browser[1]}

    async def carry(self, head: bytes) -> None:
        """Forward in both directions until both ends have closed."""
        async with asyncio.TaskGroup() as tasks:
            for way in Direction:
                queue: _Queue = asyncio.Queue(maxsize=64)
                tasks.create_task(self._read(way, queue, head if way is Direction.UP else b""))
                tasks.create_task(self._write(way, queue))

    def cut(self, how: Cut) -> None:
        if self.is_cut:
            return
        self.is_cut = True
        self._proxy.cuts += 1
        for writer in self._sink.values():
            if how is Cut.RESET:
                _reset(writer)
            elif how is Cut.CLOSE:
                writer.close()
        self._proxy.changed()

    def let_go(self) -> None:
        for writer in self._sink.values():
            _reset(writer)

    @property
    def _conditions(self) -> dict[Direction, Conditions]:
        return self._proxy.conditions if self._proxy.affects(self) else dict.fromkeys(Direction, Conditions())

    async def _read(self, way: Direction, queue: _Queue, head: bytes) -> None:
        reader = self._source[way][0]
        slicer = Slicer(way) if self.is_socket else None
        loop = asyncio.get_running_loop()
        data = head
        try:
            while data or (data := await reader.read(READ_SIZE)):
                for piece, frame in slicer.feed(data) if slicer else ((data, None),):
                    await queue.put((loop.time() + self._conditions[way].latency_s, piece, frame))
                data = b""
                if self._conditions[way].is_frozen:
                    await self._proxy.until(lambda: self.is_cut or not self._conditions[way].is_frozen, None)
        except OSError:
            if not self.is_cut:
                self.let_go()  # a reset is forwarded as a reset
        self.is_held[way] = False
        self._proxy.changed()
        await queue.put(None)

    async def _write(self, way: Direction, queue: _Queue) -> None:
        loop = asyncio.get_running_loop()
        while (item := await queue.get()) is not None:
            due, piece, frame = item
            if not self.is_cut and due > loop.time():
                await asyncio.sleep(due - loop.time())
            try:
                if not self.is_cut:
                    await self._pass(way, piece, frame)
            except OSError:
                self.let_go()
        # The end of a stream is forwarded too, unless nothing is forwarded any more: then each end detects it by
        # itself.
        with suppress(OSError):
            if self.is_cut:
                self._source[way][1].close()
            else:
                self._sink[way].write_eof()

    async def _pass(self, way: Direction, piece: bytes, frame: Frame | None) -> None:
        planned = self._proxy.trigger(frame) if frame is not None else None
        if planned is None:
            await self._send(way, piece)
            return
        if planned.moment != "before":
            await self._send(way, piece[: len(piece) // 2] if planned.moment == "within" else piece)
        self.cut(planned.cut)
        planned.sprung.set()

    async def _send(self, way: Direction, data: bytes) -> None:
        conditions, sink = self._conditions[way], self._sink[way]
        left, cut = self.allowance.get(way, (None, Cut.RESET))
        if left is not None:
            data = data[:left]
            self.allowance[way] = (left - len(data), cut)
        for start in range(0, len(data), conditions.chunk):
            chunk = data[start : start + conditions.chunk]
            if conditions.bytes_per_s is not None:
                await asyncio.sleep(len(chunk) / conditions.bytes_per_s)
            if self.is_cut:
                return
            sink.write(chunk)
            await sink.drain()
        if left is not None and left == len(data):
            self.cut(cut)


class Slicer:
    """Cuts one direction of a WebSocket into its HTTP head and its frames, RFC 6455 section 5.2."""

    def __init__(self, way: Direction) -> None:
        self._way = way
        self._buffer = bytearray()
        self._is_open = False
        self._is_refused = False

    def feed(self, data: bytes) -> Iterator[tuple[bytes, Frame | None]]:
        self._buffer += data
        if not self._is_open:
            end = self._buffer.find(HEAD_END)
            if end < 0:
                return
            self._is_open = True
            # An answer other than 101 is followed by a body, not by frames.
            self._is_refused = self._way is Direction.DOWN and b" 101 " not in self._buffer.partition(b"\r\n")[0]
            yield self._take(end + len(HEAD_END)), None
        if self._is_refused:
            yield self._take(len(self._buffer)), None
            return
        while (size := _frame_size(self._buffer)) is not None and len(self._buffer) >= sum(size):
            piece = self._take(sum(size))
            yield piece, Frame(self._way, piece[0] & 0x0F, size[1], _text(piece, size[0]))

    def _take(self, count: int) -> bytes:
        piece = bytes(self._buffer[:count])
        del self._buffer[:count]
        return piece


def _frame_size(data: bytearray) -> tuple[int, int] | None:
    """The length of the header and payload of the next frame, once enough of it has arrived to compute it."""
    # Two bytes are enough, unless the length follows; such a frame is longer than the ten bytes that it then takes.
    if len(data) < 2 or (len(data) < 10 and data[1] & 0x7F >= 126):
        return None
    masked, length = data[1] & 0x80, data[1] & 0x7F
    header = 2 + (4 if masked else 0)
    if length == 126:
        return header + 2, int.from_bytes(data[2:4])
    if length == 127:
        return header + 8, int.from_bytes(data[2:10])
    return header, length


def _text(piece: bytes, header: int) -> str:
    start = piece[header : header + SHOWN]
    if piece[1] & 0x80:
        mask = piece[header - 4 : header]
        start = bytes(byte ^ mask[index % 4] for index, byte in enumerate(start))
    return start.decode(errors="replace")


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None and not writer.transport.is_closing():
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    writer.transport.abort()
