"""Real WebSockets for the worker's real transport without a browser, to observe its reconnect schedule."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from tabserver.timing import DEFAULTS, Timing
from tabserver.transport.dialing import Abort, DialError
from tabserver.transport.reconnect import Transport, TransportState
from tabserver.wire import frames
from tabserver.wire.frames import SUBPROTOCOL, Greeting
from tabserver.wire.link import Link
from tests.support.fake_sockets import FakeAbort
from tests.support.waiting import BOUND_S


@dataclass
class LinkDelay:
    """How long each frame takes in addition."""

    up_s: float = 0.0
    down_s: float = 0.0


class NetworkSocket:
    """One open WebSocket. `send` only queues: a task writes in order."""

    def __init__(
        self, connection: ClientConnection, on_message: Callable[[str, str | None], None], delay: LinkDelay
    ) -> None:
        self._connection = connection
        self._delay = delay
        self._on_message = on_message
        self._out: asyncio.Queue[str | None] = asyncio.Queue()
        self.buffered = 0
        self.tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def send(self, header: str, payload: str | None) -> None:
        text = header if payload is None else f"{header}\n{payload}"
        self.buffered += len(text)
        self._out.put_nowait(text)

    def close(self, code: int, reason: str) -> None:
        self._out.put_nowait(None)

    async def _write(self) -> None:
        with suppress(ConnectionClosed):
            while (text := await self._out.get()) is not None:
                if self._delay.up_s:
                    await asyncio.sleep(self._delay.up_s)
                await self._connection.send(text)
                self.buffered -= len(text)
        await self._connection.close()

    async def _read(self) -> None:
        with suppress(ConnectionClosed):
            async for text in self._connection:
                assert isinstance(text, str)
                if self._delay.down_s:
                    await asyncio.sleep(self._delay.down_s)
                self._on_message(*frames.split(text))


class NetworkDialer:
    """Connects to one server of a relay; counts the attempts, and how many of them opened a socket."""

    def __init__(self, url: str, token: str, server: str) -> None:
        self._server = server
        self.set_target(url)
        self._bearer = frames.BEARER_PREFIX + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        self._tasks: set[asyncio.Task[None]] = set()
        self._connection: ClientConnection | None = None
        self._others: Iterator[str] | None = None
        self.delay = LinkDelay()
        self.dials = 0
        self.opened = 0

    def set_target(self, url: str) -> None:
        """Set the relay for later connections."""
        self._url = url.replace("http", "ws", 1) + "/" + self._server

    def rotate_targets(self, *urls: str) -> None:
        """Connect to another one of these each time, as behind a load balancer."""
        self._others = itertools.cycle(urls)

    def cut(self) -> None:
        """Drop the socket without a close frame, as a failing network does."""
        assert self._connection is not None
        self._connection.transport.abort()

    async def dial(
        self, abort: Abort, on_message: Callable[[str, str | None], None], on_close: Callable[[int, str], None]
    ) -> NetworkSocket:
        self.dials += 1
        if self._others is not None:
            self.set_target(next(self._others))
        try:
            connection = await connect(
                self._url,
                subprotocols=[Subprotocol(SUBPROTOCOL), Subprotocol(self._bearer)],
                proxy=None,
                max_size=None,
                ping_interval=None,
            )
        except (OSError, WebSocketException) as error:
            raise DialError("relay_down", str(error)) from error
        self.opened += 1
        self._connection = connection
        socket = NetworkSocket(connection, on_message, self.delay)
        watch = asyncio.create_task(self._watch(connection, socket, on_close))
        self._tasks.add(watch)
        watch.add_done_callback(self._tasks.discard)
        return socket

    async def _watch(
        self, connection: ClientConnection, socket: NetworkSocket, on_close: Callable[[int, str], None]
    ) -> None:
        await socket.tasks[0]
        socket.close(1000, "")
        await socket.tasks[1]
        on_close(connection.close_code or 1006, connection.close_reason or "")


class RemoteWorker:
    """A worker's transport with the product's schedule; records every state and its time."""

    def __init__(self, url: str, token: str, server: str, timing: Timing = DEFAULTS, **listeners: Any) -> None:
        """`listeners`: as in Transport."""
        clock = asyncio.get_running_loop().time
        self.dialer = NetworkDialer(url, token, server)
        link: Link[str] = Link.dialer(Greeting(server, f"inst-{server}", "test-build"))
        self.transport: Transport[str] = Transport(
            link,
            self.dialer,
            clock=clock,
            new_abort=FakeAbort,
            jitter=random.random,
            timing=timing,
            on_state=self._note,
            **listeners,
        )
        self.states: list[tuple[float, TransportState]] = []
        self._changed = asyncio.Event()
        self._clock = clock

    def _note(self, state: TransportState) -> None:
        self.states.append((self._clock(), state))
        self._changed.set()

    async def until(self, state: str, timeout_s: float = BOUND_S) -> None:
        async with asyncio.timeout(timeout_s):
            while self.transport.state.state != state:
                self._changed.clear()
                await self._changed.wait()

    def times(self, state: str) -> list[float]:
        return [at for at, seen in self.states if seen.state == state]
