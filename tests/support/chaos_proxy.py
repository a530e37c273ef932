"""A TCP proxy that misbehaves on purpose: put it between a browser and the relay, then cut, delay, starve or refuse.

It forwards bytes and looks into them only as far as it must: the request's head tells a WebSocket from a page, and the
frames of a WebSocket tell a good moment for a cut. What the frames mean is the tests' business.
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
SHOWN: Final = 2_000  # bytes of a frame that a trap gets to see: a link's header and the beginning of its payload
AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time; the close becomes a reset


class Way(StrEnum):
    """A direction: UP is from the browser to the relay."""

    UP = "up"
    DOWN = "down"


class Cut(StrEnum):
    """How a connection ends: reset, closed in good order, or not at all although nothing gets through any more."""

    RESET = "reset"
    CLOSE = "close"
    HALF_OPEN = "half-open"


Moment = Literal["before", "within", "after"]


@dataclass(slots=True)
class Weather:
    """What one direction is like. `chunk`: bytes per write. `is_frozen`: nothing is read, so that buffers fill up."""

    latency_s: float = 0.0
    bytes_per_s: float | None = None
    chunk: int = READ_SIZE
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One WebSocket frame on its way, and the beginning of what it says."""

    way: Way
    opcode: int
    size: int
    text: str


@dataclass(slots=True, eq=False)
class Trap:
    """A cut that waits for its frame. It springs once, on whichever connection carries the frame."""

    when: Callable[[Frame], bool]
    moment: Moment
    cut: Cut
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


class ChaosProxy:
    """Start it with `async with`, then say where the `target` is.

    With `spares_pages` weather, cuts and refusals are for WebSockets only. Counters count what came from the browser.
    """

    def __init__(self, *, spares_pages: bool = True) -> None:
        self.target: tuple[str, int] = ("127.0.0.1", 0)
        self.spares_pages = spares_pages
        self.weather = {way: Weather() for way in Way}
        self.is_refusing = False
        self.accepted = 0
        self.sockets_accepted = 0
        self.cuts = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._traps: list[Trap] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._change = asyncio.Condition()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sockets(self) -> list[Connection]:
        """The WebSockets that can carry something."""
        return [each for each in self._connections if each.is_socket and not each.is_cut and all(each.is_held.values())]

    def held(self, way: Way) -> int:
        """How many WebSockets the end at which a direction begins has not let go of, be they cut or not."""
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

    # -- what a test does ---------------------------------------------------------------------------------------------

    def cut(self, how: Cut = Cut.RESET) -> int:
        """Cut what is there now; gives how many connections that were."""
        victims = [each for each in self._connections if not each.is_cut and self.bothers(each)]
        for connection in victims:
            connection.cut(how)
        return len(victims)

    def cut_at(self, when: Callable[[Frame], bool], moment: Moment = "before", cut: Cut = Cut.RESET) -> Trap:
        """Cut a WebSocket at the next frame of which `when` is true: before it, in its middle, or after it."""
        trap = Trap(when, moment, cut)
        self._traps.append(trap)
        return trap

    def release(self, trap: Trap) -> None:
        """Take a trap away that did not spring."""
        self._traps.remove(trap)

    def cut_after(self, way: Way, count: int, cut: Cut = Cut.RESET) -> None:
        """Let so many more bytes of each WebSocket that is there pass in one direction, then cut it."""
        for connection in self.sockets:
            connection.allowance[way] = (count, cut)

    def freeze(self, way: Way) -> None:
        self.weather[way].is_frozen = True

    def unfreeze(self, way: Way) -> None:
        self.weather[way].is_frozen = False
        self.changed()

    async def until(self, condition: Callable[[], bool], timeout_s: float | None = 15.0) -> None:
        """Wait for something about the connections to become true."""
        async with asyncio.timeout(timeout_s), self._change:
            await self._change.wait_for(condition)

    # -- what connections ask and tell --------------------------------------------------------------------------------

    def bothers(self, connection: Connection) -> bool:
        return connection.is_socket or not self.spares_pages

    def spring(self, frame: Frame) -> Trap | None:
        trap = next((trap for trap in self._traps if trap.when(frame)), None)
        if trap is not None:
            self._traps.remove(trap)
        return trap

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
            if self.is_refusing and not self.spares_pages:
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
            pass  # one of the ends left: what that means is for the other end to find out
        finally:
            if connection is not None:
                self._connections.discard(connection)
                connection.let_go()
            _reset(writer)
            self.changed()


