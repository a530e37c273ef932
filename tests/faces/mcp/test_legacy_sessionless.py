"""Requests of the handshake era without a session, over real HTTP, with a synthetic worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabserver.wire import jsonrpc
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Kind
from tests.support.child_specs import child
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.2, servers=("notes",)) as relay:
        yield relay


def call(id: int = 5, **arguments: Any) -> dict[str, Any]:
    return jsonrpc.request(id, "tools/call", {"name": "echo", "arguments": arguments})


@pytest.mark.parametrize("headers", [{}, {"MCP-Protocol-Version": "2025-06-18"}], ids=["without_version", "2025-06-18"])
async def test_a_request_without_a_session_is_answered(relay: RunningRelay, headers: dict[str, str]) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        answer = await relay.http.post("/notes", json=call(x=2), headers=headers)
        assert answer.json()["result"]["content"][0]["text"] == '{"x": 2}'
        assert "mcp-session-id" not in answer.headers
        [opened] = [event for event in worker.seen if isinstance(event, Opened) and event.caller.ready]
        assert opened.caller.version == headers.get("MCP-Protocol-Version", "2025-03-26")
        assert not opened.caller.capabilities
        await worker.until(lambda: opened.channel in {e.channel for e in worker.seen if isinstance(e, Closed)})
        # What a client that ignores the session id sends after `initialize`.
        note = jsonrpc.notification("notifications/initialized")
        assert (await relay.http.post("/notes", json=note, headers=headers)).status_code == 202


async def test_requests_with_the_same_id_do_not_meet(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        waiting: list[tuple[Received[str], dict[str, Any]]] = []
        worker.on_call = lambda worker, event, message: waiting.append((event, message))
        running = [asyncio.create_task(relay.http.post("/notes", json=call(x=number))) for number in range(3)]
        await worker.until(lambda: len(waiting) == 3)
        # A log message of a call has no reader, and does not end the call.
        event = waiting[0][0]
        worker.send(event, Kind.NOTE, jsonrpc.notification("notifications/message", {"level": "info", "data": "x"}))
        for event, message in reversed(waiting):
            worker.echo(event, message)
        await worker.flush()
        answers = [(await one).json() for one in running]
        assert [answer["id"] for answer in answers] == [5, 5, 5]
        assert [answer["result"]["content"][0]["text"] for answer in answers] == [f'{{"x": {n}}}' for n in range(3)]


async def test_lists_are_answered_while_the_browser_is_away(relay: RunningRelay) -> None:
    listed = await relay.http.post("/notes", json=jsonrpc.request(1, "tools/list"))
    assert listed.json()["result"] == {"tools": []}
    assert (await relay.http.post("/notes", json=jsonrpc.request(1, "ping"))).json()["result"] == {}
    failed = await relay.http.post("/notes", json=call())
    assert (failed.status_code, failed.json()["error"]["code"]) == (200, -31010)


async def test_a_token_is_needed_as_ever(relay: RunningRelay) -> None:
    refused = await relay.http.post("/notes", json=call(), headers={"Authorization": "Bearer no"})
    assert refused.status_code == 401


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_upstream_answers_too(tmp_path: Path, era: Any) -> None:
    async with RunningRelay(tmp_path, specs=[child("far", era=era)]) as relay:
        await relay.has_read("far")
        for _ in range(2):
            answer = await relay.http.post("/far", json=call())
            assert answer.json()["result"]["content"][0]["text"] == "{}"
