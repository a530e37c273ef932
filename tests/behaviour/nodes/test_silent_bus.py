"""A NATS server that stops responding, as when its machine dies: its connections stay open and are not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tabrelay.bus.bus import BusDown, BusMessage
from tabrelay.bus.nats import NatsAuth, NatsBus
from tests.support.nats_server import NatsServer
from tests.support.waiting import until

PING_S = 1.0
# A silent server is abandoned after two to five times that; the rest is for a busy machine.
LEFT_S = 60.0
STOP_S = 30.0


class ServerAddress:
    """One address of a server. It can stop forwarding, for connections to this address only."""

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._listener: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._sound = asyncio.Event()
        self._sound.set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def is_used(self) -> bool:
        return bool(self._writers)

    async def __aenter__(self) -> ServerAddress:
        sock = socket.socket()
        # The system's send buffer for a peer that does not read fills up soon.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        sock.bind(("127.0.0.1", 0))
        self._listener = await asyncio.start_server(self._accept, sock=sock)
        self.port = sock.getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.stop_forwarding()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    def stop_forwarding(self) -> None:
        self._sound.clear()
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._server.port)
        self._writers += [writer, back]
        for source, target in ((reader, back), (there, writer)):
            pipe = asyncio.create_task(self._pipe(source, target))
            self._pipes.add(pipe)

    async def _pipe(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(64 * 1024):
                await self._sound.wait()
                target.write(data)
                await target.drain()
        target.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path) as server:
        yield server


@pytest.fixture
async def addresses(server: NatsServer) -> AsyncIterator[list[ServerAddress]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ServerAddress(server)) for _ in range(2)]


async def stop(end: NatsBus) -> None:
    stopping = asyncio.create_task(end.stop())
    await asyncio.wait((stopping,), timeout=STOP_S)
    assert stopping.done()
    await stopping


def send_much(end: NatsBus) -> None:
    """More data than all buffers between the two can hold."""
    with pytest.raises(BusDown, match="accepts no more"):
        while True:
            end.send("t.much", bytes(256 * 1024))


def listen_much(end: NatsBus) -> None:
    """No single subscription is large, but all of them together exceed the buffer of nats-py."""
    for number in range(12_000):
        end.subscribe(f"t.{'x' * 1200}.{number}", lambda message: None)


def do_nothing(end: NatsBus) -> None:
    pass


@pytest.mark.parametrize("burden", [send_much, listen_much, do_nothing])
async def test_a_server_that_falls_silent_is_left_for_another(
    server: NatsServer, addresses: list[ServerAddress], burden: Callable[[NatsBus], None]
) -> None:
    end = NatsBus(tuple(address.url for address in addresses), NatsAuth(), "test", ping_s=PING_S)
    states: list[bool] = []
    end.on_state.append(states.append)
    received: list[bytes] = []

    def receive(message: BusMessage) -> None:
        received.append(message.data)

    end.subscribe("t.received", receive)
    await end.start()
    try:
        await until(lambda: states == [True])
        [first] = [address for address in addresses if address.is_used]
        [second] = [address for address in addresses if not address.is_used]
        first.stop_forwarding()
        burden(end)
        await until(lambda: second.is_used, LEFT_S)
        await until(lambda: end.is_up, LEFT_S)
        assert states[:2] == [True, False]

        async def is_received() -> bool:
            with suppress(BusDown):
                end.send("t.received", b"here")
            return b"here" in received

        await until(is_received, LEFT_S)
    finally:
        await stop(end)


@pytest.mark.parametrize("burden", [send_much, listen_much])
async def test_a_relay_whose_bus_is_silent_can_stop(
    addresses: list[ServerAddress], burden: Callable[[NatsBus], None]
) -> None:
    end = NatsBus((addresses[0].url,), NatsAuth(), "test")
    await end.start()
    await until(lambda: end.is_up)
    addresses[0].stop_forwarding()
    burden(end)
    await stop(end)
    assert not end.is_up
