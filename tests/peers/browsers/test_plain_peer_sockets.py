"""Plain pages with two sockets: a page that gives up a dial without closing it answers on the newer socket.

websocket-mcp does so, and tests/support/plain/bare.js like it. Such a page handles what it receives on either socket.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tabserver.wire import jsonrpc
from tests.support.plain_page import Message, ScriptedPage
from tests.support.running_relay import RunningRelay, events

OTHER_ORIGIN = "http://localhost:5173"
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
CLIENT = {"name": "test", "version": "1"}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    settings: Any = {"greet_s": 60, "allow_origins": (OTHER_ORIGIN,), "max_values": 1000}
    async with RunningRelay(tmp_path, plain=("notes",), **settings) as relay:
        yield relay


@asynccontextmanager
async def two_sockets(relay: RunningRelay) -> AsyncIterator[tuple[ScriptedPage, ScriptedPage]]:
    """The socket on which the relay sends calls, and the one on which the page answers them."""
    async with ScriptedPage(relay.url, "notes") as sends, ScriptedPage(relay.url, "notes") as receives:
        receives.on_call = lambda page, message: None
        yield receives, sends


async def test_an_answer_counts_on_either_socket_of_the_page(relay: RunningRelay) -> None:
    async with two_sockets(relay) as (receives, sends):
        running = asyncio.create_task(relay.call("notes", "slow"))
        await receives.until(lambda: bool(receives.calls))
        await sends.send(jsonrpc.result_message(receives.calls[0]["id"], {"content": [], "x": 1}))
        assert (await running).json()["result"]["x"] == 1


@pytest.mark.parametrize("size", [100, 100_000])
async def test_an_answer_with_too_many_values_fails_the_call_on_either_socket(relay: RunningRelay, size: int) -> None:
    result = {"content": [], "x": "x" * size, "values": [0] * (2000 if size > 1000 else 0)}
    async with two_sockets(relay) as (receives, sends):
        running = asyncio.create_task(relay.call("notes", "slow"))
        await receives.until(lambda: bool(receives.calls))
        await sends.send(jsonrpc.result_message(receives.calls[0]["id"], result))
        answer = (await running).json()
        assert "result" in answer if size < 1000 else answer["error"]["data"]["reason"] == "result_too_large"


async def test_progress_and_questions_reach_the_caller_from_either_socket(relay: RunningRelay) -> None:
    async with two_sockets(relay) as (receives, sends):
        about = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": CLIENT}
        opened = await relay.http.post("/notes", json=jsonrpc.request(0, "initialize", about))
        headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        params = {"name": "slow", "_meta": {"progressToken": "mine"}}
        call = jsonrpc.request(1, "tools/call", params)
        running = asyncio.create_task(relay.http.post("/notes", json=call, headers=headers))
        await receives.until(lambda: bool(receives.calls))
        id = receives.calls[0]["id"]
        question = jsonrpc.request(0, "elicitation/create", FORM)
        await sends.send(
            jsonrpc.notification("notifications/progress", {"progressToken": id, "progress": 1}),
            {**question, "relatedRequestId": id},
            jsonrpc.result_message(id, {"content": []}),
        )
        progress, asked, answer = map(json.loads, events((await running).text))
        assert progress["params"] == {"progressToken": "mine", "progress": 1}
        assert asked["method"] == "elicitation/create"
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


async def test_a_handshake_counts_on_either_socket(relay: RunningRelay) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "late", "version": "1"}}
    async with (
        ScriptedPage(relay.url, "notes", never_answers=True) as older,
        ScriptedPage(relay.url, "notes", never_answers=True) as newer,
    ):
        await older.until(lambda: older.has("initialize"))
        await newer.until(lambda: newer.has("initialize"))
        assert older.of("initialize")[0]["id"] != newer.of("initialize")[0]["id"]
        await newer.send(jsonrpc.result_message(older.of("initialize")[0]["id"], about))
        await older.until(lambda: older.has("notifications/initialized"))
        assert not newer.has("notifications/initialized")


async def test_ids_of_two_sockets_differ_so_no_answer_is_taken_for_another(relay: RunningRelay) -> None:
    waiting: list[Message] = []
    async with ScriptedPage(relay.url, "notes") as first:
        first.on_call = lambda page, message: waiting.append(message)
        one = asyncio.create_task(relay.call("notes", "slow"))
        await first.until(lambda: len(waiting) == 1)
        async with ScriptedPage(relay.url, "notes") as second:
            second.on_call = first.on_call
            two = asyncio.create_task(relay.call("notes", "slow"))
            await second.until(lambda: len(waiting) == 2)
            for message, number in zip(waiting, (1, 2), strict=True):
                await second.send(jsonrpc.result_message(message["id"], {"content": [], "n": number}))
            assert [(await task).json()["result"]["n"] for task in (one, two)] == [1, 2]


async def test_a_page_of_another_origin_answers_nothing(relay: RunningRelay) -> None:
    """Both pages are admitted while neither is initialized; then the name belongs to the first that is."""
    async with (
        ScriptedPage(relay.url, "notes", origin=OTHER_ORIGIN, never_answers=True) as stranger,
        ScriptedPage(relay.url, "notes") as page,
    ):
        page.on_call = lambda page, message: None
        running = asyncio.create_task(relay.call("notes", "slow"))
        await page.until(lambda: bool(page.calls))
        id = page.calls[0]["id"]
        # The answer to the ping shows that the relay has read the forged one.
        await stranger.send(jsonrpc.result_message(id, {"forged": True}), jsonrpc.request("p", "ping"))
        await stranger.until(lambda: stranger.answer_to("p") is not None)
        await page.send(jsonrpc.result_message(id, {"content": []}))
        assert "forged" not in (await running).json()["result"]
