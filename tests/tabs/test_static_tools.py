"""Static tools: a client with an old tool list reaches the tools that tabs offer now.

The tests use the whole core, so that `tool_call` is tested as a client sees it, in both eras.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.toolbox import tool
from tabserver.wire.control_messages import PIN
from tabserver.wire.frames import Kind
from tabserver.wire.static_tools import STATIC_NAMES, STATIC_TOOLS
from tests.support.fake_port import FakePort
from tests.support.hub_harness import CoreRig
from tests.support.server_harness import MODERN, READY

CAN: dict[str, Any] = {"elicitation": {"form": {}}}
ERAS = pytest.mark.parametrize("is_modern", [True, False])
FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ALICE = {"action": "accept", "content": {"name": "Alice"}}


class Rig(CoreRig):
    """A core whose server has static tools, a worker's tool, and tabs that the test attaches."""

    def __init__(self) -> None:
        super().__init__()
        self.hub.use_static_tools(True)
        self._numbers = iter(range(1000))

        @tool(toolbox=self.box)
        def add(a: int, b: int) -> int:
            return a + b

    def tab(self, id: str, *names: str, visible: bool = True, **more: Any) -> FakePort:
        port = FakePort()
        self.hub.attach(port, {"id": id, "title": f"Tab {id}", "url": f"http://localhost/{id}", "visible": visible})
        self.hub.receive(port, {"t": "offer", "tools": [{"name": name} | more for name in names]})
        return port

    def send(self, port: FakePort, t: str, **more: Any) -> None:
        self.hub.receive(port, {"t": t, "call": port.last("call")["call"], **more})

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

    def result(self, channel: str) -> Any:
        """The result that a caller has received."""
        [message] = [m for c, kind, m, _, _ in self.bench.sent if c == channel and kind is Kind.RES]
        return message["result"]

    def call(self, name: str, is_modern: bool = True, /, **arguments: Any) -> Any:
        return self.result(self.ask(is_modern, name, **arguments))


@pytest.fixture
async def rig() -> Rig:
    return Rig()


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


# -- on and off --------------------------------------------------------------------------------------------------------


async def test_they_come_first_in_the_list_and_go_when_the_relay_turns_them_off(rig: Rig) -> None:
    assert [tool["name"] for tool in rig.hub.tools()] == [*(tool["name"] for tool in STATIC_TOOLS), "add"]
    rig.bench.open()
    rig.settle()
    count = len(rig.bench.notes())
    rig.hub.use_static_tools(True)
    rig.settle()
    assert len(rig.bench.notes()) == count
    rig.hub.use_static_tools(False)
    rig.settle()
    assert [tool["name"] for tool in rig.hub.tools()] == ["add"]
    assert len(rig.bench.notes()) == count + 1


async def test_without_them_their_names_are_nothing_special(rig: Rig) -> None:
    rig.hub.use_static_tools(False)
    port = rig.tab("a", "tool_call")
    channel = rig.ask(True, "tool_call", x=1)
    assert port.last("call")["name"] == "tool_call"
    rig.answer(port, {"content": []})
    assert rig.result(channel)["content"] == []


async def test_a_tool_with_a_name_of_theirs_gets_a_suffix_wherever_it_lives(rig: Rig) -> None:
    @tool(toolbox=rig.box)
    def tabs_list() -> str:
        return "the worker's own"

    port = rig.tab("a", "tool_call")
    extra = [tool["name"] for tool in rig.hub.tools() if tool["name"] not in {*STATIC_NAMES, "add"}]
    of_worker, of_tab = sorted(extra)
    assert text_of(rig.call(of_worker)) == "the worker's own"
    rig.ask(True, of_tab)
    assert port.last("call")["name"] == "tool_call"


async def test_tools_of_tabs_have_an_argument_for_the_tab(rig: Rig) -> None:
    port = rig.tab("a", "draw", inputSchema={"type": "object", "properties": {"x": {"type": "number"}}})
    rig.tab("b", "draw", inputSchema={"type": "object", "properties": {"x": {"type": "number"}}})
    by_name = {tool["name"]: tool["inputSchema"]["properties"] for tool in rig.hub.tools()}
    assert list(by_name["draw"]) == ["x", "_tab"] and list(by_name["add"]) == ["a", "b"]
    rig.ask(True, "draw", x=1, _tab="a")
    assert port.last("call")["arguments"] == {"x": 1}


