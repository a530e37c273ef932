"""Ten thousand names on three nodes: one query on the bus finds the holder of a name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from tabrelay.errors import RelayUnavailable, UnknownServer
from tabrelay.peers.nodes.locator import MAX_FOLLOWED
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.nats_server import NatsServer
from tests.support.node_without_faces import PresenceNode
from tests.support.waiting import until

NAMES = 10_000


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[list[PresenceNode]]:
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(NatsServer(tmp_path))
        made = [PresenceNode(bus, tmp_path, 2 * NAMES) for _ in range(3)]
        for node in made:
            await node.cluster.start()
            stack.push_async_callback(node.cluster.stop)
        await until(lambda: all(len(node.cluster.nodes) == 2 for node in made))
        yield made


async def test_ten_thousand_names_on_three_nodes(three: list[PresenceNode]) -> None:
    first, second, third = three
    for number in range(NAMES):
        three[number % 3].hold(f"name-{number}")
        if number % 500 == 499:
            await asyncio.sleep(0)  # as browsers connect: not all in one event-loop iteration

    async def is_found(name: str) -> bool:
        with suppress(RelayUnavailable):  # the NATS server is busy with so many
            await first.locator.find(name)
        return first.held_by(name) is not None

    # The last subscription of each of the other nodes has reached the server, and with it the earlier ones.
    for name in (f"name-{NAMES - 2}", f"name-{NAMES - 3}"):
        await until(partial(is_found, name))
    for number in range(0, NAMES, 97):
        name, owner = f"name-{number}", three[number % 3]
        if owner is first:
            await first.locator.find(name)
        else:
            await until(partial(is_found, name))
        assert first.held_by(name) == (None if owner is first else owner.cluster.id)
    # A node keeps no names that were not queried there.
    assert len(second.registry.entries()) <= NAMES // 3 + 1

    await first.locator.find("unknown")
    with pytest.raises(UnknownServer):
        first.registry.find("unknown")

    # A node that dies sends nothing, and its names disappear.
    await third.nats.stop()

    async def is_gone() -> bool:
        with suppress(RelayUnavailable):
            await second.locator.find("name-2")
            return second.held_by("name-2") is None
        return False

    await until(is_gone)
    await until(lambda: third.cluster.id not in first.cluster.nodes)
    assert [name for name in (f"name-{n}" for n in range(2, NAMES, 3)) if first.held_by(name) is not None] == []
    assert first.held_by("name-97") == second.cluster.id


async def test_names_of_our_own_do_not_push_out_what_we_know_of_others(three: list[PresenceNode]) -> None:
    """A further name does not cause a scan of all names each time."""
    first, second, _ = three
    second.hold("far")

    async def is_found() -> bool:
        with suppress(RelayUnavailable):
            await first.locator.find("far")
        return first.held_by("far") is not None

    await until(is_found)
    for number in range(MAX_FOLLOWED + 10):
        first.hold(f"near-{number}")
        if number % 500 == 499:
            await asyncio.sleep(0)
    assert first.held_by("far") == second.cluster.id


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[PresenceNode]]:
    """The first node has room for four names."""
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(NatsServer(tmp_path))
        made = [PresenceNode(bus, tmp_path, 4), PresenceNode(bus, tmp_path, 2 * NAMES)]
        for node in made:
            await node.cluster.start()
            stack.push_async_callback(node.cluster.stop)
        await until(lambda: all(len(node.cluster.nodes) == 1 for node in made))
        yield made


async def find(node: PresenceNode, name: str) -> None:
    async def is_found() -> bool:
        await node.locator.find(name)
        return node.held_by(name) is not None

    await until(is_found)


async def test_names_of_others_keep_no_browser_of_our_own_out(two: list[PresenceNode]) -> None:
    first, second = two
    for number in range(8):
        second.hold(f"far-{number}")
        await find(first, f"far-{number}")
    for number in range(4):
        assert first.registry.has_room_for(f"near-{number}")
        first.hold(f"near-{number}")
    # The node is full now: a name that moves here from another node would exceed the limit.
    assert not first.registry.has_room_for("near-4")
    assert not first.registry.has_room_for("far-0")
    assert first.registry.has_room_for("near-0")
    assert {first.held_by(f"far-{number}") for number in range(8)} == {second.cluster.id}


async def test_names_of_others_are_bounded_whatever_they_are_used_for(
    two: list[PresenceNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabrelay.peers.nodes.locator.MAX_FOLLOWED", 8)
    first, second = two
    for number in range(40):
        second.hold(f"far-{number}")
        await find(first, f"far-{number}")
        if number < 4:  # the least recently used ones have a listener
            peer = first.registry.holder(f"far-{number}")
            assert peer is not None
            peer.listen("channel", Caller(Era.MODERN, "2026-07-28", "test"), lambda notice: None)
    held = [number for number in range(40) if first.held_by(f"far-{number}") is not None]
    assert held[:4] == [0, 1, 2, 3]
    assert len(held) <= 8
    # Of dropped names, the registry keeps as many as of any other kind.
    assert len(first.registry.entries()) <= 8 + 4
