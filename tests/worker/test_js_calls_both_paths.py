"""Equality of a call's two paths in the worker: callers and pages see no difference, whichever path carries it out."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tabserver.handlers.context import Context
from tabserver.handlers.questions import Elicit, InputRequired
from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.rpc import Refusal
from tabserver.tabs.hub import Hub
from tabserver.wire.errors import MessageTooLarge
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Acp, Kind
from tabserver.wire.jsonrpc import RequestId
from tests.support.fake_js_calls import FakeJsCalls
from tests.support.fake_port import FakePort
from tests.support.server_harness import MODERN, READY, CoreHarness

PLAIN = '{"content":[{"type":"text","text":"hello"}]}'
DELETE = {"name": "delete", "annotations": {"destructiveHint": True}}
ASKS = replace(MODERN, capabilities={"elicitation": {"form": {}}})
TRACE = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}


class OpenSession:
    """A link session that accepts every frame and forwards every answer."""

    def __init__(self, send: Callable[..., None]) -> None:
        self.send = send

    def is_open(self, channel: str) -> bool:
        return False

    def next_seq(self, frames: int, characters: int) -> int:
        return 1

    def receive_request(self, upto: int, channel: str, id: RequestId, size: int) -> None: ...

    def begin_request(self, channel: str, id: RequestId) -> None: ...

    def record(self, count: int, size: int, upto: int, acked: int, answers: list[Any]) -> None: ...

    def flush(self) -> None: ...


class ClosedPort(FakePort):
    """A page whose port is closed."""

    def post(self, text: str) -> None:
        raise OSError("the port is closed")


@dataclass
class Span:
    """Arguments with a validation rule."""

    start: int
    end: int

    def __post_init__(self) -> None:
        assert self.start <= self.end, "it ends before it starts"


class Rig:
    """A core and a hub with two tabs; records all messages to callers and pages."""

    def __init__(self, reads_requests: bool = False, has_js_calls: bool = False) -> None:
        self.now_ms = 1000.0
        self.ran: list[str] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        box = Toolbox()
        self.js_calls = None
        if has_js_calls:
            self.js_calls = FakeJsCalls(self._write, lambda: self.now_ms, "demo", "1.2", longest=1000)
            self.hub = self.js_calls.new_hub(box, self._later)
        else:
            self.hub = Hub(box, now_ms=lambda: self.now_ms, defer=lambda due: None, later=self._later)
        self.bench = CoreHarness(self.hub)
        if self.js_calls is not None:
            session: Any = OpenSession(self.bench._send)
            self.js_calls.use_worker(self.hub, self.bench.server, session)
            self.bench.receive = self._receive
        self.a, self.b = FakePort(), FakePort()
        self._ponged = {self.a: 0, self.b: 0}
        for port, id in ((self.a, "a"), (self.b, "b")):
            port.reads_requests = reads_requests
            if self.js_calls is not None:
                self.js_calls.listen(port)
            self.hub.attach(port, {"id": id, "title": id.upper(), "visible": id == "a", "watches": False})
        self.hub.receive(self.a, {"t": "offer", "tools": [{"name": "info"}, {"name": "same"}, DELETE]})
        self.hub.receive(self.b, {"t": "offer", "tools": [{"name": "same"}, {"name": "info", "title": "Other"}]})
        self._offer(box)
        self._warm_up()

    def _warm_up(self) -> None:
        """Makes calls like the tested ones beforehand."""
        for n, (name, arguments) in enumerate((("info", {}), ("same", {}), ("say", {"text": "x"}), ("structured", {}))):
            self.call(name, arguments, f"w{n}")
            if name in ("info", "same"):
                self.page_sends("result")
        self.bench.sent.clear()
        self.a.sent.clear()
        self.ran.clear()

    def _receive(self, event: Opened | Received[str] | Closed) -> None:
        """Let the fake JavaScript receive the event: every frame has the sequence number that is due."""
        assert self.js_calls is not None
        seq = self.js_calls.next

        def receive() -> int:
            self.bench.server.receive(event)
            return seq

        self.js_calls.receive(event, seq, 0, 0, receive)

    def _write(self, seq: int, ack: int, channel: str, id: RequestId, payload: str) -> None:
        self.bench._send(channel, Kind.RES, payload, id=id)

    def _later(self, delay_ms: float, ring: Callable[[], None]) -> None:
        self.timers.append((self.now_ms + delay_ms, ring))

    def _offer(self, box: Toolbox) -> None:
        ran = self.ran

        @tool(toolbox=box)
        def say(text: str, times: int = 1) -> str:
            ran.append(text)
            return text * times

        @tool(toolbox=box)
        def fail(text: str) -> str:
            ran.append(text)
            raise RuntimeError(text)

        @tool(toolbox=box)
        def cut(span: Span) -> str:
            ran.append("cut")
            return str(span)

        @tool(toolbox=box)
        def withdraw_itself() -> str:
            ran.append("withdraw_itself")
            box.remove("withdraw_itself")
            return "gone"

        @tool(toolbox=box)
        def leave() -> None:
            raise SystemExit(1)

        @tool(toolbox=box)
        def interrupt() -> None:
            raise KeyboardInterrupt

        @tool(toolbox=box)
        def refuse() -> None:
            raise Refusal(-32000, "no", {"a": 1})

        @tool(toolbox=box)
        def strange() -> Any:
            ran.append("strange")
            return {"content": [], "structuredContent": math.nan}

        @tool(toolbox=box)
        def structured() -> Any:
            return {"a": 1}

        @tool(toolbox=box)
        def require() -> InputRequired:
            ran.append("require")
            return InputRequired({"name": Elicit("Who?", {"type": "object", "properties": {"a": {"type": "string"}}})})

        self._offer_asynchronous(box)

    def _offer_asynchronous(self, box: Toolbox) -> None:
        ran = self.ran

        @tool(toolbox=box)
        async def slow(text: str) -> str:
            await asyncio.sleep(0)
            return text

        @tool(toolbox=box)
        def later(text: str) -> Any:
            async def answer() -> str:
                ran.append(text)
                await asyncio.sleep(0)
                return text

            return answer()

        @tool(toolbox=box)
        def whose(ctx: Context) -> str:
            return ctx.caller.principal

    def call(self, name: str, arguments: Any = None, channel: str = "m", meta: Any = None, **more: Any) -> Any:
        params = {"name": name, "arguments": arguments or {}, "_meta": meta or {}} | more.pop("params", {})
        answer = self.bench.modern("tools/call", params, channel=channel, **more)
        self._read()
        return answer

    def _read(self) -> None:
        """The pages read their messages."""
        for port in (self.a, self.b):
            while len(port.of("ping")) > self._ponged[port]:
                self._ponged[port] += 1
                self.hub.receive(port, {"t": "pong"})

    def page_sends(self, kind: str, port: FakePort | None = None, call: int = -1, **more: Any) -> None:
        """A page's message about the last call that it received, or about another."""
        port = port or self.a
        number = port.of("call")[call]["call"]
        if kind == "result":
            self.answer(port, number, more.get("json", PLAIN), more.get("is_plain", True))
        else:
            self.hub.receive(port, {"t": kind, "call": number, **more})

    def answer(self, port: FakePort, number: str, text: str, is_plain: bool = True) -> None:
        if self.js_calls is None or not self.js_calls.answer(port, number, text, is_plain):
            self.hub.receive_result(port, number, text, is_plain)

    def pass_time(self, seconds: float) -> None:
        if self.js_calls is not None:
            self.js_calls.sync()
        self.now_ms += seconds * 1000
        due = [timer for timer in self.timers if timer[0] <= self.now_ms]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_ms]
        for _, ring in due:
            ring()

    def transcript(self) -> Any:
        """All messages. Call ids are replaced by their order, because Python and JavaScript number calls
        differently."""
        if self.js_calls is not None:
            self.js_calls.sync()
        numbers: dict[str, int] = {}

        def transcripts(message: Mapping[str, Any]) -> Any:
            call = {"call": numbers.setdefault(message["call"], len(numbers))} if "call" in message else {}
            given = {"arguments": message["request"]["params"]["arguments"]} if "request" in message else {}
            return {key: value for key, value in {**message, **call, **given}.items() if key != "request"}

        # Each sealed state has a different number.
        sent = json.loads(re.sub(r'("requestState": ")[^"]+', r"\1", json.dumps(self.bench.sent)))
        pages = [[transcripts(message) for message in port.sent] for port in (self.a, self.b)]
        return sent, pages, self.ran, [tab.calls for tab in self.hub.known_tabs.values()]


