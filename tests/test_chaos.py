"""The chaos proxy: tests of the link rely on the faults that it injects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidMessage

from tests.support.chaos_proxy import ChaosProxy, Cut, Direction, Frame, Moment

BOUND_S = 10


async def echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serve(echo, "127.0.0.1", 0, max_size=None, compression=None) as server:
        yield server


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[ChaosProxy]:
    async with ChaosProxy() as proxy, asyncio.timeout(BOUND_S):
        proxy.target = ("127.0.0.1", next(iter(server.sockets)).getsockname()[1])
        yield proxy


def dial(proxy: ChaosProxy) -> connect:
    url = proxy.origin.replace("http", "ws")
    return connect(url, proxy=None, max_size=None, compression=None, close_timeout=0.2)


async def ask(socket: ClientConnection, text: str) -> str:
    await socket.send(text)
    answer = await socket.recv()
    assert isinstance(answer, str)
    return answer


def says(way: Direction, text: str) -> Callable[[Frame], bool]:
    def when(frame: Frame) -> bool:
        return frame.way is way and frame.text.startswith(text)

    return when


async def test_it_passes_on_what_it_gets_and_counts_connections(proxy: ChaosProxy) -> None:
    async with dial(proxy) as first, dial(proxy) as second:
        assert await ask(first, "a" * 300_000) == "a" * 300_000
        assert await ask(second, "") == ""
        assert (proxy.accepted, proxy.sockets_accepted, len(proxy.sockets)) == (2, 2, 2)
        assert proxy.held(Direction.UP) == proxy.held(Direction.DOWN) == 2
    await proxy.until(lambda: proxy.held(Direction.UP) == proxy.held(Direction.DOWN) == 0)
    assert proxy.cuts == 0


@pytest.mark.parametrize("how", [Cut.RESET, Cut.CLOSE])
async def test_a_cut_that_is_noticed_ends_both_sides_at_once(proxy: ChaosProxy, server: Server, how: Cut) -> None:
    async with dial(proxy) as socket:
        await ask(socket, "hello")
        assert proxy.cut(how) == 1
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        cause = closed.value.__cause__
        assert isinstance(cause, ConnectionResetError) if how is Cut.RESET else not isinstance(cause, OSError)
        await proxy.until(lambda: proxy.held(Direction.DOWN) == 0)
        assert proxy.sockets == []


async def test_a_half_open_cut_is_not_noticed_until_an_end_closes(proxy: ChaosProxy) -> None:
    async with dial(proxy) as socket:
        await ask(socket, "hello")
        proxy.cut(Cut.HALF_OPEN)
        await socket.send("into the void")
        assert proxy.sockets == []
        assert proxy.held(Direction.UP) == proxy.held(Direction.DOWN) == 1
    await proxy.until(lambda: proxy.held(Direction.UP) == 0)
    assert proxy.held(Direction.DOWN) == 1


@pytest.mark.parametrize(("moment", "arrives"), [("before", False), ("within", False), ("after", True)])
async def test_a_planned_cut_happens_at_its_frame_and_at_no_other(
    proxy: ChaosProxy, moment: Moment, arrives: bool
) -> None:
    async with dial(proxy) as socket:
        planned = proxy.cut_at(says(Direction.DOWN, "now"), moment, Cut.CLOSE)
        assert await ask(socket, "not yet") == "not yet"
        await socket.send("now")
        await planned.sprung.wait()
        received = []
        with pytest.raises(ConnectionClosed):
            while True:
                received.append(await socket.recv())
        assert received == (["now"] if arrives else [])
    async with dial(proxy) as socket:
        assert await ask(socket, "now") == "now"


async def test_a_cut_after_some_bytes_lets_exactly_those_through(proxy: ChaosProxy) -> None:
    async with dial(proxy) as socket:
        await ask(socket, "hello")
        # A text frame of five bytes from a server has a header of two bytes.
        proxy.cut_after(Direction.DOWN, 7, Cut.CLOSE)
        assert await ask(socket, "12345") == "12345"
        with pytest.raises(ConnectionClosed):
            await ask(socket, "6")


async def test_latency_delays_but_keeps_order(proxy: ChaosProxy) -> None:
    async with dial(proxy) as socket:
        loop = asyncio.get_running_loop()
        proxy.conditions[Direction.UP].latency_s = 0.2
        began = loop.time()
        for number in range(20):
            await socket.send(str(number))
        assert [await socket.recv() for _ in range(20)] == [str(number) for number in range(20)]
        # Once for all of them: a delay, not a lower rate.
        assert 0.2 <= loop.time() - began < 2.0


async def test_a_rate_is_kept(proxy: ChaosProxy) -> None:
    async with dial(proxy) as socket:
        loop = asyncio.get_running_loop()
        proxy.conditions[Direction.DOWN].bytes_per_s = 100_000
        proxy.conditions[Direction.DOWN].chunk = 5_000
        began = loop.time()
        await ask(socket, "a" * 50_000)
        assert loop.time() - began >= 0.5


async def test_frames_survive_writes_of_one_byte(proxy: ChaosProxy) -> None:
    for conditions in proxy.conditions.values():
        conditions.chunk = 1
    async with dial(proxy) as socket:
        for size in (0, 1, 125, 126, 5_000):
            assert await ask(socket, "é" * size) == "é" * size


async def test_a_frozen_direction_fills_the_senders_buffers_and_thaws_without_loss(proxy: ChaosProxy) -> None:
    async with dial(proxy) as socket:
        await ask(socket, "hello")
        proxy.freeze(Direction.UP)
        big = "a" * 30_000_000
        sending = asyncio.create_task(socket.send(big))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.shield(sending)
        proxy.unfreeze(Direction.UP)
        assert await socket.recv() == big
        await sending


async def test_a_refused_connection_is_reset_and_the_next_is_accepted(proxy: ChaosProxy) -> None:
    proxy.is_refusing = True
    with pytest.raises((OSError, InvalidMessage)):
        async with dial(proxy):
            raise AssertionError("it was let in")
    proxy.is_refusing = False
    async with dial(proxy) as socket:
        assert await ask(socket, "hello") == "hello"
    assert proxy.sockets_accepted == 2


async def test_pages_are_not_cut_unless_the_test_requires_it(proxy: ChaosProxy) -> None:
    async def get() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            proxy.cut()
            return await reader.read()
        finally:
            writer.close()

    proxy.is_refusing = True
    proxy.conditions[Direction.DOWN].latency_s = 3600
    assert b"426" in (await get()).partition(b"\r\n")[0]
    assert proxy.sockets_accepted == 0
    proxy.only_websockets = False
    with pytest.raises(ConnectionResetError):
        await get()
