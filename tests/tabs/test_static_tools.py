"""Static tools: a client that read the tool list long ago reaches what tabs offer now.

The tests use the whole core, so that `tool_call` is tested as a client sees it, in both eras.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.tabs.hub import Hub
from tabserver.wire.control_messages import PIN
from tabserver.wire.frames import Kind
from tabserver.wire.static_tools import STATIC_NAMES, STATIC_TOOLS
from tests.support.core import MODERN, READY, Bench
from tests.support.port import FakePort

CAN: dict[str, Any] = {"elicitation": {"form": {}}}
ERAS = pytest.mark.parametrize("is_modern", [True, False])
FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ALICE = {"action": "accept", "content": {"name": "Alice"}}


class Late:
    """A core whose server has static tools, a worker's tool, and tabs that the test attaches."""

    def __init__(self) -> None:
        self.box = Toolbox()
        self.due: list[Any] = []
        self.hub = Hub(self.box, now_ms=lambda: 0.0, defer=self.due.append, later=lambda delay_ms, ring: None)
        self.bench = Bench(self.hub)
        self.hub.on_change = self.bench.server.catalogue_changed
        self.hub.use_static_tools(True)
        self._numbers = iter(range(1000))

        @tool(toolbox=self.box)
        def add(a: int, b: int) -> int:
            return a + b

    def settle(self) -> None:
        while self.due:
            self.due.pop(0)()

    def tab(self, id: str, *names: str, visible: bool = True, **more: Any) -> FakePort:
        port = FakePort()
        self.hub.attach(port, {"id": id, "title": f"Tab {id}", "url": f"http://localhost/{id}", "visible": visible})
        self.hub.receive(port, {"t": "offer", "tools": [{"name": name} | more for name in names]})
        return port

    def say(self, port: FakePort, t: str, **more: Any) -> None:
        self.hub.receive(port, {"t": t, "call": port.last("call")["call"], **more})

    def answer(self, port: FakePort, result: Any) -> None:
        self.hub.receive_result(port, port.last("call")["call"], json.dumps(result), False)

    def ask(self, is_modern: bool, name: str, /, **arguments: Any) -> str:
        """Call a tool; returns the channel of the call."""
        number = next(self._numbers)
        channel, params = f"c{number}", {"name": name, "arguments": arguments, "_meta": {"progressToken": number}}
        if is_modern:
            self.bench.modern("tools/call", params, channel=channel, caller=replace(MODERN, capabilities=CAN))
        else:
            self.bench.open(replace(READY, version="2025-11-25", capabilities=CAN), channel)
            self.bench.request("tools/call", params, channel=channel)
        return channel

    def told(self, channel: str) -> Any:
        """The result that a caller has received."""
        [message] = [m for c, kind, m, _, _ in self.bench.sent if c == channel and kind is Kind.RES]
        return message["result"]

    def call(self, name: str, is_modern: bool = True, /, **arguments: Any) -> Any:
        return self.told(self.ask(is_modern, name, **arguments))


@pytest.fixture
async def late() -> Late:
    return Late()


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


# -- on and off --------------------------------------------------------------------------------------------------------


async def test_they_come_first_in_the_list_and_go_when_the_relay_says_so(late: Late) -> None:
    assert [tool["name"] for tool in late.hub.tools()] == [*(tool["name"] for tool in STATIC_TOOLS), "add"]
    late.bench.open()
    late.settle()
    told = len(late.bench.notes())
    late.hub.use_static_tools(True)
    late.settle()
    assert len(late.bench.notes()) == told
    late.hub.use_static_tools(False)
    late.settle()
    assert [tool["name"] for tool in late.hub.tools()] == ["add"]
    assert len(late.bench.notes()) == told + 1


async def test_without_them_their_names_are_nothing_special(late: Late) -> None:
    late.hub.use_static_tools(False)
    port = late.tab("a", "tool_call")
    channel = late.ask(True, "tool_call", x=1)
    assert port.last("call")["name"] == "tool_call"
    late.answer(port, {"content": []})
    assert late.told(channel)["content"] == []


async def test_a_tool_with_a_name_of_theirs_gets_a_suffix_wherever_it_lives(late: Late) -> None:
    @tool(toolbox=late.box)
    def tabs_list() -> str:
        return "the worker's own"

    port = late.tab("a", "tool_call")
    extra = [tool["name"] for tool in late.hub.tools() if tool["name"] not in {*STATIC_NAMES, "add"}]
    of_worker, of_tab = sorted(extra)
    assert text_of(late.call(of_worker)) == "the worker's own"
    late.ask(True, of_tab)
    assert port.last("call")["name"] == "tool_call"


