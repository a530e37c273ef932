"""Membership: a silent node is lost, but not while there is no bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tabrelay.bus.members import MISSED, Membership
from tabserver.wire.events import Opened, Violation
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.relay_pair import Pair
from tests.support.waiting import until

BEAT_S = 0.05


class Member:
    """One node, and the messages that it has received."""

    def __init__(self, hub: MemoryBroker) -> None:
        self.beats = 0
        self.received: list[str | None] = []
        self.lost: list[str] = []
        self.bus = MemoryBus(hub)
        self.cluster = Membership(self.bus, b"key", self._about, BEAT_S)
        self.cluster.handle("word", lambda node, header, payload: self.received.append(payload))
        self.cluster.on_lost.append(self.lost.append)

    def _about(self) -> dict[str, Any]:
        self.beats += 1
        return {}

    def knows(self, other: Member) -> bool:
        return other.cluster.id in self.cluster.nodes

    def say(self, other: Member, text: str) -> None:
        self.cluster.send_reliably(other.cluster.id, {"op": "word"}, text)


class TwoMembers:
    """Two nodes on a bus."""

    def __init__(self) -> None:
        self.hub = MemoryBroker()
        self.a, self.b = Member(self.hub), Member(self.hub)

    async def beat(self, times: int) -> None:
        """Wait until each of them has tried to send this many more heartbeats."""
        due = [(member, member.beats + times) for member in (self.a, self.b)]
        await until(lambda: all(member.beats >= count for member, count in due))

    async def meet(self) -> None:
        await until(lambda: self.a.knows(self.b) and self.b.knows(self.a))


@pytest.fixture
async def members() -> AsyncIterator[TwoMembers]:
    members = TwoMembers()
    for member in (members.a, members.b):
        await member.cluster.start()
    await members.meet()
    yield members
    for member in (members.a, members.b):
        await member.cluster.stop()


async def test_nodes_do_not_lose_each_other_with_the_bus(members: TwoMembers) -> None:
    members.hub.cut()
    await members.beat(3 * MISSED)
    assert members.a.knows(members.b) and members.b.knows(members.a)
    members.a.say(members.b, "meanwhile")  # kept for known nodes
    members.hub.restore()
    await until(lambda: members.b.received == ["meanwhile"])
    assert (members.a.lost, members.b.lost) == ([], [])


async def test_a_node_that_did_not_come_back_with_the_bus_is_lost(members: TwoMembers) -> None:
    members.hub.cut()
    members.hub.restore(members.a.bus)
    await until(lambda: members.a.lost == [members.b.cluster.id])
    assert members.b.knows(members.a)  # it receives nothing: it is the one without a bus
    members.hub.restore()
    await members.meet()


async def test_messages_of_a_lost_node_are_not_received_again_when_it_is_back(members: TwoMembers) -> None:
    members.b.say(members.a, "before")
    await until(lambda: members.a.received == ["before"])
    members.hub.cut()
    members.hub.restore(members.a.bus)
    await until(lambda: not members.a.knows(members.b))
    members.hub.restore()
    await members.meet()
    members.b.say(members.a, "after")  # the kept messages were sent again before it
    await until(lambda: "after" in members.a.received)
    assert members.a.received == ["before", "after"]


async def test_a_bus_that_is_silent_for_a_while_costs_no_node(
    members: TwoMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bus stalls without a disconnect: messages arrive late, and all at once."""
    late: list[tuple[Any, ...]] = []
    monkeypatch.setattr(members.hub, "deliver", lambda *said: late.append(said))
    await members.beat(3 * MISSED)
    monkeypatch.undo()
    for said in late:
        members.hub.deliver(*said)
    await members.beat(2)
    assert (members.a.lost, members.b.lost) == ([], [])


ODD: list[Any] = [None, True, 5, -1.5, "x", [], [[]], {}, {"a": 1}]


async def test_a_message_that_can_not_be_handled_costs_no_other(members: TwoMembers) -> None:
    """Its exception does not reach the bus, whose reader it could end."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))

    def stumble(node: str, header: dict[str, Any], payload: str | None) -> None:
        raise KeyError(header["missing"])

    members.b.cluster.handle("odd", stumble)
    members.b.cluster.handle_question("odd", lambda question: {"can't be written": object()})
    members.a.cluster.send(members.b.cluster.id, {"op": "odd"})
    assert await members.a.cluster.ask_all("odd", {}) == []
    members.a.say(members.b, "still there")
    await until(lambda: members.b.received == ["still there"])
    assert unhandled == []


async def test_headers_of_any_shape_leave_a_relay_on_the_bus(pair: Pair) -> None:
    """Another relay, perhaps of a later version, may send anything in them."""
    stranger = Membership(MemoryBus(pair.hub), pair.a.tokens.session_key(), dict, BEAT_S)
    await stranger.start()
    async with pair.worker(pair.a, "notes"):
        await _harass(pair, stranger)
    await stranger.stop()


async def _harass(pair: Pair, stranger: Membership) -> None:
    await pair.b.has_found("notes")
    names = ("a", "c", "i", "m", "o", "why", "tab", "error", "code", "again", "gen", "rows", "server", "since", "from")
    ops = ("call", "cancel", "say", "end", "listen", "done", "fail", "note", "pin", "refused", "lost")
    for op in (*ops, "heard"):  # style: ok (an operation on the bus)
        for value in ODD:
            stranger.broadcast({"op": op, **dict.fromkeys(names[:-1], value), "a": "notes", "c": "x-1"}, "{")
            stranger.broadcast({"op": op, **dict.fromkeys(names[:-1], value)})
            stranger._publish_beat({"op": "beat", **dict.fromkeys(names, value), "new": True})
    for what in ("status", "known", "diary"):
        for value in ODD:
            await stranger.ask_all(what, {"server": value, "page": value}, 0.01)
    for relay in (pair.a, pair.b):
        answer = await relay.call("notes", "echo", {"x": 1})
        assert answer.json()["result"]["content"][0]["text"] == '{"x": 1}'
        assert (await relay.http.get("/-/status")).status_code == 200


async def test_a_channel_or_a_caller_that_no_frame_can_carry_reaches_no_browser(pair: Pair) -> None:
    """Channel ids are written into frames without escapes."""
    stranger = Membership(MemoryBus(pair.hub), pair.a.tokens.session_key(), dict, BEAT_S)
    await stranger.start()
    async with pair.worker(pair.a, "notes") as worker:
        await pair.b.has_found("notes")
        sound: dict[str, Any] = {"era": "legacy", "version": "2025-11-25", "principal": "p", "ready": True}
        channels = ("", "c" * 257, 'c","x":"', "c\\", "c\nd", "ü")
        bad = [(channel, sound) for channel in channels]
        bad += [("x-1", {**sound, "client": {"name": "x" * 200_000}})]
        for channel, caller in bad:
            for op in ("call", "listen", "say", "end"):
                header = {"op": op, "a": "notes", "c": channel, "o": caller, "i": 1, "m": "ping", "why": "x"}
                stranger.broadcast(header, '{"jsonrpc":"2.0","id":1,"method":"ping"}')
        stranger.broadcast({"op": "listen", "a": "notes", "c": "fine", "o": sound})
        await worker.until(lambda: any(isinstance(one, Opened) and one.channel == "fine" for one in worker.seen))
        said = [one for one in worker.seen if isinstance(one, Violation) or getattr(one, "channel", None) in channels]
        assert said == [] and worker.close_code is None
    await stranger.stop()
