"""MCP-B's embed widget at the relay: who is admitted, and messages that are none of the widget's."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from tabrelay.admission.pairing import LIFE_S, Pairing, PairingRequest
from tabrelay.admission.policy import Policy, Refuse
from tabrelay.admission.tokens import Tokens
from tabrelay.admission.widget_pages import MAX_ASKED, WidgetPages, name_of
from tabrelay.peers.browsers import widget_endpoint
from tabrelay.peers.browsers.widget_page import MAX_GREETING, MAX_LIST, WidgetPage
from tabserver.wire.frames import CLOSE_PROTOCOL
from tests.support.json_shapes import SHAPES, largest
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, pause

ORIGIN = "https://shop.example"
PROTOCOLS = [Subprotocol("webmcp-discovery.v1"), Subprotocol("webmcp.v1")]
HELLO = {"type": "hello", "tabId": "t1", "origin": ORIGIN, "title": "Shop", "url": f"{ORIGIN}/"}
TOOL = {"name": "price", "description": "What it costs.", "inputSchema": {"type": "object"}}


def dial(relay: RunningRelay, origin: str | None = ORIGIN, protocols: list[Subprotocol] = PROTOCOLS) -> connect:
    shown = None if origin is None else Origin(origin)
    return connect(relay.url.replace("http", "ws"), origin=shown, subprotocols=protocols or None, proxy=None)


class Widget:
    """A widget that answers each call with what the test gives."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, *messages: Any) -> None:
        for message in messages:
            await self.socket.send(message if isinstance(message, str) else json.dumps(message))

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_S):
            found: dict[str, Any] = json.loads(await self.socket.recv())
        return found

    async def closed(self) -> int:
        async with asyncio.timeout(BOUND_S):
            try:
                while True:
                    await self.socket.recv()
            except ConnectionClosed as closed:
                assert closed.rcvd is not None
                return closed.rcvd.code


@asynccontextmanager
async def admitted(relay: RunningRelay, tools: Any = (TOOL,)) -> AsyncIterator[Widget]:
    async with dial(relay) as socket:
        widget = Widget(socket)
        about = await widget.receive()
        assert (about["type"], about["service"], about["version"]) == ("server-hello", "webmcp-local-relay", 1)
        assert about["port"] == relay.port and socket.subprotocol == "webmcp.v1"
        await widget.send(HELLO, {"type": "tools/list", "tools": list(tools) if isinstance(tools, tuple) else tools})
        yield widget


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, allow_origins=(ORIGIN,), away_wait_s=0.2, hello_deadline_s=0.5) as relay:
        yield relay


