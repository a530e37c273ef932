"""Calls that JavaScript carries out: their records in Python, also when sockets drop and when anything changes."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.mcp.call import NO_META
from tabserver.mcp.server import Server
from tabserver.tabs.routing import Destination
from tabserver.transport.reconnect import Transport
from tabserver.wire.events import Closed, Event, Received
from tabserver.wire.frames import CLOSE_PROTOCOL, Caller, Greeting, Kind
from tabserver.wire.jsonrpc import RequestId
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.worker.js_calls import MAX_GRANTS, MAX_RESULT_CHARACTERS
from tests.support.fake_clock import Clock, settle
from tests.support.fake_js_calls import FakeJsCalls
from tests.support.fake_port import FakePort
from tests.support.fake_sockets import FakeAbort, FakeDialer, FakeRelay, FakeSocket
from tests.support.server_harness import MODERN

PLAIN = '{"content":[{"type":"text","text":"hello"}]}'


class Granted(FakePort):
    """A page whose calls JavaScript may carry out."""

    reads_requests = True


class Rig:
    """A worker without its browser: transport, core, granted calls, a fake of JavaScript's part, and the relay's end of
    the link. One tool in a tab (`info`) and one in the worker (`say`)."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock, self.dialer = Clock(), FakeDialer()
        self.relay = FakeRelay(self.clock)
        self.box = Toolbox()
        self.timers: list[Any] = []
        self.js_calls = FakeJsCalls(self._write, lambda: self.clock() * 1000, "demo", "1")
        self.hub = self.js_calls.new_hub(
            self.box, lambda delay_ms, ring: self.timers.append((self.clock() + delay_ms / 1000, ring))
        )
        link: Link[str] = Link.dialer(Greeting("demo", "inst", "b"), limits or Limits())
        self.transport = Transport(
            link,
            self.dialer,
            clock=self.clock,
            new_abort=FakeAbort,
            jitter=lambda: 0.5,
            call_later=self.clock.call_later,
            new_receiver=lambda send: lambda event: self.core.receive(event),
            sync=self.js_calls.grants.sync,
        )
        self.core = Server("demo", "1", self.hub, self.transport.session.send)
        self.js_calls.use_worker(self.hub, self.core, self.transport.session)
        self.port = self.page("a")
        self.hub.receive(self.port, {"t": "offer", "tools": [{"name": "info"}]})
        self.ran: list[str] = []

        @tool(toolbox=self.box)
        def say(text: str) -> Any:
            self.ran.append(text)
            if text == "vanish":
                self.box.remove("say")
            if text == "speak":
                self.transport.session.send("open", Kind.NOTE, '{"a":1}')
            if text == "raise":
                raise ValueError(text)
            return {"a": 1} if text == "object" else text

        self.socket: FakeSocket

    def _later(self, delay_ms: float, ring: Callable[[], None]) -> None:
        self.timers.append((self.clock() + delay_ms / 1000, ring))

    def page(self, id: str) -> Granted:
        port = Granted()
        self.js_calls.listen(port)
        self.hub.attach(port, {"id": id, "title": id.upper(), "visible": True, "watches": False})
        return port

    def _write(self, seq: int, ack: int, channel: str, id: RequestId, payload: str) -> None:
        head = {"t": "msg", "s": seq, "a": ack, "c": channel, "k": "res", "i": id}
        self.socket.send(json.dumps(head, separators=(",", ":")), payload)

    async def connect(self) -> None:
        await self.transport.start()
        await settle()
        await self.dialled()

    async def dialled(self) -> None:
        self.js_calls.use()
        self.socket = self.dialer.last.open()
        await settle()
        self.relay.accept(self.socket)

    async def drop(self) -> None:
        """Close the socket, losing what the relay has not read, and open another one."""
        dials = len(self.dialer.dials)
        self.relay.link.disconnected(self.clock())
        self.js_calls.sync()
        self.socket.drop(1006, "")
        while len(self.dialer.dials) == dials:
            await self.clock.advance(1)
        await self.dialled()

    # -- the relay's part ----------------------------------------------------------------------------------------------

    def send(
        self, channel: str, name: str = "info", arguments: Any = None, again: bool = False, id: RequestId = 1
    ) -> None:
        params = {"name": name, "arguments": arguments or {}, "_meta": {}}
        payload = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        self.relay.link.send(channel, Kind.REQ, payload, self.clock(), id=id, caller=MODERN, again=again)
        self.deliver()

    def deliver(self) -> None:
        """Deliver the relay's frames: JavaScript carries them out, or Python receives them."""
        for header, payload in self.relay.link.frames():
            self.take(header, payload)

    def take(self, header: str, payload: str | None) -> None:
        head = json.loads(header)
        caller = Caller.from_dict(head["o"]) if "o" in head else None
        event: Any = Closed("", "")
        if head.get("k") == "req" and payload is not None:
            event = Received(head["c"], Kind.REQ, head["i"], None, payload, caller, "d" in head)

        def receive() -> int:
            self.socket.deliver(header, payload)
            return self.transport.session.last_received

        self.js_calls.receive(event, head.get("s", 0), head.get("a", 0), len(header) + len(payload or ""), receive)

    def received(self) -> list[tuple[str, Any]]:
        """What the relay has received since the last call: channels and messages."""
        fresh: list[Event] = []
        while True:
            for header, payload in self.socket.sent[self.relay._read :]:
                self.relay._read += 1
                self.relay.link.receive(header, payload, self.clock())
            events = self.relay.link.events()
            fresh += events
            self.deliver()
            if not events and self.relay._read == len(self.socket.sent):
                break
        self.relay.events += fresh
        return [(event.channel, json.loads(event.payload)) for event in fresh if isinstance(event, Received)]

    def answer(self, call: int = -1, text: str = PLAIN) -> bool:
        """The page answers a call. Returns whether JavaScript wrote the answer."""
        name = self.port.of("call")[call]["call"]
        is_carried = self.js_calls.answer(self.port, name, text, True)
        if not is_carried:
            self.hub.receive_result(self.port, name, text, True)
        return is_carried

    def plain(self, channel: str = "first", name: str = "info", arguments: Any = None) -> None:
        """A call with its answer."""
        self.send(channel, name, arguments)
        if name == "info":
            self.answer()
        self.received()

    @property
    def unrecorded(self) -> int:
        return self.js_calls._request_count + len(self.js_calls._answers)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    await rig.connect()
    rig.plain("w1")
    rig.plain("w2", "say", {"text": "x"})
    rig.ran.clear()
    assert rig.js_calls.carried == 0
    yield rig
    await rig.transport.close()