# What is on its way: when it may leave, the bytes, and the frame that they are; None is the end of the stream.
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
        self.is_held = dict.fromkeys(Way, True)
        self.allowance: dict[Way, tuple[int, Cut]] = {}
        self.relay_sees = relay[1].get_extra_info("sockname")  # the address from which the relay is called
        self._proxy = proxy
        self._source = {Way.UP: browser, Way.DOWN: relay}
        self._sink = {Way.UP: relay[1], Way.DOWN: browser[1]}

    async def carry(self, head: bytes) -> None:
        """Forward in both directions until both ends have let go."""
        async with asyncio.TaskGroup() as tasks:
            for way in Way:
                queue: _Queue = asyncio.Queue(maxsize=64)
                tasks.create_task(self._read(way, queue, head if way is Way.UP else b""))
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
    def _weather(self) -> dict[Way, Weather]:
        return self._proxy.weather if self._proxy.bothers(self) else dict.fromkeys(Way, Weather())

    async def _read(self, way: Way, queue: _Queue, head: bytes) -> None:
        reader = self._source[way][0]
        slicer = Slicer(way) if self.is_socket else None
        loop = asyncio.get_running_loop()
        data = head
        try:
            while data or (data := await reader.read(READ_SIZE)):
                for piece, frame in slicer.feed(data) if slicer else ((data, None),):
                    await queue.put((loop.time() + self._weather[way].latency_s, piece, frame))
                data = b""
                if self._weather[way].is_frozen:
                    await self._proxy.until(lambda: self.is_cut or not self._weather[way].is_frozen, None)
        except OSError:
            if not self.is_cut:
                self.let_go()  # a reset goes through as one
        self.is_held[way] = False
        self._proxy.changed()
        await queue.put(None)

    async def _write(self, way: Way, queue: _Queue) -> None:
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
        # The end of a stream goes through as well, unless nothing does: then each end is on its own.
        with suppress(OSError):
            if self.is_cut:
                self._source[way][1].close()
            else:
                self._sink[way].write_eof()

    async def _pass(self, way: Way, piece: bytes, frame: Frame | None) -> None:
        trap = self._proxy.spring(frame) if frame is not None else None
        if trap is None:
            await self._send(way, piece)
            return
        if trap.moment != "before":
            await self._send(way, piece[: len(piece) // 2] if trap.moment == "within" else piece)
        self.cut(trap.cut)
        trap.sprung.set()

    async def _send(self, way: Way, data: bytes) -> None:
        weather, sink = self._weather[way], self._sink[way]
        left, cut = self.allowance.get(way, (None, Cut.RESET))
        if left is not None:
            data = data[:left]
            self.allowance[way] = (left - len(data), cut)
        for start in range(0, len(data), weather.chunk):
            chunk = data[start : start + weather.chunk]
            if weather.bytes_per_s is not None:
                await asyncio.sleep(len(chunk) / weather.bytes_per_s)
            if self.is_cut:
                return
            sink.write(chunk)
            await sink.drain()
        if left is not None and left == len(data):
            self.cut(cut)


class Slicer:
    """Cuts one direction of a WebSocket into its HTTP head and its frames, RFC 6455 section 5.2."""

    def __init__(self, way: Way) -> None:
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
            # An answer that is no 101 is followed by a body, not by frames.
            self._is_refused = self._way is Way.DOWN and b" 101 " not in self._buffer.partition(b"\r\n")[0]
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
    """How long header and payload of the frame at the beginning are, once enough of it is there to tell."""
    # Two bytes tell, unless they say that the length follows; such a frame is longer than the ten that it takes then.
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