@pytest.mark.parametrize(
    ("origin", "protocols", "status"),
    [
        (None, PROTOCOLS, 403),
        ("null", PROTOCOLS, 403),
        ("https://shop.example/path", PROTOCOLS, 403),
        (ORIGIN, [], 404),
        (ORIGIN, [Subprotocol("mcp")], 404),
    ],
)
async def test_what_is_no_widget_of_an_approved_page_is_refused_before_the_socket_opens(
    relay: RunningRelay, origin: str | None, protocols: list[Subprotocol], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await dial(relay, origin, protocols)
    assert refused.value.response.status_code == status


async def test_a_page_waits_with_an_open_socket_until_it_is_approved(relay: RunningRelay) -> None:
    other = "https://other.example"
    async with dial(relay, other) as socket:
        widget = Widget(socket)
        assert (await widget.receive())["type"] == "server-hello"
        await widget.send({**HELLO, "origin": other}, {"type": "tools/list", "tools": []})
        await widget.send({"type": "tools/changed", "tools": [TOOL]})
        [row] = await asking(relay, 1)
        assert (row["origin"], row["server"]) == (other, "other.example")
        assert (await relay.http.get("/-/status")).json()["servers"] == []
        await relay.http.post("/-/pairs", json={"approve": row["code"]})
        assert [tool["name"] for tool in (await relay.has_read("other.example"))["tools"]] == ["price"]
        # Revoked, it is closed, and a new socket waits again.
        await relay.http.post("/-/pairs", json={"revoke": other})
        assert await widget.closed() == 4401
    async with dial(relay, other) as socket:
        await Widget(socket).send({**HELLO, "origin": other}, {"type": "tools/list", "tools": [TOOL]})
        [row] = await asking(relay, 1)
        await relay.http.post("/-/pairs", json={"refuse": row["code"]})
        assert await Widget(socket).closed() == 4403


async def test_of_the_pages_that_wait_the_oldest_is_closed(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widget_endpoint, "MAX_WAITING", 1)
    async with dial(relay, "https://one.example") as first, dial(relay, "https://two.example") as second:
        assert await Widget(first).closed() == 1013
        assert (await Widget(second).receive())["type"] == "server-hello"


async def asking(relay: RunningRelay, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(BOUND_S):
        while True:
            rows: list[dict[str, Any]] = (await relay.http.get("/-/pairs")).json()["asking"]
            if len(rows) >= count:
                return rows
            await pause()


async def test_a_widget_that_another_site_hosts_is_closed_and_the_user_sees_why(relay: RunningRelay) -> None:
    async with dial(relay) as socket:
        widget = Widget(socket)
        await widget.send({**HELLO, "origin": "https://bank.example"}, {"type": "tools/list", "tools": [TOOL]})
        assert await widget.closed() == 4403
    [row] = (await relay.http.get("/-/status")).json()["refused"]
    assert row["origin"] == ORIGIN and "host embed.js and widget.html there" in row["message"]


async def test_a_public_relay_serves_no_widget(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, public_url="https://relay.example", allow_origins=(ORIGIN,)) as relay:
        with pytest.raises(InvalidStatus) as refused:
            await dial(relay)
        assert refused.value.response.status_code == 403


async def test_there_are_so_many_sockets_of_widgets(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget_endpoint, "MAX_SOCKETS", 1)
    async with dial(relay):
        with pytest.raises(InvalidStatus) as refused:
            await dial(relay)
        assert refused.value.response.status_code == 409


async def test_a_widget_that_says_nothing_is_closed(relay: RunningRelay) -> None:
    async with dial(relay) as socket:
        assert await Widget(socket).closed() == 4400


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"content": [{"type": "text", "text": "9"}]}, "9"),
        ({"price": 9}, '{"price": 9}'),
        ("nine", "The tool returned nothing."),
        (None, "The tool returned nothing."),
    ],
)
async def test_results_of_any_form_reach_the_client(relay: RunningRelay, answer: Any, expected: str) -> None:
    async with admitted(relay) as widget:
        await relay.has_read("shop.example")
        calling = asyncio.create_task(relay.call("shop.example", "price", {"thing": "pear"}))
        asked = await widget.receive()
        assert (asked["type"], asked["toolName"], asked["args"]) == ("invoke", "price", {"thing": "pear"})
        noise = ["no json", "[]", "{}", '{"type":"result"}', {"type": "result", "callId": "999", "result": {}}]
        noise += [{"type": "result", "callId": "-1", "result": {}}, {"type": "unknown"}, "[" * 5000]
        await widget.send(*noise, {"type": "result", "callId": asked["callId"], "result": answer})
        said = (await calling).json()
        found = said["result"]["content"][0]["text"] if "result" in said else said["error"]["message"]
        assert found == expected


async def test_a_call_whose_page_leaves_fails_at_once(relay: RunningRelay) -> None:
    async with admitted(relay) as widget:
        await relay.has_read("shop.example")
        calling = asyncio.create_task(relay.call("shop.example", "price"))
        await widget.receive()
    error = (await calling).json()["error"]
    assert error["data"]["reason"] == "browser_gone" and "left while it had the call" in error["message"]


@pytest.mark.parametrize("tools", [None, 5, {"a": 1}, [None, 5, {}, {"name": 7}, TOOL]])
async def test_a_list_of_any_form_hides_no_valid_tool(relay: RunningRelay, tools: Any) -> None:
    async with admitted(relay, tools) as widget:
        wanted = 1 if isinstance(tools, list) else 0
        row = await relay.has_read("shop.example")
        assert len(row["tools"]) == wanted
        await widget.send({"type": "tools/changed", "tools": [TOOL, {**TOOL, "name": "buy", "inputSchema": 5}]})
        await relay.has_read("shop.example", lambda row: {tool["name"] for tool in row["tools"]} == {"price", "buy"})