# -- lists -------------------------------------------------------------------------------------------------------------


@ERAS
async def test_tabs_list_returns_the_tabs_best_first(rig: Rig, is_modern: bool) -> None:
    rig.tab("hidden", "draw", visible=False)
    frozen = rig.tab("frozen", "zoom")
    rig.tab("front", "draw")
    rig.hub.receive(frozen, {"t": "tab", "title": "Tab frozen", "url": "", "visible": False, "frozen": True})
    result = rig.call("tabs_list", is_modern)
    assert json.loads(text_of(result)) == result["structuredContent"]
    listed = result["structuredContent"]["tabs"]
    assert [(tab["id"], tab["visible"], tab["state"], tab["tools"]) for tab in listed] == [
        ("front", True, "awake", ["draw"]),
        ("hidden", False, "awake", ["draw"]),
        ("frozen", False, "frozen", ["zoom"]),
    ]
    assert listed[0]["title"] == "Tab front" and listed[0]["url"] == "http://localhost/front"
    assert result["structuredContent"]["pinned"] is None


async def test_tools_list_returns_the_current_tools_and_their_tabs(rig: Rig) -> None:
    rig.tab("a", "draw", description="Draw it.")
    listed = rig.call("tools_list")["structuredContent"]["tools"]
    assert [(tool["name"], tool.get("tabs")) for tool in listed] == [("add", None), ("draw", ["a"])]
    assert listed[1]["description"] == "Draw it." and listed[1]["inputSchema"] == {"type": "object"}
    rig.tab("b", "zoom")
    assert [tool["name"] for tool in rig.call("tools_list", tab="b")["structuredContent"]["tools"]] == ["zoom"]
    wrong = rig.call("tools_list", tab="c")
    assert wrong["isError"] and '"Tab a" (a)' in text_of(wrong)


async def test_with_no_tab_open_they_return_that(rig: Rig) -> None:
    assert rig.call("tabs_list")["structuredContent"]["tabs"] == []
    assert "No tab is open" in text_of(rig.call("tab_pin", tab="a"))


# -- calls -------------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_call_goes_to_a_tool_that_came_later_with_its_progress_and_its_result(
    rig: Rig, is_modern: bool
) -> None:
    port = rig.tab("a", "draw")
    channel = rig.ask(is_modern, "tool_call", name="draw", arguments={"x": 1})
    assert (port.last("call")["name"], port.last("call")["arguments"]) == ("draw", {"x": 1})
    rig.send(port, "progress", progress=1, total=2)
    [(method, params, _)] = rig.bench.notes()
    assert (method, params["progress"]) == ("notifications/progress", 1)
    rig.answer(port, {"content": [{"type": "text", "text": "drawn"}], "structuredContent": {"x": 1}})
    result = rig.result(channel)
    assert text_of(result) == "drawn" and result["structuredContent"] == {"x": 1}
    assert result["_meta"]["tabrelay/tab"] == {"id": "a", "title": "Tab a"}


@ERAS
async def test_a_result_that_is_not_an_object_is_wrapped_in_one(rig: Rig, is_modern: bool) -> None:
    result = rig.call("tool_call", is_modern, name="add", arguments={"a": 1, "b": 2})
    assert result["structuredContent"] == {"result": 3}


async def test_a_session_is_asked_through_it(rig: Rig) -> None:
    port = rig.tab("a", "greet")
    channel = rig.ask(False, "tool_call", name="greet")
    rig.send(port, "ask", ask=1, method="elicitation/create", params=FORM)
    [asked] = await rig.bench.until(Kind.REQ)
    assert asked["params"]["message"] == "Your name?"
    rig.bench.answer(asked["id"], {"result": ALICE}, channel)
    await port.until("answer")
    assert port.last("answer")["answer"] == ALICE
    rig.answer(port, {"content": []})
    assert rig.result(channel)["content"] == []