async def test_tools_of_tabs_say_how_to_name_a_tab(late: Late) -> None:
    port = late.tab("a", "draw", inputSchema={"type": "object", "properties": {"x": {"type": "number"}}})
    late.tab("b", "draw", inputSchema={"type": "object", "properties": {"x": {"type": "number"}}})
    by_name = {tool["name"]: tool["inputSchema"]["properties"] for tool in late.hub.tools()}
    assert list(by_name["draw"]) == ["x", "_tab"] and list(by_name["add"]) == ["a", "b"]
    late.ask(True, "draw", x=1, _tab="a")
    assert port.last("call")["arguments"] == {"x": 1}


# -- lists -------------------------------------------------------------------------------------------------------------


@ERAS
async def test_tabs_list_says_which_tabs_there_are_best_first(late: Late, is_modern: bool) -> None:
    late.tab("hidden", "draw", visible=False)
    frozen = late.tab("frozen", "zoom")
    late.tab("front", "draw")
    late.hub.receive(frozen, {"t": "tab", "title": "Tab frozen", "url": "", "visible": False, "frozen": True})
    result = late.call("tabs_list", is_modern)
    assert json.loads(text_of(result)) == result["structuredContent"]
    listed = result["structuredContent"]["tabs"]
    assert [(tab["id"], tab["visible"], tab["state"], tab["tools"]) for tab in listed] == [
        ("front", True, "awake", ["draw"]),
        ("hidden", False, "awake", ["draw"]),
        ("frozen", False, "frozen", ["zoom"]),
    ]
    assert listed[0]["title"] == "Tab front" and listed[0]["url"] == "http://localhost/front"
    assert result["structuredContent"]["pinned"] is None


async def test_tools_list_says_what_there_is_now_and_who_has_it(late: Late) -> None:
    late.tab("a", "draw", description="Draw it.")
    listed = late.call("tools_list")["structuredContent"]["tools"]
    assert [(tool["name"], tool.get("tabs")) for tool in listed] == [("add", None), ("draw", ["a"])]
    assert listed[1]["description"] == "Draw it." and listed[1]["inputSchema"] == {"type": "object"}
    late.tab("b", "zoom")
    assert [tool["name"] for tool in late.call("tools_list", tab="b")["structuredContent"]["tools"]] == ["zoom"]
    wrong = late.call("tools_list", tab="c")
    assert wrong["isError"] and '"Tab a" (a)' in text_of(wrong)


async def test_with_no_tab_open_they_say_so(late: Late) -> None:
    assert late.call("tabs_list")["structuredContent"]["tabs"] == []
    assert "No tab is open" in text_of(late.call("tab_pin", tab="a"))


# -- calls -------------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_call_goes_to_a_tool_that_came_later_with_its_progress_and_its_result(
    late: Late, is_modern: bool
) -> None:
    port = late.tab("a", "draw")
    channel = late.ask(is_modern, "tool_call", name="draw", arguments={"x": 1})
    assert (port.last("call")["name"], port.last("call")["arguments"]) == ("draw", {"x": 1})
    late.say(port, "progress", progress=1, total=2)
    [(method, params, _)] = late.bench.notes()
    assert (method, params["progress"]) == ("notifications/progress", 1)
    late.answer(port, {"content": [{"type": "text", "text": "drawn"}], "structuredContent": {"x": 1}})
    result = late.told(channel)
    assert text_of(result) == "drawn" and result["structuredContent"] == {"x": 1}
    assert result["_meta"]["tabrelay/tab"] == {"id": "a", "title": "Tab a"}


@ERAS
async def test_a_result_that_is_no_object_comes_in_the_form_of_the_era(late: Late, is_modern: bool) -> None:
    result = late.call("tool_call", is_modern, name="add", arguments={"a": 1, "b": 2})
    assert result["structuredContent"] == (3 if is_modern else {"result": 3})


async def test_a_session_is_asked_through_it(late: Late) -> None:
    port = late.tab("a", "greet")
    channel = late.ask(False, "tool_call", name="greet")
    late.say(port, "ask", ask=1, method="elicitation/create", params=FORM)
    [asked] = await late.bench.until(Kind.REQ)
    assert asked["params"]["message"] == "Your name?"
    late.bench.answer(asked["id"], {"result": ALICE}, channel)
    await port.until("answer")
    assert port.last("answer")["answer"] == ALICE
    late.answer(port, {"content": []})
    assert late.told(channel)["content"] == []


