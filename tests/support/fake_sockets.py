"""Sockets without a network: those that the transport opens in tests, and the relay's end of the link behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tabserver.transport.dialing import Abort, DialError
from tabserver.wire.events import Event
from tabserver.wire.frames import Terms
from tabserver.wire.link import Link


class FakeAbort:
    """An AbortController: stores the reason and notifies its listeners."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.listeners: list[Callable[[], None]] = []

    @property
    def aborted(self) -> bool:
        return self.reason is not None

    def abort(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            for listener in self.listeners:
                listener()


class FakeSocket:
    """One socket: records what was written. The test plays the remote end with `deliver` and `drop`."""

    def __init__(self, on_message: Callable[[str, str | None], None], on_close: Callable[[int, str], None]) -> None:
        self.deliver = on_message
        self.drop = on_close
        self.sent: list[tuple[str, str | None]] = []
        self.closed: tuple[int, str] | None = None
        self.buffered = 0
        self.is_broken = False

    def send(self, header: str, payload: str | None) -> None:
        assert self.closed is None, "written to a socket that was closed"
        if self.is_broken:
            raise RuntimeError("the socket is closing")
        self.sent.append((header, payload))

    def close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)


class FakeDialer:
    """Opens sockets when the test decides: each dial waits in `dials` for `open` or `fail`."""

    def __init__(self) -> None:
        self.dials: list[Dial] = []

    async def dial(
        self,
        abort: Abort,
        on_message: Callable[[str, str | None], None],
        on_close: Callable[[int, str], None],
    ) -> FakeSocket:
        assert isinstance(abort, FakeAbort)
        dial = Dial(abort, FakeSocket(on_message, on_close))
        self.dials.append(dial)
        abort.listeners.append(dial.aborted)
        return await dial.outcome

    @property
    def last(self) -> Dial:
        return self.dials[-1]


class Dial:
    def __init__(self, abort: FakeAbort, socket: FakeSocket) -> None:
        self.abort = abort
        self.socket = socket
        self.ignores_abort = False
        self.outcome: asyncio.Future[FakeSocket] = asyncio.get_running_loop().create_future()

    def open(self) -> FakeSocket:
        self.outcome.set_result(self.socket)
        return self.socket

    def fail(self, why: str = "relay_down", message: str = "No relay.", permanent: bool = False) -> None:
        self.outcome.set_exception(DialError(why, message, permanent))

    def aborted(self) -> None:
        if not self.ignores_abort and not self.outcome.done():
            self.outcome.set_exception(DialError("timeout", "given up"))


class FakeRelay:
    """The relay's end: one accepting Link, which the test moves from socket to socket."""

    def __init__(self, clock: Callable[[], float], sid: str = "s1") -> None:
        self._clock = clock
        self.link: Link[str] = Link.accepter(Terms(sid=sid, epoch="e-" + sid, build="b"))
        self.events: list[Event] = []
        self._socket: FakeSocket | None = None
        self._read = 0

    def accept(self, socket: FakeSocket) -> None:
        self._socket, self._read = socket, 0
        self.link.connected(self._clock())
        self.exchange()

    def exchange(self) -> list[Event]:
        """Read and write until neither end has more to send; returns what was read."""
        socket, fresh = self._socket, list[Event]()
        assert socket is not None
        while True:
            for header, payload in socket.sent[self._read :]:
                self._read += 1
                self.link.receive(header, payload, self._clock())
            fresh += self.link.events()
            frames = self.link.frames()
            if not frames and self._read == len(socket.sent):
                break
            for header, payload in frames:
                socket.deliver(header, payload)
        self.events += fresh
        return fresh

    def drop(self, code: int, reason: str = "") -> None:
        assert self._socket is not None
        self.link.disconnected(self._clock())
        self._socket.drop(code, reason)