async def test_a_modern_client_is_asked_through_it_and_its_retry_goes_on_with_the_same_call(rig: Rig) -> None:
    port = rig.tab("a", "greet")
    channel = rig.ask(True, "tool_call", name="greet")
    rig.send(port, "ask", ask=1, method="elicitation/create", params=FORM, key="name")
    [first] = await rig.bench.until(Kind.RES)
    assert first["result"]["resultType"] == "input_required"
    params = {
        "name": "tool_call",
        "arguments": {"name": "greet"},
        "inputResponses": {"name": ALICE},
        "requestState": first["result"]["requestState"],
    }
    caller = replace(MODERN, capabilities=CAN)
    rig.bench.modern("tools/call", params, channel="retry", caller=caller)
    await port.until("answer")
    rig.answer(port, {"content": []})
    assert rig.result("retry")["content"] == [] and len(port.of("call")) == 1
    assert channel != "retry"


async def test_cancelling_it_cancels_the_tool(rig: Rig) -> None:
    port = rig.tab("a", "draw")
    channel = rig.ask(True, "tool_call", name="draw")
    rig.bench.close(channel, "the client left")
    assert port.last("cancel")["call"] == port.last("call")["call"]


async def test_a_tool_in_a_named_tab_is_run_there(rig: Rig) -> None:
    hidden, front = rig.tab("a", "draw", visible=False), rig.tab("b", "draw")
    rig.ask(True, "tool_call", name="draw", tab="a")
    assert hidden.of("call") and not front.of("call")
    gone = rig.call("tool_call", name="draw", tab="c")
    assert gone["isError"] and "Open tabs" in text_of(gone)


@pytest.mark.parametrize(
    ("arguments", "text"),
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
async def test_what_is_wrong_with_a_call_is_reported_to_the_model(rig: Rig, arguments: Any, text: str) -> None:
    port = rig.tab("a", "draw")
    result = rig.call("tool_call", **arguments)
    assert result["isError"] and text in text_of(result)
    assert not port.of("call")


async def test_a_tools_own_error_comes_through(rig: Rig) -> None:
    port = rig.tab("a", "draw")
    channel = rig.ask(True, "tool_call", name="draw")
    rig.send(port, "error", message="out of paint")
    assert rig.result(channel)["isError"] and text_of(rig.result(channel)) == "out of paint"


@pytest.mark.parametrize("given", ['{"x": 1}', {"x": 1}])
async def test_arguments_that_a_model_wrote_as_text_are_read(rig: Rig, given: Any) -> None:
    port = rig.tab("a", "draw")
    rig.ask(True, "tool_call", name="draw", arguments=given)
    assert port.last("call")["arguments"] == {"x": 1}


async def test_the_lists_are_available_through_it_too(rig: Rig) -> None:
    assert "tabs" in rig.call("tool_call", name="tabs_list")["structuredContent"]


# -- pins --------------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_tab_is_pinned_and_the_answer_names_the_clients(rig: Rig, is_modern: bool) -> None:
    rig.tab("a", "draw")
    text = text_of(rig.call("tab_pin", is_modern, tab="a"))
    assert '"Tab a" (a) from now on' in text
    assert ('every client called "tester"' in text) is is_modern
    assert [(method, params) for method, params, _ in rig.bench.notes()] == [(PIN, {"tab": "a"})]


async def test_a_session_that_pinned_a_tab_stays_with_it(rig: Rig) -> None:
    hidden, front = rig.tab("a", "draw", visible=False), rig.tab("b", "draw")
    rig.bench.open()
    for id, (name, arguments) in enumerate(
        [("tab_pin", {"tab": "a"}), ("tool_call", {"name": "draw"}), ("draw", {}), ("tab_pin", {}), ("draw", {})]
    ):
        rig.bench.request("tools/call", {"name": name, "arguments": arguments}, id=id)
    assert (len(hidden.of("call")), len(front.of("call"))) == (2, 1)
