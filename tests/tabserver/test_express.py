"""Calls that JavaScript carries out: what Python counts for them, over drops and when anything changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tabserver.express import LONGEST, MOST, Express
from tabserver.hub import Hub
from tabserver.lane import Grant, Lane
from tabserver.outbox import passed_on
from tabserver.reconnect import Transport
from tabserver.server import Server
from tabserver.toolbox import Toolbox, tool
from tabserver.wire.events import Received
from tabserver.wire.frames import CLOSE_PROTOCOL, Greeting, Kind
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tests.support.clock import Clock, settle
from tests.support.core import MODERN
from tests.support.port import FakePort
from tests.support.socket import FakeAbort, FakeDialer, FakeRelay, FakeSocket

PLAIN = '{"content":[{"type":"text","text":"hello"}]}'


class Granted(FakePort):
    """A page, and what was granted to it: numbers, channels, words and `_meta`."""

    reads_requests = True

    def __init__(self) -> None:
        super().__init__()
        self.granted: list[tuple[int, str, str, str]] = []

    def allow(self, number: int, channel: str, words: str, meta: str) -> None:
        self.granted.append((number, channel, words, meta))


class Rig:
    """A worker without its browser: transport, lane and express, and the relay's end of the link. The test speaks for
    JavaScript: it takes frames off the link, and writes answers."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock, self.dialer = Clock(), FakeDialer()
        self.relay = FakeRelay(self.clock)
        self.box = Toolbox()
        self.hub = Hub(self.box, now_ms=self.clock, defer=lambda due: None, later=lambda delay_ms, ring: None)
        link: Link[str] = Link.dialer(Greeting("demo", "inst", "b"), limits or Limits())
        self.transport = Transport(
            link,
            self.dialer,
            clock=self.clock,
            new_abort=FakeAbort,
            jitter=lambda: 0.5,
            call_later=self.clock.call_later,
        )
        core = Server("demo", "1", self.hub, self.transport.send)
        lane = Lane(core, self.hub, self.transport.send)
        self.transport.on_message = lane.receive
        self.own: list[tuple[int, str, str]] = []
        self.revoked = 0
        self.express = Express(self.hub, lane, self.transport, self._allow, self._revoke)
        self.port = Granted()
        self.hub.attach(self.port, {"id": "a", "title": "A", "visible": True, "watches": False})
        self.hub.receive(self.port, {"t": "offer", "tools": [{"name": "info"}]})
        self.ran: list[str] = []

        @tool(toolbox=self.box)
        def say(text: str) -> Any:
            self.ran.append(text)
            return {"a": 1} if text == "object" else text

        self.socket: FakeSocket
        self._carried = 0

    def _allow(self, number: int, channel: str, meta: str) -> None:
        self.own.append((number, channel, meta))

    def _revoke(self) -> None:
        self.revoked += 1

    async def connect(self) -> None:
        await self.transport.start()
        await settle()
        self.socket = self.dialer.last.open()
        await settle()
        self.relay.accept(self.socket)

    def request(self, channel: str, name: str = "info", arguments: dict[str, Any] | None = None, id: int = 1) -> str:
        """The relay sends a call; returns its payload."""
        params = {"name": name, "arguments": arguments or {}, "_meta": {}}
        payload = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        self.relay.link.send(channel, Kind.REQ, payload, self.clock(), id=id, caller=MODERN)
        return payload

    def carry(self, channel: str) -> tuple[int, int, str]:
        """Take the relay's next frame off the link, as express.js does: its numbers and payload."""
        [(header, payload)] = self.relay.link.frames()
        head = json.loads(header)
        assert head["c"] == channel and payload is not None
        return head["s"], head["a"], payload

    def send(self, channel: str, grant: int = 0) -> tuple[str, int]:
        """A call that went to its tab: its name, and the number that its answer may have."""
        self.request(channel)
        seq, upto, payload = self.carry(channel)
        self._carried += 1
        name = f"x{self._carried}"
        self.express.sent(grant, seq, upto, channel, 1, name, 100, payload)
        return name, self.express.turn()

    def answer(self, name: str, channel: str, turn: int, text: str = PLAIN) -> int:
        """Its tab's answer, written under this number."""
        head = {"t": "msg", "s": turn, "a": self.express.taken, "c": channel, "k": "res", "i": 1}
        payload = passed_on(1, text, self.port.granted[0][3])
        self.socket.send(json.dumps(head, separators=(",", ":")), payload)
        return self.express.answered(name, text)

    def plain(self, channel: str = "first", name: str = "info", arguments: dict[str, Any] | None = None) -> None:
        """A call by the lane, with its answer."""
        self.request(channel, name, arguments)
        self.relay.exchange()
        if name == "info":
            self.hub.receive_result(self.port, self.port.last("call")["call"], PLAIN, True)
        self.heard()

    def heard(self) -> list[tuple[str, Any]]:
        """What the relay heard since: channels and results."""
        events = self.relay.exchange()
        return [(event.channel, json.loads(event.payload)) for event in events if isinstance(event, Received)]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    await rig.connect()
    yield rig
    await rig.transport.close()


