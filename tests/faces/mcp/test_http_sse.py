"""HTTP+SSE of 2024-11-05, over real HTTP, with a synthetic worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client

from tabserver.wire import jsonrpc
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

GREETING = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.1, servers=("notes", "other")) as relay:
        yield relay


@pytest.fixture
async def worker(relay: RunningRelay) -> AsyncIterator[SyntheticWorker]:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        yield worker


class OldClient:
    """One stream, and the address from its endpoint event."""

    def __init__(self, http: httpx2.AsyncClient, stream: httpx2.Response) -> None:
        self._http = http
        self._lines = stream.aiter_lines()
        self.endpoint = ""

    async def event(self) -> tuple[str, str]:
        name = ""
        async with asyncio.timeout(BOUND_S):
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    return name, line[6:]
                assert not line.startswith("id: ")
        raise AssertionError("the stream ended")

    async def post(self, message: Any) -> httpx2.Response:
        return await self._http.post(self.endpoint, json=message)

    async def ask(self, id: int, method: str, params: dict[str, Any] | None = None) -> Any:
        response = await self.post(jsonrpc.request(id, method, params))
        assert (response.status_code, response.text) == (202, "Accepted")
        return await self.message()

    async def message(self) -> Any:
        name, data = await self.event()
        assert name == "message"
        return json.loads(data)


@asynccontextmanager
async def opened(relay: RunningRelay, server: str = "notes") -> AsyncIterator[OldClient]:
    async with relay.http.stream("GET", f"/{server}/sse", headers={"Accept": "text/event-stream"}) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        client = OldClient(relay.http, stream)
        name, client.endpoint = await client.event()
        assert name == "endpoint" and client.endpoint.startswith(f"/{server}/messages?session_id=")
        yield client


@pytest.mark.requirement("http-sse")
async def test_a_whole_conversation_goes_over_the_two_addresses(relay: RunningRelay, worker: SyntheticWorker) -> None:
    def progress_then_answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.send(
            event, Kind.NOTE, jsonrpc.notification("notifications/progress", {"progressToken": 1, "progress": 1})
        )
        worker.echo(event, message)

    worker.on_call = progress_then_answer
    async with opened(relay) as client:
        assert (await client.ask(1, "initialize", GREETING))["result"]["serverInfo"]["name"] == "synthetic"
        assert (await client.post(jsonrpc.notification("notifications/initialized"))).status_code == 202
        assert (await client.ask(2, "tools/list"))["result"]["tools"][0]["name"] == "echo"
        first = await client.ask(3, "tools/call", {"name": "echo", "arguments": {"x": 1}})
        assert first["method"] == "notifications/progress"
        assert (await client.message())["result"]["content"][0]["text"] == '{"x": 1}'


@pytest.mark.requirement("http-sse")
async def test_what_belongs_to_no_request_comes_on_the_same_stream(
    relay: RunningRelay, worker: SyntheticWorker
) -> None:
    async with opened(relay) as client:
        await client.ask(1, "initialize", GREETING)
        channel = next(e.channel for e in reversed(worker.seen) if isinstance(e, Opened))
        note = jsonrpc.notification("notifications/resources/updated", {"uri": "note:///1"})
        worker.link.send(channel, Kind.NOTE, json.dumps(note), asyncio.get_running_loop().time())
        await worker.flush()
        assert await client.message() == note


@pytest.mark.requirement("http-sse")
async def test_the_stream_is_the_session(relay: RunningRelay, worker: SyntheticWorker) -> None:
    async with opened(relay) as client:
        await client.ask(1, "initialize", GREETING)
    await worker.until(lambda: any(isinstance(e, Closed) and e.why == "the client left" for e in worker.seen))
    assert (await client.post(jsonrpc.request(2, "tools/list"))).status_code == 404


@pytest.mark.requirement("http-sse")
async def test_a_relay_that_stops_answers_what_was_asked_before_the_stream_ends(
    relay: RunningRelay, worker: SyntheticWorker
) -> None:
    waiting: list[Received[str]] = []
    worker.on_call = lambda worker, event, message: waiting.append(event)
    async with opened(relay) as client, opened(relay) as idle:
        await client.ask(1, "initialize", GREETING)
        await client.post(jsonrpc.request(2, "tools/call", {"name": "echo"}))
        await worker.until(lambda: bool(waiting))
        draining = asyncio.create_task(relay.drain.run())
        # New requests are refused on the stream; a stream without requests ends at once.
        assert (await client.ask(3, "tools/call", {"name": "echo"}))["error"]["code"] == -31015
        late = await idle.post(jsonrpc.request(1, "initialize", GREETING))
        assert (late.status_code, late.json()["error"]["data"]["reason"]) == (503, "relay_unavailable")
        worker.answer(waiting[0], {"content": []})
        await worker.flush()
        assert (await client.message())["result"] == {"content": []}
    await draining


@pytest.mark.requirement("http-sse")
async def test_bad_messages_are_refused_and_the_stream_goes_on(relay: RunningRelay, worker: SyntheticWorker) -> None:
    async with opened(relay) as client:
        post = relay.http.post
        assert (await post("/notes/messages", json={})).status_code == 400
        assert (await post("/notes/messages?session_id=short", json={})).status_code == 400
        assert (await post(f"/notes/messages?session_id={'0' * 32}", json={})).status_code == 404
        assert (await post(client.endpoint.replace("notes", "other"), json={})).status_code == 404
        broken = await post(client.endpoint, content=b"{", headers={"Content-Type": "application/json"})
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, -32700)
        assert (await post(client.endpoint, content=b"{}", headers={"Content-Type": "text/plain"})).status_code == 415
        assert (await client.post([])).status_code == 400
        assert (await client.post({"jsonrpc": "2.0", "id": None, "method": "ping"})).status_code == 400
        early = await client.ask(1, "tools/list")
        assert early["error"]["code"] == -32600
        assert "result" in await client.ask(2, "initialize", GREETING)
        again = await client.ask(3, "initialize", GREETING)
        assert again["error"]["data"]["reason"] == "already_initialized"
        thief = relay.tokens.issue_for_page(None, None, ("call",))
        stolen = await post(client.endpoint, json={}, headers={"Authorization": f"Bearer {thief}"})
        assert stolen.status_code == 404


@pytest.mark.requirement("http-sse")
async def test_other_methods_and_places_are_refused(relay: RunningRelay) -> None:
    for method, path, allowed in (("POST", "/notes/sse", "GET"), ("GET", "/notes/messages", "POST")):
        response = await relay.http.request(method, path, json={})
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert (await relay.http.get("/notes/sse", headers={"Accept": "application/json"})).status_code == 406
    assert (await relay.http.get("/unknown/sse")).status_code == 404
    assert (await relay.http.get("/notes/else")).status_code == 404


@pytest.mark.requirement("errors")
async def test_a_call_fails_with_the_reason_when_the_browser_is_away(relay: RunningRelay) -> None:
    async with opened(relay) as client:
        assert "result" in await client.ask(1, "initialize", GREETING)
        assert (await client.ask(2, "tools/list"))["result"] == {"tools": []}
        error = (await client.ask(3, "tools/call", {"name": "echo"}))["error"]
        assert (error["code"], error["data"]["reason"]) == (-31010, "server_offline")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.requirement("http-sse")
async def test_the_official_client_works_over_it(relay: RunningRelay, worker: SyntheticWorker, mode: Any) -> None:
    headers = {"Authorization": f"Bearer {relay.token}"}
    async with Client(sse_client(f"{relay.url}/notes/sse", headers=headers), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]
        result = await client.call_tool("echo", {"x": 1})
        assert json.loads(result.content[0].text) == {"x": 1}  # type: ignore[union-attr]