async def test_nothing_is_carried_before_a_call_was_plain() -> None:
    rig = Rig()
    await rig.connect()
    rig.plain()
    assert rig.js_calls.carried == 0
    rig.plain("c1")
    assert rig.js_calls.carried == 2
    await rig.transport.close()


async def test_what_was_carried_out_is_counted_like_any_other_call(rig: Rig) -> None:
    rig.send("c1")
    rig.send("c2")
    rig.send("c3", "say", {"text": 'said "so"\n'})
    assert rig.answer(-1) and rig.answer(-2)
    assert rig.unrecorded == 6 and rig.transport.session.last_received == 2, "Python has no record of it"
    received = rig.received()
    assert [channel for channel, _ in received] == ["c3", "c2", "c1"]
    assert [text["result"]["content"][0]["text"] for _, text in received] == ['said "so"\n', "hello", "hello"]
    assert received[1][1]["result"]["_meta"]["tabrelay/tab"] == {"id": "a", "title": "A"}
    assert "tabrelay/tab" not in received[0][1]["result"]["_meta"]
    rig.js_calls.sync()
    assert rig.transport.session.last_received == 5 and rig.relay.link.unacknowledged == 0
    assert not rig.hub.calls.running and [tab.calls for tab in rig.hub.tabs] == [0]
    # The link continues with the next sequence numbers, whichever side writes.
    rig.plain("c4")
    assert rig.socket.closed is None