def test_nothing_is_granted_before_a_call_was_plain() -> None:
    assert Rig().port.granted == []


async def test_a_plain_call_is_a_grant_for_those_like_it(rig: Rig) -> None:
    rig.plain()
    [(number, channel, words, meta)] = rig.port.granted
    assert (number, channel) == (0, "first")
    said = json.loads(f"{{{words}}}")
    assert (said["kind"], said["name"], said["caller"]["principal"]) == ("tools", "info", MODERN.principal)
    assert json.loads(meta)["tabrelay/tab"] == {"id": "a", "title": "A"}


async def test_what_was_carried_out_is_counted_like_any_other_call(rig: Rig) -> None:
    rig.plain()
    first, turn = rig.send("c1")
    second, same = rig.send("c2")
    assert (turn, same) == (2, 2), "an answer by the lane was the first frame"
    assert rig.answer(second, "c2", turn) == 3
    assert rig.answer(first, "c1", 3) == 4
    heard = rig.heard()
    assert [channel for channel, _ in heard] == ["c2", "c1"]
    assert all(said["result"]["content"][0]["text"] == "hello" for _, said in heard)
    assert not rig.hub.traffic.plain and [tab.calls for tab in rig.hub.tabs] == [0]
    # The link goes on under the next numbers, whoever speaks.
    rig.plain("c3")


async def test_an_answer_that_was_lost_with_its_socket_is_said_again(rig: Rig) -> None:
    rig.plain()
    name, turn = rig.send("c1")
    rig.answer(name, "c1", turn)
    rig.relay.link.disconnected(rig.clock())  # before it read any of that
    rig.socket.drop(1006, "")
    await rig.clock.advance(1)
    rig.socket = rig.dialer.last.open()
    await settle()
    rig.relay.accept(rig.socket)
    answers = [event for event in rig.relay.events if isinstance(event, Received) and event.channel == "c1"]
    assert len(answers) == 1 and json.loads(answers[0].payload)["result"]["content"][0]["text"] == "hello"


async def test_a_relay_that_asks_again_gets_the_answer_and_nothing_is_run_twice(rig: Rig) -> None:
    rig.plain()
    name, turn = rig.send("c1")
    rig.answer(name, "c1", turn)
    rig.heard()
    calls = len(rig.port.of("call"))
    payload = rig.request("c2")
    rig.relay.link.frames()  # it is lost, and the relay starts anew
    rig.socket.drop(1006, "")
    rig.relay = FakeRelay(rig.clock, "s2")
    await rig.clock.advance(1)
    rig.socket = rig.dialer.last.open()
    await settle()
    rig.relay.accept(rig.socket)
    rig.relay.link.send("c1", Kind.REQ, payload, rig.clock(), id=1, caller=MODERN, again=True)
    assert [channel for channel, _ in rig.heard()] == ["c1"]
    assert len(rig.port.of("call")) == calls


async def test_an_answer_while_there_is_no_socket_is_sent_later(rig: Rig) -> None:
    rig.plain()
    name, _ = rig.send("c1")
    rig.relay.link.disconnected(rig.clock())
    rig.socket.drop(1006, "")
    assert rig.express.turn() == 0
    rig.hub.receive_result(rig.port, name, PLAIN, True)
    await rig.clock.advance(1)
    rig.socket = rig.dialer.last.open()
    await settle()
    rig.relay.accept(rig.socket)
    assert any(isinstance(event, Received) and event.channel == "c1" for event in rig.relay.events)