async def test_a_list_that_is_too_long_is_no_list(relay: RunningRelay) -> None:
    async with admitted(relay) as widget:
        await relay.has_read("shop.example")
        long = {"type": "tools/changed", "tools": [{**TOOL, "name": "long", "description": "x" * MAX_LIST}]}
        await widget.send(long, {"type": "tools/changed", "tools": [TOOL, {**TOOL, "name": "buy"}]})
        row = await relay.has_read("shop.example", lambda row: len(row["tools"]) == 2)
        assert {tool["name"] for tool in row["tools"]} == {"price", "buy"}


def test_an_origin_has_a_name() -> None:
    assert name_of("https://shop.example") == "shop.example"
    assert name_of("http://localhost:5173") == "localhost-5173"
    assert name_of("http://[::1]:5173") == "1-5173"


def test_a_request_lasts_and_is_asked_again_and_a_refused_page_is_not_admitted(tmp_path: Path) -> None:
    now, asked = [0.0], list[PairingRequest]()
    pairing, policy = Pairing(), Policy.for_address("127.0.0.1", 4747)
    pages = WidgetPages(policy, Tokens(tmp_path), pairing, asked.append, lambda: now[0])

    def status() -> int | str | None:
        found = pages.admit(ORIGIN)
        return found.status if isinstance(found, Refuse) else found and found[1]

    assert [status(), status()] == [None, None] and [each.server for each in asked] == ["shop.example"]
    now[0] += LIFE_S + 1
    assert status() is None and len(asked) == 2
    pairing.decide(asked[1].code, approve=False, now=now[0])
    assert [status(), status()] == [403, 403]
    for number in range(MAX_ASKED + 9):
        pages.admit(f"https://{number}.example")
    assert len(pages._asked) == MAX_ASKED and status() is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 300 + "1" + "}" * 300,
        '{"a":' * 900 + "1" + "}" * 900,
        '{"content":[],"a":"\\ud800"}',
        '{"content":NaN}',
        "[",
    ],
    ids=["deep", "very deep", "surrogate", "NaN", "cut"],
)
async def test_a_result_that_can_not_be_read_ends_its_call_and_no_other(relay: RunningRelay, text: str) -> None:
    async with admitted(relay) as widget:
        await relay.has_read("shop.example", lambda row: len(row["tools"]) == 1)
        calling = asyncio.create_task(relay.call("shop.example", "price"))
        invoke = await widget.receive()
        await widget.send(f'{{"type":"result","callId":"{invoke["callId"]}","result":{text}}}')
        assert "error" in (await calling).json() or (await calling).json()["result"]["isError"]
        calling = asyncio.create_task(relay.call("shop.example", "price"))
        invoke = await widget.receive()
        await widget.send({"type": "result", "callId": invoke["callId"], "result": {"content": []}})
        assert (await calling).json()["result"]["content"] == []


async def test_a_tool_that_nests_too_deeply_breaks_nothing(relay: RunningRelay) -> None:
    schema = '{"properties":' * 300 + "{}" + "}" * 300
    async with admitted(relay) as widget:
        await relay.has_read("shop.example", lambda row: len(row["tools"]) == 1)
        await widget.send(f'{{"type":"tools/changed","tools":[{{"name":"deep","inputSchema":{schema}}}]}}')
        await widget.send({"type": "tools/changed", "tools": [TOOL, {**TOOL, "name": "other"}]})
        await relay.has_read("shop.example", lambda row: len(row["tools"]) == 2)


@pytest.mark.parametrize("shape", SHAPES)
async def test_no_message_of_a_widget_takes_long(shape: str) -> None:
    page = WidgetPage(None, None)  # type: ignore[arg-type]
    texts = [f'{{"type":"tools/list","tools":{largest(shape, MAX_LIST - 100, most)}}}' for most in (None, 99_000)]
    for text in texts:
        times = []
        for _ in range(6):
            began = time.thread_time()
            page._received(text)
            times.append(time.thread_time() - began)
            page._ready.clear()
        assert min(times) < 0.05


async def test_a_widget_that_sends_other_messages_before_its_tools_is_closed(relay: RunningRelay) -> None:
    async with dial(relay) as socket:
        widget = Widget(socket)
        await widget.receive()
        await widget.send(*[HELLO] * (MAX_GREETING + 1), {"type": "tools/list", "tools": [TOOL]})
        assert await widget.closed() == CLOSE_PROTOCOL
    assert (await relay.http.get("/-/status")).json()["servers"] == []
