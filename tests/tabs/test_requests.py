"""Questions of a tab in the middle of a call: through the hub and the core to the client, in both eras, and back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox
from tabserver.tabs.hub import Hub
from tabserver.tabs.messages import MOST_ASKED
from tabserver.wire.frames import Caller, Kind
from tests.support.fake_port import FakePort
from tests.support.server_harness import MODERN, READY, CoreHarness

ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
CLIENT = replace(MODERN, capabilities=ALL)
SESSION = replace(READY, version="2025-11-25", capabilities=ALL)

FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
QUESTIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "form": ("elicitation/create", FORM, {"action": "accept", "content": {"name": "Alice"}}),
    "address": (
        "elicitation/create",
        {"mode": "url", "message": "Sign in", "url": "https://example.com/", "elicitationId": "e1"},
        {"action": "decline"},
    ),
    "sampling": (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10},
        {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Bonjour"}},
    ),
    "roots": ("roots/list", {}, {"roots": [{"uri": "file:///a", "name": "A"}]}),
}


class Rig:
    """A core, its hub, and one tab whose messages the test sends."""

    def __init__(self) -> None:
        self.hub = Hub(
            Toolbox(),
            now_ms=lambda: 0.0,
            defer=lambda function: function(),
            later=lambda delay_ms, ring: None,
        )
        self.bench = CoreHarness(self.hub)
        self.tab = FakePort()
        self.hub.attach(self.tab, {"id": "t", "title": "Tab", "url": "http://localhost/", "visible": True})
        self.send("offer", tools=[{"name": "greet"}, {"name": "wipe", "annotations": {"destructiveHint": True}}])

    def send(self, t: str, **message: Any) -> None:
        self.hub.receive(self.tab, {"t": t, **message})

    def ask(self, method: str, params: object, number: int = 1, **more: Any) -> None:
        self.send("ask", call=self.tab.last("call")["call"], ask=number, method=method, params=params, **more)

    def end(self, text: str = "done") -> None:
        result = {"content": [{"type": "text", "text": text}]}
        self.hub.receive_result(self.tab, self.tab.last("call")["call"], json.dumps(result), False)

    def open(self) -> None:
        """A session of the handshake era calls the tool."""
        self.bench.open(SESSION)
        self.bench.request("tools/call", {"name": "greet"}, id=5)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("kind", list(QUESTIONS))
async def test_a_session_is_asked_and_its_answer_comes_back_to_the_tab(rig: Rig, kind: str) -> None:
    method, params, answer = QUESTIONS[kind]
    rig.open()
    rig.ask(method, params)
    (asked,) = await rig.bench.until(Kind.REQ)
    assert (asked["method"], asked.get("params", {})) == (method, params)
    assert rig.bench.sent[-1][4] == 5
    rig.bench.answer(asked["id"], {"result": answer})
    (sent,) = await rig.tab.until("answer")
    assert (sent["ask"], sent["answer"]) == (1, answer)
    rig.end("Hello, Alice!")
    assert (await rig.bench.reply("c"))["content"][0]["text"] == "Hello, Alice!"


@pytest.mark.parametrize("kind", ["form", "sampling", "roots"])
async def test_a_modern_client_is_asked_by_input_required_while_the_tab_waits(rig: Rig, kind: str) -> None:
    method, params, answer = QUESTIONS[kind]
    rig.bench.modern("tools/call", {"name": "greet"}, channel="m1", caller=CLIENT)
    rig.ask(method, params, key="who")
    first = await rig.bench.reply("m1")
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["who"]["method"] == method
    again = {"name": "greet", "inputResponses": {"who": answer}, "requestState": first["requestState"]}
    rig.bench.modern("tools/call", again, channel="m2", caller=CLIENT)
    (sent,) = await rig.tab.until("answer")
    assert sent["answer"] == answer
    assert len(rig.tab.of("call")) == 1  # the tool waited: it was not called again
    rig.end("Hello!")
    assert (await rig.bench.reply("m2"))["content"][0]["text"] == "Hello!"


@pytest.mark.parametrize(("caller", "channel"), [(replace(MODERN, capabilities={}), "m"), (READY, "c")])
async def test_a_client_that_cannot_be_asked_is_named_to_the_tab(rig: Rig, caller: Caller, channel: str) -> None:
    if channel == "c":
        rig.bench.open(caller)
        rig.bench.request("tools/call", {"name": "greet"})
    else:
        rig.bench.modern("tools/call", {"name": "greet"}, caller=caller)
    rig.ask(*QUESTIONS["sampling"][:2])
    (sent,) = await rig.tab.until("answer")
    error = sent["error"]
    assert error["name"] == "MissingCapability" and "sampling" in error["message"]
    # An error that the tab does not catch reaches the caller like the same error of a tool in the worker.
    rig.send("error", call=rig.tab.last("call")["call"], **error)
    outcome = await rig.bench.reply(channel)
    if channel == "c":
        assert outcome["isError"] and "sampling" in outcome["content"][0]["text"]
    else:
        assert outcome["code"] == -32021 and outcome["data"]["requiredCapabilities"] == {"sampling": {}}


async def test_an_error_of_the_client_reaches_the_tab(rig: Rig) -> None:
    rig.open()
    rig.ask(*QUESTIONS["sampling"][:2])
    (asked,) = await rig.bench.until(Kind.REQ)
    rig.bench.answer(asked["id"], {"error": {"code": -1, "message": "User rejected"}})
    (sent,) = await rig.tab.until("answer")
    assert sent["error"]["name"] == "ClientError" and sent["error"]["code"] == -1
    assert "User rejected" in sent["error"]["message"]


@pytest.mark.parametrize(
    ("method", "params", "fault"),
    [
        ("tools/call", {}, "method"),
        ("elicitation/create", {"message": "Hm?"}, "params.requestedSchema: expected object, got null"),
        ("elicitation/create", {"message": 3, "requestedSchema": {}}, "params.message"),
        ("elicitation/create", {"mode": "url", "message": "Sign in"}, "params.url"),
        ("sampling/createMessage", {"messages": "Hi", "maxTokens": 1}, "params.messages"),
        ("sampling/createMessage", {"messages": [], "maxTokens": True}, "params.maxTokens"),
        ("roots/list", None, "params: expected object"),
    ],
)
async def test_a_question_that_is_none_is_refused_with_its_path(
    rig: Rig, method: str, params: object, fault: str
) -> None:
    rig.open()
    rig.ask(method, params)
    (sent,) = await rig.tab.until("answer")
    assert fault in sent["error"]["message"]
    assert not [sent for sent in rig.bench.sent if sent[1] is Kind.REQ]


async def test_a_call_that_ends_withdraws_the_questions_it_left_open(rig: Rig) -> None:
    rig.open()
    rig.ask(*QUESTIONS["form"][:2])
    (asked,) = await rig.bench.until(Kind.REQ)
    rig.end()
    (note,) = await rig.bench.until(Kind.NOTE)
    assert (note["method"], note["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
    rig.bench.answer(asked["id"], {"result": QUESTIONS["form"][2]})
    assert rig.tab.of("answer") == []


async def test_a_cancelled_call_withdraws_its_question_and_notifies_the_tab(rig: Rig) -> None:
    rig.open()
    rig.ask(*QUESTIONS["form"][:2])
    await rig.bench.until(Kind.REQ)
    rig.bench.note("notifications/cancelled", {"requestId": 5, "reason": "enough"})
    assert rig.tab.last("cancel")["reason"] == "enough"
    notes = await rig.bench.until(Kind.NOTE)
    assert notes[0]["method"] == "notifications/cancelled"


async def test_a_tab_that_leaves_takes_its_questions_along(rig: Rig) -> None:
    rig.open()
    rig.ask(*QUESTIONS["form"][:2])
    await rig.bench.until(Kind.REQ)
    rig.hub.detach(rig.tab)
    assert (await rig.bench.reply("c"))["isError"]
    (note,) = await rig.bench.until(Kind.NOTE)
    assert note["method"] == "notifications/cancelled"


async def test_a_tab_cannot_ask_without_end(rig: Rig) -> None:
    rig.open()
    for number in range(MOST_ASKED + 1):
        rig.ask(*QUESTIONS["roots"][:2], number=number)
    (sent,) = await rig.tab.until("answer")
    assert sent["ask"] == MOST_ASKED and "open already" in sent["error"]["message"]


async def test_questions_of_a_call_that_is_not_the_tabs_own_are_dropped(rig: Rig) -> None:
    rig.open()
    stranger = FakePort()
    rig.hub.attach(stranger, {"id": "s", "title": "", "url": "", "visible": False})
    call = rig.tab.last("call")["call"]
    rig.hub.receive(stranger, {"t": "ask", "call": call, "ask": 1, "method": "roots/list", "params": {}})
    await asyncio.sleep(0)
    assert not [sent for sent in rig.bench.sent if sent[1] is Kind.REQ] and stranger.of("answer") == []


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_handler_that_returns_its_questions_is_called_again_with_the_answers(rig: Rig, is_modern: bool) -> None:
    method, params, answer = QUESTIONS["form"]
    if is_modern:
        rig.bench.modern("tools/call", {"name": "greet"}, channel="m1", caller=CLIENT)
    else:
        rig.open()
    call = rig.tab.last("call")["call"]
    rig.send("required", call=call, requests={"who": {"method": method, "params": params}}, state={"step": 1})
    if is_modern:
        first = await rig.bench.reply("m1")
        again = {"name": "greet", "inputResponses": {"who": answer}, "requestState": first["requestState"]}
        rig.bench.modern("tools/call", again, channel="m2", caller=CLIENT)
    else:
        (asked,) = await rig.bench.until(Kind.REQ)
        rig.bench.answer(asked["id"], {"result": answer})
        await rig.tab.until("call", 2)
    second = rig.tab.last("call")
    assert second["call"] != call
    assert (second["responses"], second["state"]) == ({"who": answer}, {"step": 1})
    rig.end("Hello!")
    assert (await rig.bench.reply("m2" if is_modern else "c"))["content"][0]["text"] == "Hello!"


def asks_in_between(rig: Rig) -> dict[str, Any]:
    """The user allows a call once, and the call asks its client something; returns the request that continues it."""
    method, params, answer = QUESTIONS["form"]
    rig.bench.modern("tools/call", {"name": "wipe"}, channel="m1", caller=CLIENT)
    rig.send("approval", call=rig.tab.last("approve")["call"], decision="once")
    requests = {"who": {"method": method, "params": params}}
    rig.send("required", call=rig.tab.last("call")["call"], requests=requests, state={"step": 1})
    [first] = [message for channel, _, message, _, _ in rig.bench.sent if channel == "m1" and "result" in message]
    return {"name": "wipe", "inputResponses": {"who": answer}, "requestState": first["result"]["requestState"]}


async def test_what_was_allowed_once_goes_on_once(rig: Rig) -> None:
    again = asks_in_between(rig)
    rig.bench.modern("tools/call", again, channel="m2", caller=CLIENT)
    assert len(rig.tab.of("call")) == 2 and len(rig.tab.of("approve")) == 1
    rig.end("wiped")
    assert (await rig.bench.reply("m2"))["content"][0]["text"] == "wiped"
    for number in range(3, 6):
        rig.bench.modern("tools/call", again, channel=f"m{number}", caller=CLIENT)
        error = await rig.bench.reply(f"m{number}")
        assert error["code"] == -32602 and "make the request again" in error["message"]
    assert len(rig.tab.of("call")) == 2 and len(rig.tab.of("approve")) == 1


async def test_what_was_allowed_in_a_worker_before_is_asked_about_again(rig: Rig) -> None:
    rig.bench.server.use_key("of the relay")
    again = asks_in_between(rig)
    following = Rig()
    following.bench.server.use_key("of the relay")
    following.bench.modern("tools/call", again, channel="m2", caller=CLIENT)
    assert len(following.tab.of("approve")) == 1 and following.tab.of("call") == []
    following.send("approval", call=following.tab.last("approve")["call"], decision="once")
    assert following.tab.last("call")["state"] == {"step": 1}