@pytest.mark.parametrize("what", ["a number that was not due", "a channel that is open", "more than was said"])
async def test_a_call_out_of_its_turn_ends_the_socket(rig: Rig, what: str) -> None:
    rig.plain()
    rig.send("c1")
    rig.request("c1" if what == "a channel that is open" else "c2")
    seq, upto, payload = rig.carry("c1" if what == "a channel that is open" else "c2")
    seq += what == "a number that was not due"
    upto += 10 * (what == "more than was said")
    channel = "c1" if what == "a channel that is open" else "c2"
    rig.express.sent(0, seq, upto, channel, 1, "x2", 100, payload)
    assert rig.socket.closed is not None and rig.socket.closed[0] == CLOSE_PROTOCOL
    assert rig.revoked == 1 and "x2" not in rig.hub.traffic.plain


@pytest.mark.parametrize("name", ["info", "say"])
async def test_an_answer_that_the_link_would_not_have_said_yet_comes_once(rig: Rig, name: str) -> None:
    rig.plain("first", name, {"text": "x"} if name == "say" else None)
    link = rig.transport._link
    if name == "info":
        call, turn = rig.send("c1")
        link._say_ack(rig.clock())
        rig.answer(call, "c1", turn)
    else:
        turn, text = rig.express.turn(), run(rig, "c1", {"text": "y"})
        head = {"t": "msg", "s": turn, "a": rig.express.taken + 1, "c": "c1", "k": "res", "i": 1}
        rig.socket.send(json.dumps(head, separators=(",", ":")), passed_on(1, str(text), rig.own[0][2]))
        link._say_ack(rig.clock())
        rig.express.ran(True)
    assert [channel for channel, _ in rig.heard()] == ["c1"] and rig.socket.closed is None
    rig.plain("c2", name, {"text": "z"} if name == "say" else None)
    assert rig.relay.link.unacknowledged == 0


async def test_a_caller_that_leaves_takes_back_what_was_granted(rig: Rig) -> None:
    rig.plain()
    name, _ = rig.send("c1")
    rig.relay.link.close("c1", "gone", rig.clock())
    rig.relay.exchange()
    assert rig.revoked == 1 and name not in rig.hub.traffic.plain
    assert rig.port.last("cancel")["call"] == name