Scenario = Callable[[Rig], Awaitable[None] | None]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


@scenario
def answers_in_any_order(rig: Rig) -> None:
    for n, name in enumerate(("info", "same", "info")):
        rig.call(name, {"n": n, "text": 'ä "quoted" \\ '}, f"c{n}", id=f'id "{n}"' if n else 7)
    for n in (2, 0, 1):
        rig.page_sends("result", call=n)
    rig.call("info", channel="c9")
    rig.page_sends("result")


@scenario
def results_that_must_be_read(rig: Rig) -> None:
    for n, text in enumerate(('{"content":[],"isError":true}', "null", '{"content":[],"_meta":{"x":1}}', PLAIN)):
        rig.call("info", channel=f"c{n}")
        rig.page_sends("result", json=text, is_plain=False)


@scenario
def a_result_twice_and_one_of_another_tab(rig: Rig) -> None:
    rig.call("info")
    rig.answer(rig.b, rig.a.last("call")["call"], PLAIN)
    rig.page_sends("result")
    rig.page_sends("result")
    rig.page_sends("progress", progress=1)


@scenario
def a_result_that_is_too_large(rig: Rig) -> None:
    def refuse(kind: Kind, text: str) -> None:
        if len(text) > 1000:
            raise MessageTooLarge("too much")

    rig.bench.refuse = refuse
    rig.call("info")
    rig.page_sends("result", json=json.dumps({"content": [{"type": "text", "text": "x" * 2000}]}))
    rig.call("say", {"text": "y" * 2000}, "n")