async def test_a_call_that_is_still_under_way_is_counted_as_one(rig: Rig) -> None:
    rig.send("c1")
    rig.js_calls.sync()
    assert len(rig.hub.calls.running) == 1 and [tab.calls for tab in rig.hub.tabs] == [1]
    assert rig.answer()
    rig.js_calls.sync()
    assert not rig.hub.calls.running and [tab.calls for tab in rig.hub.tabs] == [0]
    assert [channel for channel, _ in rig.received()] == ["c1"]


@pytest.mark.parametrize("name", ["info", "say"])
@pytest.mark.parametrize("is_recorded", [True, False])
async def test_an_answer_that_was_lost_with_its_socket_is_sent_again(rig: Rig, name: str, is_recorded: bool) -> None:
    rig.send("c1", name, {"text": "y"} if name == "say" else None)
    if name == "info":
        assert rig.answer()
    if is_recorded:
        rig.js_calls.sync()
    await rig.drop()  # before the relay read any of that
    answers = [event for event in rig.relay.events if isinstance(event, Received) and event.channel == "c1"]
    expected = "y" if name == "say" else "hello"
    assert [json.loads(each.payload)["result"]["content"][0]["text"] for each in answers] == [expected]


async def test_a_relay_that_asks_again_gets_the_answer_and_nothing_is_run_twice(rig: Rig) -> None:
    for channel, name in (("c1", "info"), ("c2", "say")):
        rig.send(channel, name, {"text": "once"} if name == "say" else None)
    rig.answer()
    rig.received()
    calls = len(rig.port.of("call"))
    rig.relay = FakeRelay(rig.clock, "s2")
    await rig.clock.advance(0)
    rig.js_calls.sync()
    rig.socket.drop(1006, "")
    await rig.clock.advance(1)
    await rig.dialled()
    rig.send("c1", again=True)
    rig.send("c2", "say", {"text": "once"}, again=True)
    assert [channel for channel, _ in rig.received()] == ["c1", "c2"]
    assert len(rig.port.of("call")) == calls and rig.ran == ["once"]


async def test_an_answer_while_there_is_no_socket_is_sent_later(rig: Rig) -> None:
    rig.send("c1")
    rig.relay.link.disconnected(rig.clock())
    rig.js_calls.sync()
    rig.socket.drop(1006, "")
    assert not rig.answer()
    await rig.clock.advance(1)
    await rig.dialled()
    assert any(isinstance(event, Received) and event.channel == "c1" for event in rig.relay.events)


async def test_an_answer_is_not_lost_when_python_itself_gives_up_the_socket(rig: Rig) -> None:
    rig.send("c1", "say", {"text": "y"})
    rig.relay.link.disconnected(rig.clock())  # it has read nothing of that, and sends nothing more
    await rig.clock.advance(60)
    assert rig.socket.closed is not None and rig.unrecorded == 0
    await rig.dialled()
    assert [event.channel for event in rig.relay.events if isinstance(event, Received)][-1] == "c1"


async def test_calls_are_recorded_before_the_connection_is_closed(rig: Rig) -> None:
    rig.send("c1", "say", {"text": "y"})
    await rig.transport.close()
    assert rig.unrecorded == 0 and [channel for channel, _ in rig.received()] == ["c1"]


async def test_a_message_gets_the_next_number_after_written_answers_are_recorded(rig: Rig) -> None:
    rig.relay.link.open("open", MODERN, rig.clock())
    rig.deliver()
    rig.plain("w3", "say", {"text": "x"})
    rig.send("c1", "say", {"text": "y"})
    rig.transport.session.send("open", Kind.NOTE, '{"a":1}')
    rig.send("c2", "say", {"text": "z"})
    assert [channel for channel, _ in rig.received()] == ["c1", "open", "c2"] and rig.socket.closed is None


async def test_what_waits_for_a_socket_that_is_full_keeps_its_number(rig: Rig) -> None:
    rig.relay.link.open("open", MODERN, rig.clock())
    rig.deliver()
    rig.plain("w3", "say", {"text": "x"})
    rig.socket.buffered = 10**9
    rig.transport.session.send("open", Kind.NOTE, '{"a":1}')
    rig.socket.buffered = 0
    rig.send("c1", "say", {"text": "y"})
    await rig.clock.advance(1)
    assert [channel for channel, _ in rig.received()] == ["open", "c1"] and rig.socket.closed is None


