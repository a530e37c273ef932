"""Behaviour that the relay requires of every bus: the same tests for memory and NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tabrelay.bus.bus import Bus, BusDown, BusMessage
from tabrelay.bus.nats import NatsAuth, NatsBus
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.nats_server import NatsServer
from tests.support.waiting import until


class ControlledBus(Protocol):
    """A bus that a test can cut and restore."""

    def connect(self) -> Bus: ...

    async def cut(self) -> None: ...

    async def mend(self) -> None: ...


class ControlledMemoryBus:
    def __init__(self) -> None:
        self._hub = MemoryBroker()

    def connect(self) -> Bus:
        return MemoryBus(self._hub)

    async def cut(self) -> None:
        self._hub.cut()

    async def mend(self) -> None:
        self._hub.restore()


class ControlledNatsBus:
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
async def bench(request: pytest.FixtureRequest, server: NatsServer) -> ControlledBus:
    return ControlledMemoryBus() if request.param == "memory" else ControlledNatsBus(server)


@pytest.fixture
async def ends(bench: ControlledBus) -> AsyncIterator[tuple[Bus, Bus]]:
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
    """The first answer; None without a subscriber; empty if a subscriber has just unsubscribed."""
    received: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def receive(data: bytes | None) -> None:
        if not received.done():
            received.set_result(data)

    close = end.send(subject, b"?", receive)
    try:
        async with asyncio.timeout(timeout_s):
            return await received
    except TimeoutError:
        return b""
    finally:
        close()


async def test_a_message_reaches_all_subscribers(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    received: list[BusMessage] = []
    for end in (a, b):
        end.subscribe("t.all", received.append)
    await until_listening(a, b)
    await until_listening(b, a)
    a.send("t.all", b"hello")
    await until(lambda: [message.data for message in received] == [b"hello", b"hello"])


async def test_messages_of_one_sender_arrive_in_their_order(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    received: list[bytes] = []
    b.subscribe("t.order", lambda message: received.append(message.data))
    await until_listening(a, b)
    sent = [str(number).encode() * (number % 7 + 1) for number in range(500)]
    for data in sent:
        a.send("t.order", data)
    await until(lambda: len(received) == len(sent))
    assert received == sent


async def until_listening(a: Bus, b: Bus) -> None:
    """Earlier subscriptions of `b` are active when this returns: they are processed in order."""
    close = b.subscribe("t.ping", lambda message: b.answer(message.reply, b"pong"))

    async def is_received() -> bool:
        return bool(await answers(a, "t.ping"))

    await until(is_received)
    close()


async def until_no_subscriber(end: Bus, subject: str) -> None:
    async def has_no_subscriber() -> bool:
        return await answers(end, subject) is None

    await until(has_no_subscriber)


async def test_a_question_is_answered_by_a_subscriber(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    b.subscribe("t.ask", lambda message: b.answer(message.reply, b"here: " + message.data))
    await until_listening(a, b)
    assert await answers(a, "t.ask", 10) == b"here: ?"


async def test_a_subject_without_subscribers_is_reported_at_once(ends: tuple[Bus, Bus]) -> None:
    assert await answers(ends[0], "t.empty", 10) is None


async def test_an_ended_subscription_receives_no_question(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    close = b.subscribe("t.brief", lambda message: b.answer(message.reply, b"yes"))
    await until_listening(a, b)
    assert await answers(a, "t.brief", 10) == b"yes"
    close()
    await until_no_subscriber(a, "t.brief")


async def test_a_node_that_leaves_has_no_subscription(bench: ControlledBus, ends: tuple[Bus, Bus]) -> None:
    third = bench.connect()
    await third.start()
    await until(lambda: third.is_up)
    third.subscribe("t.third", lambda message: third.answer(message.reply, b"yes"))
    await until_listening(ends[0], third)
    await third.stop()
    await until_no_subscriber(ends[0], "t.third")


async def test_what_is_too_large_is_refused_and_what_fits_arrives_whole(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    received: list[bytes] = []
    b.subscribe("t.large", lambda message: received.append(message.data))
    await until_listening(a, b)
    with pytest.raises(BusDown):
        a.send("t.large", b"x" * (a.max_payload + 1))
    a.send("t.large", b"y" * a.max_payload)
    await until(lambda: len(received) == 1)
    assert received == [b"y" * a.max_payload]


@pytest.mark.parametrize("bench", ["nats"], indirect=True)  # in memory, the fault is raised in the test itself
async def test_a_handler_that_fails_receives_the_next_message(ends: tuple[Bus, Bus]) -> None:
    a, b = ends
    received: list[bytes] = []

    def receive(message: BusMessage) -> None:
        received.append(message.data)
        raise RuntimeError("a fault")

    b.subscribe("t.fault", receive)
    await until_listening(a, b)
    a.send("t.fault", b"1")
    a.send("t.fault", b"2")
    await until(lambda: received == [b"1", b"2"])


async def test_a_lost_bus_accepts_nothing_and_has_its_subscriptions_again_afterwards(
    bench: ControlledBus, ends: tuple[Bus, Bus]
) -> None:
    a, b = ends
    states: list[bool] = []
    a.on_state.append(states.append)
    received: list[bytes] = []
    b.subscribe("t.later", lambda message: received.append(message.data))
    await until_listening(a, b)
    await bench.cut()
    await until(lambda: not a.is_up and not b.is_up)
    with pytest.raises(BusDown):
        a.send("t.later", b"lost")
    await bench.mend()
    await until(lambda: a.is_up and b.is_up)
    await until_listening(a, b)
    a.send("t.later", b"found")
    await until(lambda: received == [b"found"])
    assert states == [False, True]


async def test_a_relay_waits_for_a_bus_that_has_not_started(tmp_path: Path) -> None:
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
