"""The legacy face, over real HTTP, with a synthetic worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabserver.wire import jsonrpc
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import BOUND_S, pause


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.2, servers=("notes", "other")) as relay:
        yield relay


@pytest.fixture
async def worker(relay: RunningRelay) -> AsyncIterator[SyntheticWorker]:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        yield worker


def call(tool: str = "echo", id: int | str = 5, **arguments: Any) -> dict[str, Any]:
    return jsonrpc.request(id, "tools/call", {"name": tool, "arguments": arguments})


@pytest.mark.requirement("initialize-opens-session")
async def test_initialize_opens_a_session_and_calls_use_it(relay: RunningRelay, worker: SyntheticWorker) -> None:
    response, headers = await relay.initialize("notes")
    assert response.json()["result"]["serverInfo"]["name"] == "synthetic"
    assert len(headers["Mcp-Session-Id"]) >= 22
    note = await relay.http.post("/notes", json=jsonrpc.notification("notifications/initialized"), headers=headers)
    assert (note.status_code, note.content) == (202, b"")
    answer = await relay.http.post("/notes", json=call(x=2), headers=headers)
    assert answer.json()["result"]["content"][0]["text"] == '{"x": 2}'
    assert answer.headers["mcp-session-id"] == headers["Mcp-Session-Id"]


@pytest.mark.requirement("legacy-streams")
async def test_progress_goes_to_the_stream_of_its_own_request(relay: RunningRelay, worker: SyntheticWorker) -> None:
    def progress_then_answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.send(
            event, Kind.NOTE, jsonrpc.notification("notifications/progress", {"progressToken": 1, "progress": 1})
        )
        worker.echo(event, message)

    worker.on_call = progress_then_answer
    _, headers = await relay.initialize("notes")
    response = await relay.http.post("/notes", json=call(), headers=headers)
    first, last = map(json.loads, events(response.text))
    assert first["method"] == "notifications/progress"
    assert last["id"] == 5


@pytest.mark.requirement("legacy-cancel")
async def test_cancelled_is_passed_on_to_the_worker(relay: RunningRelay, worker: SyntheticWorker) -> None:
    waiting: list[Received[str]] = []
    worker.on_call = lambda worker, event, message: waiting.append(event)
    _, headers = await relay.initialize("notes")
    running = asyncio.create_task(relay.http.post("/notes", json=call(), headers=headers))
    await worker.until(lambda: bool(waiting))
    cancelled = jsonrpc.notification("notifications/cancelled", {"requestId": 5})
    assert (await relay.http.post("/notes", json=cancelled, headers=headers)).status_code == 202
    await worker.until(lambda: any('"notifications/cancelled"' in getattr(e, "payload", "") for e in worker.seen))
    worker.send(waiting[0], Kind.RES, jsonrpc.error_message(5, jsonrpc.REQUEST_CANCELLED, "cancelled"))
    await worker.flush()
    body = (await running).text
    assert json.loads(events(body)[-1] if body.startswith(("event", ":")) else body)["error"]["code"] == -32800


@pytest.mark.requirement("legacy-cancel")
async def test_cancelled_reaches_a_worker_that_was_away_when_it_comes_back(
    relay: RunningRelay, worker: SyntheticWorker
) -> None:
    worker.on_call = lambda worker, event, message: None
    _, headers = await relay.initialize("notes")
    running = asyncio.create_task(relay.http.post("/notes", json=call(), headers=headers))
    await worker.until(lambda: bool(worker.calls))
    await worker.cut()
    async with asyncio.timeout(BOUND_S):
        while any(row["state"] == "online" for row in (await relay.http.get("/-/status")).json()["servers"]):
            await pause()  # the relay has not noticed the cut yet
    cancelled = jsonrpc.notification("notifications/cancelled", {"requestId": 5})
    assert (await relay.http.post("/notes", json=cancelled, headers=headers)).status_code == 202
    await worker.dial()
    await worker.until(lambda: any('"notifications/cancelled"' in getattr(e, "payload", "") for e in worker.seen))
    running.cancel()


@pytest.mark.requirement("legacy-streams")
async def test_the_get_stream_carries_what_belongs_to_no_request(relay: RunningRelay, worker: SyntheticWorker) -> None:
    _, headers = await relay.initialize("notes")
    async with relay.http.stream("GET", "/notes", headers=headers) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        second = await relay.http.get("/notes", headers=headers)
        assert second.status_code == 409
        channel = next(event.channel for event in reversed(worker.seen) if isinstance(event, Opened))
        note = jsonrpc.notification("notifications/resources/updated", {"uri": "note:///1"})
        worker.link.send(channel, Kind.NOTE, json.dumps(note), asyncio.get_running_loop().time())
        await worker.flush()
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                assert json.loads(line[6:]) == note
                break


@pytest.mark.requirement("session-delete")
async def test_delete_ends_the_session_here_and_at_the_worker(relay: RunningRelay, worker: SyntheticWorker) -> None:
    _, headers = await relay.initialize("notes")
    assert (await relay.http.delete("/notes", headers=headers)).status_code == 204
    assert (await relay.http.post("/notes", json=call(), headers=headers)).status_code == 404
    await worker.until(lambda: any(isinstance(event, Closed) for event in worker.seen))


@pytest.mark.requirement("session-of-one-credential")
async def test_a_session_is_of_one_server_and_one_credential(relay: RunningRelay, worker: SyntheticWorker) -> None:
    _, headers = await relay.initialize("notes")
    other_server = await relay.http.post("/other", json=call(), headers=headers)
    assert other_server.status_code == 404
    thief = relay.tokens.issue_for_page(None, None, ("call",))
    stolen = await relay.http.post("/notes", json=call(), headers={**headers, "Authorization": f"Bearer {thief}"})
    unknown = await relay.http.post("/notes", json=call(), headers={**headers, "Mcp-Session-Id": "x" * 32})
    assert stolen.status_code == unknown.status_code == 404
    assert stolen.json() == unknown.json()
    assert (await relay.http.post("/notes", json=call(), headers=headers)).status_code == 200


@pytest.mark.requirement("session-required")
async def test_no_session_id_and_a_bad_version_are_refused(relay: RunningRelay) -> None:
    for method, params in (("logging/setLevel", {"level": "info"}), ("resources/subscribe", {"uri": "a://b"})):
        missing = await relay.http.post("/notes", json=jsonrpc.request(5, method, params))
        assert (missing.status_code, missing.json()["id"]) == (400, 5)
        assert f'"{method}" needs a session' in missing.json()["error"]["message"]
        assert "mcp-session-id" not in missing.headers
    assert (await relay.http.post("/notes", json=jsonrpc.result_message(1, {}))).status_code == 400
    assert (await relay.http.post("/notes", json=[call()])).status_code == 400
    _, headers = await relay.initialize("notes")
    headers["MCP-Protocol-Version"] = "1999-01-01"
    assert (await relay.http.post("/notes", json=call(), headers=headers)).status_code == 400


@pytest.mark.requirement("session-outlives-page")
async def test_a_session_outlives_the_worker(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes", inst="first"):
        _, headers = await relay.initialize("notes")
    async with SyntheticWorker(relay.url, relay.token, "notes", inst="second") as second:
        answer = await relay.http.post("/notes", json=call(), headers=headers)
        assert answer.json()["id"] == 5
        opened = [event for event in second.seen if isinstance(event, Opened)]
        assert any(event.caller.ready for event in opened)


@pytest.mark.requirement("discovery-while-away")
async def test_initialize_answers_while_the_browser_is_away(relay: RunningRelay) -> None:
    response, headers = await relay.initialize("notes", "2025-06-18")
    assert response.json()["result"]["protocolVersion"] == "2025-06-18"
    listed = await relay.http.post("/notes", json=jsonrpc.request(1, "tools/list"), headers=headers)
    assert listed.json()["result"] == {"tools": []}
    failed = await relay.http.post("/notes", json=call(), headers=headers)
    assert (failed.status_code, failed.json()["error"]["code"]) == (200, -31010)


@pytest.mark.parametrize("id", [None, 1.5, True, {}, []])
@pytest.mark.requirement("request-id-types")
async def test_an_id_of_another_type_is_refused(relay: RunningRelay, worker: SyntheticWorker, id: object) -> None:
    _, headers = await relay.initialize("notes")
    response = await relay.http.post("/notes", json={**call(), "id": id}, headers=headers)
    assert (response.status_code, response.json()["error"]["code"], response.json()["id"]) == (400, -32600, None)
    assert (await relay.http.post("/notes", json=call(), headers=headers)).json()["id"] == 5


@pytest.mark.parametrize(
    ("body", "change", "status", "code"),
    [
        (b"{", {}, 400, -32700),
        (b'{"a": NaN}', {}, 400, -32700),
        (b"[" * 10_000, {}, 400, -32700),
        (b'{"id":1,"method":"ping","params":' + b"[" * 9_000 + b"]" * 9_000 + b"}", {}, 400, None),
        (b" " * (5 * 1024 * 1024), {}, 413, -32600),
        (b"{}", {"Content-Type": "text/plain"}, 415, -32600),
        (b"{}", {"Accept": "application/json"}, 406, -32600),
        (b"{}", {}, 400, -32600),
        (b"7", {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":9}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":9,"method":7}', {}, 400, -32600),
    ],
)
@pytest.mark.requirement("bad-input")
async def test_bad_input_gets_a_clear_error_and_the_session_goes_on(
    relay: RunningRelay, worker: SyntheticWorker, body: bytes, change: dict[str, str], status: int, code: int | None
) -> None:
    _, headers = await relay.initialize("notes")
    sent = {"Content-Type": "application/json", **headers, **change}
    response = await relay.http.post("/notes", content=body, headers=sent)
    assert response.status_code == status
    assert code is None or response.json()["error"]["code"] == code
    assert (await relay.http.post("/notes", json=call(), headers=headers)).json()["id"] == 5


@pytest.mark.requirement("legacy-questions")
async def test_an_answer_to_no_request_is_accepted_and_dropped(relay: RunningRelay, worker: SyntheticWorker) -> None:
    _, headers = await relay.initialize("notes")
    for reply in (jsonrpc.result_message("unknown", {}), jsonrpc.error_message("unknown", -1, "no")):
        response = await relay.http.post("/notes", json=reply, headers=headers)
        assert (response.status_code, response.content) == (202, b"")
    assert (await relay.http.post("/notes", json=call(), headers=headers)).json()["id"] == 5


@pytest.mark.requirement("session-required")
async def test_a_session_header_that_is_there_twice_is_refused(relay: RunningRelay, worker: SyntheticWorker) -> None:
    _, headers = await relay.initialize("notes")
    doubled = [*headers.items(), ("Mcp-Session-Id", headers["Mcp-Session-Id"])]
    assert (await relay.http.post("/notes", json=call(), headers=doubled)).status_code == 400
    unknown = await relay.http.post("/notes", json=jsonrpc.request(8, "no/such"), headers=headers)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (200, -32601)