CHANGES: dict[str, Any] = {
    "a tool is withdrawn": lambda rig: rig.hub.receive(rig.port, {"t": "withdraw", "tools": ["info"]}),
    "a tool is offered": lambda rig: rig.hub.receive(rig.port, {"t": "offer", "tools": [{"name": "other"}]}),
    "another title": lambda rig: rig.hub.receive(rig.port, {"t": "tab", "title": "B", "visible": True}),
    "a tab freezes": lambda rig: rig.hub.receive(rig.port, {"t": "tab", "title": "A", "frozen": True}),
    "a tab comes": lambda rig: rig.hub.attach(FakePort(), {"id": "b", "title": "B", "visible": True}),
    "a tab goes": lambda rig: rig.hub.detach(rig.port),
    "somebody watches": lambda rig: rig.hub.receive(rig.port, {"t": "watch"}),
    "everything must be allowed": lambda rig: rig.hub.use_approval("all"),
    "there are static tools": lambda rig: rig.hub.use_statics(True),
    "the worker has another tool": lambda rig: tool(toolbox=rig.box, name="new")(lambda: None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_whatever_changes_takes_back_what_was_granted(rig: Rig, change: Any) -> None:
    rig.plain()
    before = rig.revoked
    change(rig)
    assert rig.revoked == before + 1
    change(rig)
    assert rig.revoked == before + 1, "there was nothing left to take back"


async def test_progress_of_a_call_takes_back_what_was_granted_and_its_answer_goes_the_ordinary_way(rig: Rig) -> None:
    rig.plain()
    name, _ = rig.send("c1")
    rig.hub.receive(rig.port, {"t": "progress", "call": name, "progress": 1})
    assert rig.revoked == 1 and name not in rig.hub.traffic.plain
    rig.hub.receive_result(rig.port, name, PLAIN, True)
    assert [channel for channel, _ in rig.heard()] == ["c1"]


async def test_grants_have_a_bound(rig: Rig) -> None:
    for n in range(MOST + 1):
        rig.express.grant(Grant(f"c{n}", MODERN, "info", "{}", None, None))
    assert rig.revoked == 1 and rig.own[-1][0] == 0


async def test_no_answer_is_written_past_others_that_wait(rig: Rig) -> None:
    rig.plain()
    _, turn = rig.send("c1")
    assert turn
    rig.socket.buffered = 10**9
    assert rig.express.turn() == 0
    rig.transport.send("first", Kind.NOTE, "{}")
    rig.socket.buffered = 0
    assert rig.express.turn() == turn


@pytest.mark.parametrize(
    "limits", [Limits(max_message=1000), Limits(replay_messages=1), Limits(replay_bytes=100_000)], ids=str
)
async def test_where_an_answer_might_not_be_kept_it_is_not_written(limits: Limits) -> None:
    rig = Rig(limits)
    await rig.connect()
    rig.request("first")
    rig.relay.exchange()
    rig.hub.receive_result(rig.port, rig.port.last("call")["call"], PLAIN, True)
    assert rig.express.turn() == 0
    await rig.transport.close()


# -- tools of the worker -----------------------------------------------------------------------------------------------


def run(rig: Rig, channel: str, arguments: dict[str, Any]) -> str | None:
    rig.request(channel, "say", arguments)
    seq, upto, payload = rig.carry(channel)
    return rig.express.run(0, seq, upto, channel, 1, 100, payload)


async def test_a_tool_of_the_worker_is_run_and_counted_when_its_answer_is_written(rig: Rig) -> None:
    rig.plain("first", "say", {"text": "x"})
    [(number, channel, meta)] = rig.own
    assert (number, channel) == (0, "first") and "tabrelay/tab" not in json.loads(meta)
    text = run(rig, "c1", {"text": 'said "so"\n'})
    assert text is not None and json.loads(text)["content"][0]["text"] == 'said "so"\n'
    head = {"t": "msg", "s": rig.express.turn(), "a": rig.express.taken + 1, "c": "c1", "k": "res", "i": 1}
    rig.socket.send(json.dumps(head, separators=(",", ":")), passed_on(1, text, meta))
    assert rig.express.ran(True) == 3
    assert [channel for channel, _ in rig.heard()] == ["c1"] and rig.ran == ["x", 'said "so"\n']


@pytest.mark.parametrize(
    ("arguments", "is_run"),
    [({"text": "object"}, True), ({"text": "x" * LONGEST}, True), ({"text": 1}, False), ({}, False)],
)
async def test_what_is_not_short_text_is_answered_the_ordinary_way(
    rig: Rig, arguments: dict[str, Any], is_run: bool
) -> None:
    rig.plain("first", "say", {"text": "x"})
    assert run(rig, "c1", arguments) == ("" if is_run else None)
    assert [channel for channel, _ in rig.heard()] == (["c1"] if is_run else [])


async def test_an_answer_acknowledges_what_came_before_it() -> None:
    rig = Rig(Limits(ack_after_messages=4))
    await rig.connect()
    rig.plain("first", "say", {"text": "x"})
    rig.plain("second")
    for n in range(3):
        rig.send(f"c{n}", grant=1)
    turn = rig.express.turn()
    text = run(rig, "own", {"text": "y"})
    assert text is not None
    head = {"t": "msg", "s": turn, "a": rig.express.taken + 1, "c": "own", "k": "res", "i": 1}
    rig.socket.send(json.dumps(head, separators=(",", ":")), passed_on(1, text, rig.own[0][2]))
    assert rig.express.ran(True) == turn + 1
    assert [channel for channel, _ in rig.heard()] == ["own"] and rig.relay.link.unacknowledged == 0
    await rig.transport.close()


async def test_an_answer_that_could_not_be_written_is_sent(rig: Rig) -> None:
    rig.plain("first", "say", {"text": "x"})
    assert run(rig, "c1", {"text": "y"})
    rig.express.ran(False)
    assert [channel for channel, _ in rig.heard()] == ["c1"]


async def test_a_tool_is_not_run_out_of_its_turn(rig: Rig) -> None:
    rig.plain("first", "say", {"text": "x"})
    rig.request("c1", "say", {"text": "y"})
    seq, upto, payload = rig.carry("c1")
    assert rig.express.run(0, seq + 1, upto, "c1", 1, 100, payload) is None
    assert rig.express.run(0, seq, upto + 9, "c1", 1, 100, payload) is None
    assert rig.ran == ["x"]