async def test_a_modern_client_is_asked_through_it_and_its_retry_goes_on_with_the_same_call(late: Late) -> None:
    port = late.tab("a", "greet")
    channel = late.ask(True, "tool_call", name="greet")
    late.say(port, "ask", ask=1, method="elicitation/create", params=FORM, key="name")
    [first] = await late.bench.until(Kind.RES)
    assert first["result"]["resultType"] == "input_required"
    params = {
        "name": "tool_call",
        "arguments": {"name": "greet"},
        "inputResponses": {"name": ALICE},
        "requestState": first["result"]["requestState"],
    }
    caller = replace(MODERN, capabilities=CAN)
    late.bench.modern("tools/call", params, channel="retry", caller=caller)
    await port.until("answer")
    late.answer(port, {"content": []})
    assert late.told("retry")["content"] == [] and len(port.of("call")) == 1
    assert channel != "retry"


async def test_cancelling_it_cancels_the_tool(late: Late) -> None:
    port = late.tab("a", "draw")
    channel = late.ask(True, "tool_call", name="draw")
    late.bench.close(channel, "the client left")
    assert port.last("cancel")["call"] == port.last("call")["call"]


async def test_a_tool_in_a_named_tab_is_run_there(late: Late) -> None:
    hidden, front = late.tab("a", "draw", visible=False), late.tab("b", "draw")
    late.ask(True, "tool_call", name="draw", tab="a")
    assert hidden.of("call") and not front.of("call")
    gone = late.call("tool_call", name="draw", tab="c")
    assert gone["isError"] and "Open tabs" in text_of(gone)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "drawn"}, 'Unknown tool "drawn". Did you mean "draw"?'),
        ({}, "Name the tool"),
        ({"name": 7}, "name: expected string"),
        ({"name": "draw", "arguments": [1]}, "arguments: expected object"),
        ({"name": "draw", "arguments": "x"}, "arguments: expected object"),
        ({"name": "draw", "arguments": "[" * 500}, "arguments: expected object"),
        ({"name": "draw", "tab": 7}, "tab: expected string"),
        ({"name": "tool_call", "arguments": {"name": "draw"}}, "not itself"),
        ({"name": "add", "arguments": {"a": 1}}, 'Invalid arguments for tool "add":\narguments.b: missing'),
    ],
)
async def test_what_is_wrong_with_a_call_is_told_to_the_model(late: Late, arguments: Any, said: str) -> None:
    port = late.tab("a", "draw")
    result = late.call("tool_call", **arguments)
    assert result["isError"] and said in text_of(result)
    assert not port.of("call")


async def test_a_tools_own_error_comes_through(late: Late) -> None:
    port = late.tab("a", "draw")
    channel = late.ask(True, "tool_call", name="draw")
    late.say(port, "error", message="out of paint")
    assert late.told(channel)["isError"] and text_of(late.told(channel)) == "out of paint"


@pytest.mark.parametrize("given", ['{"x": 1}', {"x": 1}])
async def test_arguments_that_a_model_wrote_as_text_are_read(late: Late, given: Any) -> None:
    port = late.tab("a", "draw")
    late.ask(True, "tool_call", name="draw", arguments=given)
    assert port.last("call")["arguments"] == {"x": 1}


async def test_the_lists_can_be_had_through_it_too(late: Late) -> None:
    assert "tabs" in late.call("tool_call", name="tabs_list")["structuredContent"]


# -- pins --------------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_tab_is_pinned_and_the_answer_says_for_whom(late: Late, is_modern: bool) -> None:
    late.tab("a", "draw")
    said = text_of(late.call("tab_pin", is_modern, tab="a"))
    assert '"Tab a" (a) from now on' in said
    assert ('every client called "tester"' in said) is is_modern
    assert [(method, params) for method, params, _ in late.bench.notes()] == [(PIN, {"tab": "a"})]


async def test_a_session_that_pinned_a_tab_stays_with_it(late: Late) -> None:
    hidden, front = late.tab("a", "draw", visible=False), late.tab("b", "draw")
    late.bench.open()
    for id, (name, arguments) in enumerate(
        [("tab_pin", {"tab": "a"}), ("tool_call", {"name": "draw"}), ("draw", {}), ("tab_pin", {}), ("draw", {})]
    ):
        late.bench.request("tools/call", {"name": name, "arguments": arguments}, id=id)
    assert (len(hidden.of("call")), len(front.of("call"))) == (2, 1)