@pytest.mark.parametrize("name", ["info", "say"])
@pytest.mark.parametrize("what", ["a channel that is open", "more than was said"])
async def test_a_call_that_must_not_come_ends_the_socket(rig: Rig, what: str, name: str) -> None:
    rig.send("c1")
    rig.js_calls.sync()
    channel = "c1" if what == "a channel that is open" else "c2"
    params = {"name": name, "arguments": {"text": "y"} if name == "say" else {}, "_meta": {}}
    payload = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    upto = 10 if what == "more than was said" else 0
    head = {"t": "msg", "s": rig.js_calls.next, "a": upto, "c": channel, "k": "req", "i": 1, "o": MODERN.to_dict()}
    header = json.dumps(head, separators=(",", ":")).replace(
        json.dumps(MODERN.to_dict(), separators=(",", ":")), MODERN.text
    )
    rig.take(header, payload)
    rig.js_calls.sync()
    assert rig.socket.closed is not None and rig.socket.closed[0] == CLOSE_PROTOCOL


async def test_a_number_that_was_not_due_is_for_python(rig: Rig) -> None:
    rig.send("c1")
    header, payload = '{"t":"msg","s":9,"a":0,"c":"c9","k":"req","i":1,"o":' + MODERN.text + "}", rig_payload()
    before = rig.js_calls.carried
    rig.take(header, payload)
    assert rig.js_calls.carried == before
    assert rig.socket.closed is not None and rig.socket.closed[0] == CLOSE_PROTOCOL


