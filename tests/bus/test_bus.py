"""One body for every bus: what the relay relies on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tabrelay.bus.bus import Bus, BusDown, BusMessage
from tabrelay.bus.memory import MemoryBroker, MemoryBus
from tabrelay.bus.nats import NatsAuth, NatsBus
from tests.support.nats import NatsServer
from tests.support.waiting import until


class Bench(Protocol):
    """A bus that a test can take away and give back."""

    def connect(self) -> Bus: ...

    async def cut(self) -> None: ...

    async def mend(self) -> None: ...


class MemoryBench:
    def __init__(self) -> None:
        self._hub = MemoryBroker()

    def connect(self) -> Bus:
        return MemoryBus(self._hub)

    async def cut(self) -> None:
        self._hub.cut()

    async def mend(self) -> None:
        self._hub.restore()


class NatsBench:
    def __init__(self, server: NatsServer) -> None:
        self._server = server

    def connect(self) -> Bus:
        return NatsBus((self._server.url,), NatsAuth(), "test")

    async def cut(self) -> None:
        await self._server.kill()

    async def mend(self) -> None:
        await self._server.start()


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=["memory", "nats"])
async def bench(request: pytest.FixtureRequest, server: NatsServer) -> Bench:
    return MemoryBench() if request.param == "memory" else NatsBench(server)


@pytest.fixture
async def ends(bench: Bench) -> AsyncIterator[tuple[Bus, Bus]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            end = bench.connect()
            await end.start()
            stack.push_async_callback(end.stop)
            await until(lambda end=end: end.is_up)
            made.append(end)
        yield made[0], made[1]


async def answers(end: Bus, subject: str, timeout_s: float = 1) -> bytes | None:
    """The first answer; None if nobody listens, and nothing at all if somebody had just stopped."""
    heard: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def hear(data: bytes | None) -> None:
        if not heard.done():
            heard.set_result(data)

    close = end.send(subject, b"?", hear)
    try:
        async with asyncio.timeout(timeout_s):
            return await heard
    except TimeoutError:
        return b""
    finally:
        close()


async def test_a_message_reaches_everyone_who_listens(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    heard: list[BusMessage] = []
    for end in (a, b):
        end.subscribe("t.all", heard.append)
    await until_listening(a, b)
    await until_listening(b, a)
    a.send("t.all", b"hello")
    await until(lambda: [message.data for message in heard] == [b"hello", b"hello"])


async def test_messages_of_one_sender_arrive_in_their_order(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    heard: list[bytes] = []
    b.subscribe("t.order", lambda message: heard.append(message.data))
    await until_listening(a, b)
    sent = [str(number).encode() * (number % 7 + 1) for number in range(500)]
    for data in sent:
        a.send("t.order", data)
    await until(lambda: len(heard) == len(sent))
    assert heard == sent


async def until_listening(a: Bus, b: Bus) -> None:
    """What `b` wished to hear before is heard from now on: its wishes are in order too."""
    close = b.subscribe("t.ping", lambda message: b.answer(message.reply, b"pong"))

    async def is_heard() -> bool:
        return bool(await answers(a, "t.ping"))

    await until(is_heard)
    close()


async def until_nobody(end: Bus, subject: str) -> None:
    async def is_nobody() -> bool:
        return await answers(end, subject) is None

    await until(is_nobody)


async def test_a_question_is_answered_by_whoever_listens(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    b.subscribe("t.ask", lambda message: b.answer(message.reply, b"here: " + message.data))
    await until_listening(a, b)
    assert await answers(a, "t.ask", 10) == b"here: ?"


async def test_that_nobody_listens_is_known_at_once(ends: tuple[Bus, Bus]) -> None:
    assert await answers(ends[0], "t.nobody", 10) is None


async def test_whoever_stops_listening_is_nobody(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    close = b.subscribe("t.brief", lambda message: b.answer(message.reply, b"yes"))
    await until_listening(a, b)
    assert await answers(a, "t.brief", 10) == b"yes"
    close()
    await until_nobody(a, "t.brief")


async def test_a_node_that_leaves_is_nobody(bench: Bench, ends: tuple[Bus, Bus]) -> None:
    third = bench.connect()
    await third.start()
    await until(lambda: third.is_up)
    third.subscribe("t.third", lambda message: third.answer(message.reply, b"yes"))
    await until_listening(ends[0], third)
    await third.stop()
    await until_nobody(ends[0], "t.third")


async def test_what_is_too_large_is_refused_and_what_fits_arrives_whole(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    heard: list[bytes] = []
    b.subscribe("t.large", lambda message: heard.append(message.data))
    await until_listening(a, b)
    with pytest.raises(BusDown):
        a.send("t.large", b"x" * (a.max_payload + 1))
    a.send("t.large", b"y" * a.max_payload)
    await until(lambda: len(heard) == 1)
    assert heard == [b"y" * a.max_payload]


@pytest.mark.parametrize("bench", ["nats"], indirect=True)  # in memory, a fault is the test's own, and must be seen
async def test_a_handler_that_fails_hears_the_next_message(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    heard: list[bytes] = []

    def hear(message: BusMessage) -> None:
        heard.append(message.data)
        raise RuntimeError("a fault")

    b.subscribe("t.fault", hear)
    await until_listening(a, b)
    a.send("t.fault", b"1")
    a.send("t.fault", b"2")
    await until(lambda: heard == [b"1", b"2"])


async def test_a_lost_bus_takes_nothing_and_comes_back_with_its_listeners(bench: Bench, ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    states: list[bool] = []
    a.on_state = states.append
    heard: list[bytes] = []
    b.subscribe("t.later", lambda message: heard.append(message.data))
    await until_listening(a, b)
    await bench.cut()
    await until(lambda: not a.is_up and not b.is_up)
    with pytest.raises(BusDown):
        a.send("t.later", b"lost")
    await bench.mend()
    await until(lambda: a.is_up and b.is_up)
    await until_listening(a, b)
    a.send("t.later", b"found")
    await until(lambda: heard == [b"found"])
    assert states == [False, True]


async def test_a_bus_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    await server.start()
    await server.kill()
    end = NatsBus((server.url,), NatsAuth(), "test")
    await end.start()
    try:
        await until(lambda: end.problem is not None)
        assert not end.is_up
        await server.start()
        await until(lambda: end.is_up)
    finally:
        await end.stop()
        await server.kill()