@scenario
def an_error(rig: Rig) -> None:
    rig.call("info")
    rig.page_sends("error", message="no")
    rig.call("info", channel="n")
    rig.page_sends("error", message="no", code=-32000, data={"a": 1}, name="McpError")


@scenario
def progress_and_log(rig: Rig) -> None:
    rig.call("info", meta={"progressToken": "p"})
    rig.page_sends("progress", progress=1, total=2)
    rig.page_sends("result")
    rig.call("info", channel="n")
    rig.page_sends("progress", progress=1)
    rig.page_sends("log", level="error", data="lost")
    rig.page_sends("result")
    level = {"io.modelcontextprotocol/logLevel": "info"}
    for n in range(2):
        rig.call("info", channel=f"o{n}", meta=level)
        rig.page_sends("log", level="debug", data="dropped")
        rig.page_sends("log", level="error", data="forwarded")
        rig.page_sends("result")


@scenario
def a_page_that_asks_without_waiting(rig: Rig) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}}
    rig.call("info", caller=ASKS)
    rig.page_sends("required", requests={"who": question})
    assert len(rig.bench.sent) == 1


@scenario
def callers_that_leave(rig: Rig) -> None:
    rig.call("info", channel="c1")
    rig.call("info", channel="c2")
    rig.bench.close("c1", "gone")
    rig.page_sends("result", call=0)
    rig.page_sends("result", call=1)


@scenario
def a_channel_that_is_opened_again(rig: Rig) -> None:
    rig.call("info")
    rig.call("same")
    rig.call("say", {"text": "x"})
    rig.page_sends("result", call=0)
    rig.page_sends("result", call=1)


@scenario
def another_request_on_the_channel(rig: Rig) -> None:
    rig.call("info")
    rig.bench.request("tools/call", {"name": "same", "arguments": {}, "_meta": {}}, id=2, channel="m")
    rig.bench.request("tools/call", {"name": "same", "arguments": {}, "_meta": {}}, id=1, channel="m")
    rig.page_sends("result")
    rig.page_sends("result", call=0)


@scenario
def tabs_that_go(rig: Rig) -> None:
    for n, returns in enumerate((False, True)):
        rig.call("same", channel=f"a{n}")
        rig.call("say", {"text": "here"}, f"b{n}")
        rig.hub.detach(rig.a, returns=returns)
        rig.call("same", channel=f"c{n}")
        rig.pass_time(100)
        rig.page_sends("result", rig.b)
        rig.hub.attach(rig.a, {"id": "a", "title": "A", "visible": True, "watches": False})
        rig.hub.receive(rig.a, {"t": "offer", "tools": [{"name": "same"}]})


@scenario
def tabs_that_fall_silent(rig: Rig) -> None:
    rig.call("info")
    for _ in range(10):
        rig.pass_time(15)
    rig.call("info", channel="n")
    rig.call("same", channel="o")
    rig.hub.receive(rig.a, {"t": "pong"})
    rig.call("info", channel="p")
    rig.page_sends("result", call=0)
    rig.page_sends("result")