def rig_payload() -> str:
    params: dict[str, Any] = {"name": "info", "arguments": {}, "_meta": {}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


async def test_a_caller_that_leaves_takes_back_what_was_granted(rig: Rig) -> None:
    rig.send("c1")
    name = rig.port.last("call")["call"]
    rig.relay.link.close("c1", "gone", rig.clock())
    rig.deliver()
    assert rig.js_calls.revoked == 1 and name not in rig.hub.calls.running
    assert rig.port.last("cancel")["call"] == name


CHANGES: dict[str, Any] = {
    "a tool is withdrawn": lambda rig: rig.hub.receive(rig.port, {"t": "withdraw", "tools": ["info"]}),
    "a tool is offered": lambda rig: rig.hub.receive(rig.port, {"t": "offer", "tools": [{"name": "other"}]}),
    "another title": lambda rig: rig.hub.receive(rig.port, {"t": "tab", "title": "B", "visible": True}),
    "a tab freezes": lambda rig: rig.hub.receive(rig.port, {"t": "tab", "title": "A", "frozen": True}),
    "a tab comes": lambda rig: rig.hub.attach(FakePort(), {"id": "b", "title": "B", "visible": True}),
    "a tab goes": lambda rig: rig.hub.detach(rig.port),
    "a page watches": lambda rig: rig.hub.receive(rig.port, {"t": "watch"}),
    "everything must be allowed": lambda rig: rig.hub.use_approval("all"),
    "there are static tools": lambda rig: rig.hub.use_static_tools(True),
    "the worker has another tool": lambda rig: tool(toolbox=rig.box, name="new")(lambda: None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_whatever_changes_takes_back_what_was_granted(rig: Rig, change: Any) -> None:
    rig.send("c1")
    before = rig.js_calls.revoked
    change(rig)
    assert rig.js_calls.revoked == before + 1 and rig.unrecorded == 0
    change(rig)
    assert rig.js_calls.revoked == before + 1, "there was nothing left to take back"


async def test_a_tab_that_falls_silent_fails_also_calls_that_python_did_not_know_of(rig: Rig) -> None:
    rig.send("c1")
    rig.js_calls.sync()
    rig.send("c2")
    while not (cancelled := rig.port.of("cancel")):
        due, ring = min(rig.timers, key=lambda timer: timer[0])
        rig.timers.remove((due, ring))
        rig.clock.now = max(rig.clock.now, due)
        ring()
    assert len(cancelled) == 2 and rig.unrecorded == 0
    assert [(channel, text["result"]["isError"]) for channel, text in rig.received()] == [("c1", True), ("c2", True)]


async def test_progress_of_a_call_ends_its_grant_and_its_answer_takes_the_regular_path(rig: Rig) -> None:
    rig.send("c1")
    name = rig.port.last("call")["call"]
    rig.hub.receive(rig.port, {"t": "progress", "call": name, "progress": 1})
    assert rig.js_calls.revoked == 1 and not rig.hub.calls.running[name].is_granted
    assert not rig.answer()
    assert [channel for channel, _ in rig.received()] == ["c1"]


async def test_grants_have_a_bound(rig: Rig) -> None:
    for n in range(MAX_GRANTS + 1):
        call = rig.core.adopt(f"c{n}", MODERN, 1, NO_META, rig_payload())
        rig.js_calls.grants.grant(call, Destination(None, "info"), None)
    assert rig.js_calls.revoked == 1


async def test_no_answer_is_written_past_others_that_wait(rig: Rig) -> None:
    rig.send("c1")
    seq = rig.js_calls.recorder.next_seq()
    assert seq
    rig.socket.buffered = 10**9
    assert rig.js_calls.recorder.next_seq() == 0
    rig.socket.buffered = 0
    assert rig.js_calls.recorder.next_seq() == seq


@pytest.mark.parametrize(
    "limits", [Limits(max_message=1000), Limits(replay_messages=60), Limits(replay_bytes=500_000)], ids=str
)
async def test_where_answers_might_not_be_kept_none_is_written(limits: Limits) -> None:
    rig = Rig(limits)
    await rig.connect()
    rig.plain()
    assert rig.js_calls.recorder.next_seq() == 0
    rig.send("c1")
    assert not rig.answer()
    assert [channel for channel, _ in rig.received()] == ["c1"]
    await rig.transport.close()


# -- tools of the worker -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_text", "is_error"),
    [("object", True, False), ("x" * MAX_RESULT_CHARACTERS, True, False), ("raise", True, True), (1, False, True)],
)
async def test_what_is_not_short_text_takes_the_regular_path(
    rig: Rig, text: Any, is_text: bool, is_error: bool
) -> None:
    rig.send("c1", "say", {"text": text})
    assert rig.ran == ([text] if is_text else []) and rig.unrecorded == 0
    [(channel, text)] = rig.received()
    assert channel == "c1" and bool(text["result"].get("isError")) is is_error


async def test_a_tool_that_sends_a_message_itself_is_answered_after_it(rig: Rig) -> None:
    rig.relay.link.open("open", MODERN, rig.clock())
    rig.deliver()
    rig.plain("w3", "say", {"text": "x"})
    rig.send("c1", "say", {"text": "y"})
    rig.send("c2", "say", {"text": "speak"})
    rig.send("c3", "say", {"text": "z"})
    assert [channel for channel, _ in rig.received()] == ["c1", "open", "c2", "c3"] and rig.socket.closed is None


async def test_a_tool_that_takes_itself_away_is_run_once(rig: Rig) -> None:
    rig.send("c1", "say", {"text": "vanish"})
    rig.send("c2", "say", {"text": "y"})
    received = rig.received()
    assert rig.ran == ["vanish"] and [channel for channel, _ in received] == ["c1", "c2"]
    assert received[0][1]["result"]["content"][0]["text"] == "vanish" and "error" in received[1][1]


async def test_answers_acknowledge_what_came_before_them() -> None:
    rig = Rig(Limits(ack_after_messages=4))
    await rig.connect()
    rig.plain("first", "say", {"text": "x"})
    rig.plain("second")
    for n in range(3):
        rig.send(f"c{n}")
    rig.send("own", "say", {"text": "y"})
    before = len(rig.socket.sent)
    rig.js_calls.sync()
    assert len(rig.socket.sent) == before, "there is nothing left to acknowledge"
    assert [channel for channel, _ in rig.received()] == ["own"] and rig.relay.link.unacknowledged == 0
    await rig.transport.close()


async def test_calls_that_tabs_have_are_acknowledged_when_there_are_many_or_after_a_while(rig: Rig) -> None:
    for n in range(15):
        rig.send(f"c{n}")
    rig.js_calls.sync()
    rig.received()
    assert rig.relay.link.unacknowledged == 15
    rig.send("c15")
    rig.js_calls.sync()
    rig.received()
    assert rig.relay.link.unacknowledged == 0
    rig.send("c16")
    rig.js_calls.sync()
    await rig.clock.advance(1)
    rig.received()
    assert rig.relay.link.unacknowledged == 0


# -- random sequences --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
async def test_every_call_is_run_once_and_answered_once_whatever_happens(seed: int) -> None:
    """Calls, answers in any order, drops, changes, notifications and moments at which Python records, in random
    order."""
    dice = random.Random(seed)
    rig = Rig()
    await rig.connect()
    rig.relay.link.open("open", MODERN, rig.clock())
    rig.deliver()
    answered: Counter[str] = Counter()
    waiting: dict[str, str] = {}
    sent = 0
    for _ in range(120):
        step = dice.choices(
            ("say", "info", "answer", "sync", "receive", "note", "title", "drop", "time"),
            (20, 20, 20, 6, 6, 4, 3, 2, 2),
        )[0]
        if step in ("say", "info"):
            sent += 1
            before = len(rig.port.of("call"))
            rig.send(f"c{sent}", step, {"text": f"t{sent}"} if step == "say" else None)
            calls = rig.port.of("call")[before:]
            assert len(calls) == (step == "info")
            waiting |= {call["call"]: f"c{sent}" for call in calls}
        elif step == "answer" and waiting:
            name = dice.choice(list(waiting))
            text = json.dumps({"content": [{"type": "text", "text": waiting.pop(name)}]}, separators=(",", ":"))
            if not rig.js_calls.answer(rig.port, name, text, True):
                rig.hub.receive_result(rig.port, name, text, True)
        elif step == "sync":
            rig.js_calls.sync()
        elif step == "note":
            rig.transport.session.send("open", Kind.NOTE, '{"jsonrpc":"2.0"}')
        elif step == "title":
            rig.hub.receive(rig.port, {"t": "tab", "title": f"T{sent}", "visible": True})
        elif step == "drop":
            await rig.drop()
        elif step == "time":
            await rig.clock.advance(0.5)
        else:
            rig.received()
    for name in list(waiting):
        text = json.dumps({"content": [{"type": "text", "text": waiting.pop(name)}]}, separators=(",", ":"))
        if not rig.js_calls.answer(rig.port, name, text, True):
            rig.hub.receive_result(rig.port, name, text, True)
    await rig.drop()
    rig.received()
    rig.js_calls.sync()
    for event in rig.relay.events:
        if isinstance(event, Received) and event.kind is Kind.RES:
            answered[event.channel] += 1
            text = json.loads(event.payload)["result"]["content"][0]["text"]
            assert text in (event.channel, "t" + event.channel[1:])
    assert answered == Counter(f"c{n + 1}" for n in range(sent))
    assert len(rig.ran) == len(set(rig.ran)) and not rig.hub.calls.running
    assert rig.js_calls.carried > 10 and rig.transport.is_connected
    await rig.transport.close()


async def test_python_knows_how_much_a_tab_can_take_that_javascript_sent_its_calls(rig: Rig) -> None:
    """A call that is not plain needs no ping then, although another tab could take it."""
    rival = rig.page("b")
    rig.hub.receive(rival, {"t": "offer", "tools": [{"name": "info"}]})
    rig.port = rival  # it attached last, and is in front
    rig.plain("p1")
    for number in range(4):
        await rig.clock.advance(0.05)
        rig.plain(f"c{number}")
    assert rig.js_calls.carried == 8
    rig.send("again", again=True)
    assert len(rival.of("call")) == 6 and not rival.of("ping")
