"""Streams of legacy sessions: event ids, resuming, pauses, questions of the server, batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.faces.mcp.event_store import EventStore, SessionStreams
from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import BOUND_S

FORM = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}
CLOSE_STREAM = jsonrpc.notification("$/tabrelay/closeStream", {"retryMs": 70})


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.2, servers=("notes",)) as relay:
        yield relay


@pytest.fixture
async def worker(relay: RunningRelay) -> AsyncIterator[SyntheticWorker]:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        yield worker


def call(id: int | str = 5, **arguments: Any) -> dict[str, Any]:
    return jsonrpc.request(id, "tools/call", {"name": "slow", "arguments": arguments})


def waiting(worker: SyntheticWorker) -> list[Received[str]]:
    """From now on calls wait until the test answers them."""
    found: list[Received[str]] = []
    worker.on_call = lambda worker, event, message: found.append(event)
    return found


def fields(text: str, name: str) -> list[str]:
    return [line.removeprefix(f"{name}: ") for line in text.splitlines() if line.startswith(f"{name}: ")]


def progress(step: int) -> dict[str, Any]:
    return jsonrpc.notification("notifications/progress", {"progressToken": 1, "progress": step})


class Lines:
    """The lines of an open stream."""

    def __init__(self, stream: httpx2.Response) -> None:
        self._lines = stream.aiter_lines()

    async def next(self, start: str) -> str:
        """The rest of the next line with this prefix."""
        async with asyncio.timeout(BOUND_S):
            async for text in self._lines:
                if text.startswith(start):
                    return text.removeprefix(start)
        raise AssertionError(f"the stream ended before {start!r}")

    async def message(self) -> Any:
        return json.loads("{" + await self.next("data: {"))

    async def event_id(self) -> str:
        return await self.next("id: ")


@pytest.mark.parametrize(("version", "is_primed"), [("2025-03-26", False), ("2025-06-18", False), ("2025-11-25", True)])
@pytest.mark.requirement("legacy-resume")
async def test_events_have_ids_and_only_the_newest_clients_are_primed(
    relay: RunningRelay, worker: SyntheticWorker, version: str, is_primed: bool
) -> None:
    def speak(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.send(event, Kind.NOTE, progress(1))
        worker.echo(event, message)

    worker.on_call = speak
    _, headers = await relay.initialize("notes", version)
    text = (await relay.http.post("/notes", json=call(), headers=headers)).text
    ids = fields(text, "id")
    assert [id.rpartition("_")[2] for id in ids] == (["0", "1", "2"] if is_primed else ["1", "2"])
    assert len({id.rpartition("_")[0] for id in ids}) == 1
    assert fields(text, "retry") == (["500"] if is_primed else [])
    assert text.startswith(f"id: {ids[0]}\nretry: 500\ndata: \n\n") is is_primed
    assert [json.loads(data).get("id") for data in events(text)] == [None, 5]


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("application/json, text/event-stream", False),
        ("text/event-stream, application/json", True),
        ("application/json;q=0.5, text/event-stream", True),
        ("text/event-stream;q=0.9, application/json", False),
        ("text/event-stream, */*;q=0.1", True),
        ("text/event-stream, */*", False),
        ("*/*", False),
    ],
)
@pytest.mark.requirement("legacy-prefers-stream")
async def test_a_client_that_prefers_streams_can_resume_an_answer_that_came_at_once(
    relay: RunningRelay, worker: SyntheticWorker, accept: str, is_stream: bool
) -> None:
    _, headers = await relay.initialize("notes")
    headers["Accept"] = accept
    response = await relay.http.post("/notes", json=call(), headers=headers)
    assert (response.status_code, response.headers["content-type"] == "text/event-stream") == (200, is_stream)
    if is_stream:
        primed, last = fields(response.text, "id")
        assert last == primed.removesuffix("0") + "1"
        again = await relay.http.get("/notes", headers={**headers, "Last-Event-ID": primed})
        assert events(again.text) == events(response.text)
        assert json.loads(events(again.text)[0])["id"] == 5


@pytest.mark.requirement("modern-json-or-stream")
async def test_a_modern_client_gets_json_whatever_it_prefers(relay: RunningRelay, worker: SyntheticWorker) -> None:
    request = relay.modern("tools/call", {"name": "slow"})
    request["headers"]["Accept"] = "text/event-stream, application/json;q=0.1"
    response = await relay.http.post("/notes", **request)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")


@pytest.mark.requirement("legacy-resume")
async def test_a_call_goes_on_without_its_client_and_the_rest_is_replayed(
    relay: RunningRelay, worker: SyntheticWorker
) -> None:
    calls = waiting(worker)
    _, headers = await relay.initialize("notes")
    async with relay.http.stream("POST", "/notes", json=call(), headers=headers) as lost:
        await worker.until(lambda: bool(calls))
        worker.send(calls[0], Kind.NOTE, progress(1))
        await worker.flush()
        lines = Lines(lost)
        await lines.next("retry")
        last = await lines.event_id()
    worker.send(calls[0], Kind.NOTE, progress(2))
    worker.answer(calls[0], {"content": []})
    await worker.flush()
    assert not any('"notifications/cancelled"' in getattr(event, "payload", "") for event in worker.seen)
    again = await relay.http.get("/notes", headers={**headers, "Last-Event-ID": last})
    assert again.headers["content-type"] == "text/event-stream"
    rest = [json.loads(data) for data in events(again.text)]
    assert rest[0]["params"]["progress"] == 2
    assert rest[1] == jsonrpc.result_message(5, {"content": []})
    once_more = await relay.http.get("/notes", headers={**headers, "Last-Event-ID": last})
    assert events(once_more.text) == events(again.text)


@pytest.mark.requirement("legacy-resume")
async def test_a_replay_is_of_the_named_stream_only(relay: RunningRelay, worker: SyntheticWorker) -> None:
    calls = waiting(worker)
    _, headers = await relay.initialize("notes")

    async def lose(id: int) -> str:
        async with relay.http.stream("POST", "/notes", json=call(id), headers=headers) as stream:
            return await Lines(stream).event_id()

    first, second = await lose(1), await lose(2)
    for event in calls:
        worker.answer(event, {"content": []})
    await worker.flush()
    for id, last in ((1, first), (2, second)):
        text = (await relay.http.get("/notes", headers={**headers, "Last-Event-ID": last})).text
        assert [json.loads(data)["id"] for data in events(text)] == [id]


@pytest.mark.parametrize("last", ["nonsense", "abc-1_0", "_", "x_99999999999999999999"])
@pytest.mark.requirement("legacy-resume")
async def test_an_unknown_event_id_is_refused(relay: RunningRelay, worker: SyntheticWorker, last: str) -> None:
    _, headers = await relay.initialize("notes")
    response = await relay.http.get("/notes", headers={**headers, "Last-Event-ID": last})
    assert (response.status_code, response.json()["error"]["data"]["reason"]) == (400, "unknown_event")


@pytest.mark.requirement("legacy-resume")
async def test_another_sessions_events_are_not_replayed(relay: RunningRelay, worker: SyntheticWorker) -> None:
    waiting(worker)
    _, mine = await relay.initialize("notes")
    _, yours = await relay.initialize("notes")
    async with relay.http.stream("POST", "/notes", json=call(), headers=mine) as stream:
        last = await Lines(stream).event_id()
    response = await relay.http.get("/notes", headers={**yours, "Last-Event-ID": last})
    assert response.status_code == 400


@pytest.mark.requirement("legacy-close-stream")
async def test_the_server_may_end_a_stream_and_the_call_goes_on(relay: RunningRelay, worker: SyntheticWorker) -> None:
    calls = waiting(worker)

    def close_first(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        calls.append(event)
        worker.send(event, Kind.NOTE, CLOSE_STREAM)

    worker.on_call = close_first
    _, headers = await relay.initialize("notes")
    first = await relay.http.post("/notes", json=call(), headers=headers)
    assert fields(first.text, "retry") == ["500", "70"]
    assert events(first.text) == [] and "closeStream" not in first.text
    last = fields(first.text, "id")[-1]
    async with relay.http.stream("GET", "/notes", headers={**headers, "Last-Event-ID": last}) as rest:
        worker.answer(calls[0], {"content": []})
        await worker.flush()
        assert (await Lines(rest).message())["id"] == 5


@pytest.mark.requirement("legacy-close-stream")
async def test_an_older_clients_stream_is_not_ended_early(relay: RunningRelay, worker: SyntheticWorker) -> None:
    def close_first(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.send(event, Kind.NOTE, CLOSE_STREAM)
        worker.echo(event, message)

    worker.on_call = close_first
    _, headers = await relay.initialize("notes", "2025-06-18")
    response = await relay.http.post("/notes", json=call(), headers=headers)
    assert response.json()["id"] == 5


@pytest.mark.requirement("modern-no-server-requests")
async def test_a_modern_client_never_receives_the_request_to_close(
    relay: RunningRelay, worker: SyntheticWorker
) -> None:
    def close_first(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.send(event, Kind.NOTE, CLOSE_STREAM)
        worker.echo(event, message)

    worker.on_call = close_first
    assert (await relay.call("notes", "slow")).json()["id"] == 1


@pytest.mark.requirement("legacy-questions")
async def test_a_question_comes_on_the_calls_own_stream_and_its_answer_reaches_the_worker(
    relay: RunningRelay, worker: SyntheticWorker
) -> None:
    calls = waiting(worker)
    _, headers = await relay.initialize("notes")
    async with relay.http.stream("POST", "/notes", json=call(), headers=headers) as stream:
        await worker.until(lambda: bool(calls))
        question = jsonrpc.request("s1", "elicitation/create", FORM)
        now = asyncio.get_running_loop().time()
        worker.link.send(calls[0].channel, Kind.REQ, json.dumps(question), now, id="s1", related=5)
        await worker.flush()
        lines = Lines(stream)
        assert await lines.message() == question
        # A key named "method" does not turn an answer into a notification.
        reply = jsonrpc.result_message("s1", {"action": "accept", "content": {"method": "post"}})
        assert (await relay.http.post("/notes", json=reply, headers=headers)).status_code == 202
        await worker.until(lambda: any(isinstance(e, Received) and e.kind is Kind.RES for e in worker.seen))
        [answer] = [event for event in worker.seen if isinstance(event, Received) and event.kind is Kind.RES]
        assert (answer.channel, answer.id, json.loads(answer.payload)) == (calls[0].channel, None, reply)
        worker.answer(calls[0], {"content": []})
        await worker.flush()
        assert (await lines.message())["id"] == 5


@pytest.mark.requirement("legacy-questions")
async def test_a_question_of_no_call_comes_on_the_get_stream(relay: RunningRelay, worker: SyntheticWorker) -> None:
    calls = waiting(worker)
    _, headers = await relay.initialize("notes")
    async with relay.http.stream("GET", "/notes", headers=headers) as stream:
        running = asyncio.create_task(relay.http.post("/notes", json=call(), headers=headers))
        await worker.until(lambda: bool(calls))
        ping = jsonrpc.request("s2", "ping")
        now = asyncio.get_running_loop().time()
        worker.link.send(calls[0].channel, Kind.REQ, json.dumps(ping), now, id="s2")
        await worker.flush()
        assert await Lines(stream).message() == ping
        worker.answer(calls[0], {"content": []})
        await worker.flush()
        await running


@pytest.mark.requirement("modern-no-server-requests")
async def test_a_modern_client_is_never_sent_a_question(relay: RunningRelay, worker: SyntheticWorker) -> None:
    def ask(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        now = asyncio.get_running_loop().time()
        question = json.dumps(jsonrpc.request("s1", "ping"))
        worker.link.send(event.channel, Kind.REQ, question, now, id="s1", related=event.id)
        worker.link.send(event.channel, Kind.NOTE, question, now, related=event.id)
        worker.echo(event, message)

    worker.on_call = ask
    response = await relay.call("notes", "slow")
    assert response.headers["content-type"] == "application/json"
    assert response.json()["id"] == 1


@pytest.mark.requirement("legacy-resume")
async def test_a_lost_get_stream_resumes_where_it_was(relay: RunningRelay, worker: SyntheticWorker) -> None:
    calls = waiting(worker)
    _, headers = await relay.initialize("notes")
    running = asyncio.create_task(relay.http.post("/notes", json=call(), headers=headers))
    await worker.until(lambda: bool(calls))

    async def say(uri: str) -> None:
        note = json.dumps(jsonrpc.notification("notifications/resources/updated", {"uri": uri}))
        worker.link.send(calls[0].channel, Kind.NOTE, note, asyncio.get_running_loop().time())
        await worker.flush()

    async with relay.http.stream("GET", "/notes", headers=headers) as stream:
        await say("a:1")
        lines = Lines(stream)
        last = await lines.event_id()
        # The client lost the stream, but the relay has not noticed. The newer reader gets it.
        async with relay.http.stream("GET", "/notes", headers={**headers, "Last-Event-ID": last}) as again:
            await say("a:2")
            assert (await Lines(again).message())["params"] == {"uri": "a:2"}
            with pytest.raises(AssertionError, match="ended"):
                await lines.event_id()
    worker.answer(calls[0], {"content": []})
    await worker.flush()
    await running


@pytest.mark.requirement("legacy-batch")
async def test_a_batch_is_answered_with_an_array(relay: RunningRelay, worker: SyntheticWorker) -> None:
    _, headers = await relay.initialize("notes", "2025-03-26")
    batch = [
        call(1, x=1),
        jsonrpc.notification("notifications/initialized"),
        call("two"),
        jsonrpc.request(3, "no/such"),
    ]
    response = await relay.http.post("/notes", json=batch, headers=headers)
    answers = {answer["id"]: answer for answer in response.json()}
    assert answers[1]["result"]["content"][0]["text"] == '{"x": 1}'
    assert "result" in answers["two"] and answers[3]["error"]["code"] == -32601
    silent = await relay.http.post("/notes", json=batch[1:2], headers=headers)
    assert (silent.status_code, silent.content) == (202, b"")


@pytest.mark.parametrize(
    "batch", [[], [1], [call(1), call(1)], [jsonrpc.request(1, "initialize", {})], [{"method": 1}]]
)
@pytest.mark.requirement("legacy-batch")
async def test_a_batch_that_breaks_a_rule_is_refused_whole(
    relay: RunningRelay, worker: SyntheticWorker, batch: list[Any]
) -> None:
    _, headers = await relay.initialize("notes", "2025-03-26")
    response = await relay.http.post("/notes", json=batch, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
    assert worker.calls == []


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
@pytest.mark.requirement("legacy-batch")
async def test_other_versions_have_no_batches(relay: RunningRelay, worker: SyntheticWorker, version: str) -> None:
    _, headers = await relay.initialize("notes", version)
    response = await relay.http.post("/notes", json=[call()], headers=headers)
    assert response.status_code == 400


@pytest.mark.requirement("legacy-resume")
async def test_what_is_kept_is_bounded_and_a_stream_that_is_read_stays() -> None:
    memory = EventStore(most_bytes=100)
    streams = SessionStreams(memory)
    read, old, new = streams.open(1), streams.open(1), streams.open(1)
    read.reader = object()
    read.add(b"r" * 40)
    old.add(b"o" * 40)
    new.add(b"n" * 40)
    assert [len(stream.after(0)) for stream in (read, old, new)] == [1, 0, 1]
    assert memory.held == 80
    # A stream with dropped events can't be resumed, and neither can one after an event that was never sent.
    assert streams.find(old.event_id(0)) is None
    assert streams.find(new.event_id(0)) == (new, 0)
    assert streams.find(new.event_id(2)) is None
    for _ in range(40):
        stream = streams.open(1)
        stream.finish()
    assert streams.find(stream.event_id(0)) is not None
    assert len(streams._by_id) <= 3 + 17
    streams.end()
    assert memory.held == 0