@scenario
def tabs_that_freeze(rig: Rig) -> None:
    rig.call("info")
    rig.hub.receive(rig.a, {"t": "tab", "title": "A", "visible": False, "frozen": True})
    rig.call("info", channel="n")
    rig.page_sends("result")
    rig.call("info", channel="o")
    rig.page_sends("result")


@scenario
def a_page_watches(rig: Rig) -> None:
    rig.call("info", channel="c1")
    rig.now_ms += 5
    rig.hub.receive(rig.b, {"t": "watch"})
    rig.page_sends("result")
    rig.call("info", channel="c2")
    rig.page_sends("result")
    rig.call("say", {"text": "x"}, "c3")


@scenario
def the_front_tab_gets_it_and_reports_its_current_title(rig: Rig) -> None:
    rig.call("same", channel="c1")
    rig.hub.receive(rig.b, {"t": "tab", "title": "B", "visible": True, "focused": True})
    rig.call("same", channel="c2")
    rig.hub.receive(rig.a, {"t": "tab", "title": "Another", "visible": False})
    rig.page_sends("result", rig.a)
    rig.page_sends("result", rig.b)


@scenario
def tools_that_come_and_go(rig: Rig) -> None:
    rig.call("info", channel="c1")
    rig.hub.receive(rig.a, {"t": "withdraw", "tools": ["info"]})
    rig.call("info", channel="c2")
    rig.page_sends("progress", progress=1)
    rig.page_sends("result")
    rig.call("say", {"text": "x"}, "c3")
    suffixed = next(name for each in rig.hub.tools() if (name := each["name"]).startswith("info"))
    rig.call(suffixed, channel="c4")
    rig.page_sends("result", rig.b)


@scenario
def a_tool_that_takes_itself_away(rig: Rig) -> None:
    for n in range(3):
        rig.call("withdraw_itself", channel=f"c{n}")


@scenario
def names_with_a_suffix(rig: Rig) -> None:
    for n, name in enumerate(each["name"] for each in rig.hub.tools() if each["name"].startswith("info")):
        rig.call(name, channel=f"c{n}")
    rig.page_sends("result", rig.a)
    rig.page_sends("result", rig.b)


@scenario
def what_the_user_must_allow(rig: Rig) -> None:
    rig.call("delete", channel="c1")
    rig.hub.receive(rig.a, {"t": "approval", "call": rig.a.last("approve")["call"], "decision": "once"})
    rig.page_sends("result")
    rig.call("info", channel="c2")
    rig.page_sends("result")
    rig.hub.use_approval("all")
    rig.call("info", channel="c3")
    rig.call("say", {"text": "x"}, "c4")
    rig.hub.use_approval("none")
    rig.call("delete", channel="c5")
    rig.page_sends("result")
    rig.hub.use_approval("page")
    rig.hub.attach(rig.a, {"id": "a", "title": "A", "visible": True, "watches": False, "approve": ["info", "say"]})
    rig.call("info", channel="c6")
    rig.call("say", {"text": "x"}, "c7")


@scenario
def tabs_by_name_and_pins(rig: Rig) -> None:
    rig.hub.use_static_tools(True)
    rig.call("same", channel="c1", meta={"tabrelay/tab": "b"})
    rig.call("same", {"_tab": "b"}, "c2")
    rig.call("same", channel="c3", caller=replace(MODERN, tab="b"))
    rig.call("same", channel="c4", meta={"tabrelay/pin": True})
    rig.call("tabs_list", channel="c5")
    for n in range(len(rig.b.of("call"))):
        rig.page_sends("result", rig.b, call=n)
    rig.page_sends("result", rig.a)


@scenario
def callers_of_all_kinds(rig: Rig) -> None:
    acp = Acp("s", "demo", None, "agent")
    rig.call("info", channel="c1", caller=replace(MODERN, principal="relay"))
    rig.call("info", channel="c2", caller=replace(MODERN, client=None))
    rig.call("info", channel="c3", meta={"tabrelay/acp": acp.to_dict()})
    rig.call("info", channel="c4", meta=TRACE)
    rig.call("info", channel="c5")
    rig.bench.open(READY, "l")
    rig.bench.request("tools/call", {"name": "info", "arguments": {}}, channel="l")
    rig.bench.request("tools/call", {"name": "say", "arguments": {"text": "x"}}, id=2, channel="l")
    rig.hub.changed()
    rig.bench.server.tabs_changed()
    for n in range(6):
        rig.page_sends("result", call=n)


@scenario
def requests_that_are_wrong(rig: Rig) -> None:
    for n, params in enumerate(
        (
            {"name": 1},
            {"name": "info", "arguments": []},
            {"name": "info", "arguments": None},
            {"name": "nothing"},
            {"name": "info", "_meta": {"progressToken": 1.5}},
            {"name": "info", "_meta": []},
            {"name": "info", "requestState": "forged"},
            {"name": "info", "inputResponses": {"a": 1}},
            {"name": "say", "arguments": {"text": 1}},
            {"name": "say", "arguments": {"texts": "x"}},
            {"name": "cut", "arguments": {"span": {"start": 1, "end": 2}}},
            {"name": "cut", "arguments": {"span": {"start": 2, "end": 1}}},
        )
    ):
        rig.call("info", channel=f"c{n}", params=params)
    for n, text in enumerate(
        (
            "{",
            "[]",
            '{"jsonrpc":"2.0","id":true,"method":"tools/call","params":{"name":"info","arguments":{},"_meta":{}}}',
            '{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"info","arguments":{},"_meta":{}}}',
            '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"info","arguments":{},"_meta":{}}}',
            '{"jsonrpc":"2.0","id":1,"method":"tools/calls","params":{"name":"info","arguments":{},"_meta":{}}}',
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"info","arguments":{"a":NaN},"_meta":{}}}',
            '{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"info","arguments":{},"_meta":{}}}',
        )
    ):
        rig.bench.raw(text, channel=f"r{n}", caller=MODERN)


@scenario
def a_port_that_is_closed(rig: Rig) -> None:
    deaf = ClosedPort()
    rig.hub.attach(deaf, {"id": "d", "title": "D", "visible": True, "watches": False})
    rig.hub.receive(deaf, {"t": "offer", "tools": [{"name": "unheard"}]})
    rig.call("unheard")


@scenario
async def tools_of_the_worker(rig: Rig) -> None:
    rig.call("say", {"text": "x", "times": 2}, "c1")
    rig.call("say", {"text": "half a pair \ud800"}, "c2")
    for n, name in enumerate(("fail", "slow", "later")):
        rig.call(name, {"text": name}, f"d{n}")
        await rig.bench.reply(f"d{n}")
    for n, name in enumerate(("leave", "interrupt", "refuse", "strange", "structured", "whose", "require")):
        rig.call(name, channel=f"e{n}", caller=ASKS)
    rig.call("later", {"text": "no caller waits"}, "f1")
    rig.bench.close("f1")
    await asyncio.sleep(0)


@pytest.mark.parametrize("play", SCENARIOS, ids=lambda each: each.__name__)
async def test_a_call_looks_the_same_on_both_paths(play: Scenario) -> None:
    # A relay that does this has its socket closed by JsCallRecorder: see test_js_calls.py.
    has_js_calls = play is not a_channel_that_is_opened_again
    transcripts = []
    for rig in (Rig(True, has_js_calls), Rig(True), Rig(False)):
        if (playing := play(rig)) is not None:
            await playing
        transcripts.append(rig.transcript())
    assert transcripts[0] == transcripts[1] == transcripts[2]
    assert any(transcripts[0][:2])


async def test_calls_like_one_before_are_carried_out_by_javascript() -> None:
    """Otherwise the scenarios above would prove nothing about them."""
    rig = Rig(True, True)
    assert rig.js_calls is not None
    for play in (answers_in_any_order, callers_that_leave, tools_of_the_worker):
        before = rig.js_calls.carried
        if (playing := play(rig)) is not None:
            await playing
        assert rig.js_calls.carried > before


@pytest.mark.parametrize("has_js_calls", [True, False])
def test_nothing_is_kept_of_calls_that_are_over(has_js_calls: bool) -> None:
    rig = Rig(True, has_js_calls)
    for n in range(100):
        rig.call("info", channel=f"c{n}")
    for n in range(100):
        rig.page_sends("result", call=n)
    if rig.js_calls is not None:
        rig.js_calls.sync()
    assert not rig.hub.calls.running and [tab.calls for tab in rig.hub.tabs] == [0, 0]
    assert not rig.bench.server.outbox.sessions.channels
    assert len(rig.bench.sent) == 100
