"""Large messages to and from upstream servers arrive unchanged; those of too many values fail their call at once."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from tabrelay.http.sse_parser import SseParser
from tabrelay.peers.upstreams import large_messages
from tabrelay.peers.upstreams.large_messages import LARGE, LargeMessageStore, MessageLimits, small_events, to_message
from tests.peers.upstreams.transports.test_http import legacy, modern, relay_for
from tests.support.child_specs import child, until
from tests.support.fake_upstream import Reply
from tests.support.running_relay import RunningRelay, events

ROWS = [{"name": f"row {number}", "values": [number, number / 7, None, "é" * (number % 50)]} for number in range(3_000)]
MANY = {"content": [], "structuredContent": {"numbers": [1] * 150_000}}


def answering(way: str, result: Any) -> Any:
    async def handle(reply: Reply) -> None:
        if way == "json":
            await reply.result(result)
            return
        await reply.stream()
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": ROWS}}
        await reply.event(note)
        await reply.answer(result)
        await reply.end()

    return handle


def _held() -> int:
    """Messages in all stores of this process."""
    gc.collect()
    deposits = [each for each in gc.get_objects() if isinstance(each, LargeMessageStore)]
    return sum(len(each._inbound) + len(each._outbound) for each in deposits)


@pytest.mark.parametrize("way", ["json", "stream"])
@pytest.mark.parametrize("era", [legacy, modern])
async def test_large_answers_and_requests_arrive_as_they_were_sent(tmp_path: Path, way: str, era: Any) -> None:
    result = {"content": [], "structuredContent": {"rows": ROWS}, "resultType": "complete"}
    assert len(json.dumps(result)) > LARGE
    async with era(call=answering(way, result)) as server, relay_for(tmp_path, server) as relay:
        answer = await relay.call("far", "t", {"rows": ROWS})
        [*notes, said] = events(answer.text) if "event-stream" in answer.headers["content-type"] else [answer.text]
        assert json.loads(said)["result"]["structuredContent"] == {"rows": ROWS}
        assert [json.loads(note)["params"]["data"] for note in notes] in ([], [ROWS])
        assert _held() == 0
        assert server.all("tools/call")[0].message["params"]["arguments"] == {"rows": ROWS}


@pytest.mark.parametrize("way", ["json", "stream"])
async def test_an_answer_of_too_many_values_over_http_fails_its_call_at_once(tmp_path: Path, way: str) -> None:
    async with legacy(call=answering(way, MANY)) as server, relay_for(tmp_path, server, max_values=100_000) as relay:
        async with asyncio.timeout(20):
            answer = await relay.call("far", "t")
        said = events(answer.text)[-1] if "event-stream" in answer.headers["content-type"] else answer.text
        assert json.loads(said)["error"]["data"]["reason"] == "result_too_large"
        assert "100,000 values" in json.loads(said)["error"]["message"]


async def test_an_answer_of_too_many_values_from_a_process_fails_its_call_at_once(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("far")], max_values=100_000) as relay:
        sent = {"numbers": [1] * 60_000}
        said = (await relay.call("far", "echo", sent)).json()["result"]
        assert json.loads(said["content"][0]["text"]) == sent
        async with asyncio.timeout(20):
            refused = (await relay.call("far", "large", {"numbers": 120_000})).json()["error"]
        assert refused["data"]["reason"] == "result_too_large"


async def test_what_the_sdk_does_not_pass_on_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_messages, "DROP_S", 0.01)
    deposit = LargeMessageStore()

    async def chunks() -> AsyncIterator[bytes]:
        note = {"jsonrpc": "2.0", "method": "a", "params": {"text": "x" * LARGE}}
        yield f"data: {json.dumps(note)}\n\n".encode()

    events = small_events(chunks(), deposit, MessageLimits(10**6, 10**6), lambda data: None)
    assert len(await anext(events)) < 200 and deposit._inbound
    await events.aclose()
    await until(lambda: not deposit._inbound)


def test_a_stored_message_is_found_only_by_its_own_ticket() -> None:
    deposit, other = LargeMessageStore(), LargeMessageStore()
    large = {"jsonrpc": "2.0", "id": 3, "result": {"text": "x" * LARGE}}
    _, text = deposit.replace(large)
    small = to_message(json.loads(text))
    assert isinstance(small, JSONRPCResponse) and len(small.model_dump_json()) < 200
    assert other.restore(small) is small
    assert deposit.restore(small) == to_message(large)
    lost = deposit.restore(small)  # once
    assert isinstance(lost, JSONRPCError) and lost.id == 3


def test_a_request_that_is_cancelled_before_it_is_sent_leaves_nothing_behind() -> None:
    deposit = LargeMessageStore()
    put = deposit.put(JSONRPCRequest(jsonrpc="2.0", id=3, method="tools/call", params={"text": "x" * LARGE}))
    claimed = deposit.claim(put.model_dump())
    assert claimed is not None and claimed[1] is not None and len(claimed[1]) > LARGE
    deposit.put(to_message({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}))
    assert deposit.claim(put.model_dump()) == (claimed[0], None)


def test_the_data_of_an_error_is_kept() -> None:
    deposit = LargeMessageStore()
    large = {"jsonrpc": "2.0", "id": 3, "error": {"code": -1, "message": "no", "data": ["x" * LARGE]}}
    found = deposit.restore(to_message(json.loads(deposit.replace(large)[1])))
    assert isinstance(found, JSONRPCError)
    assert (found.error.code, found.error.message, found.error.data) == (-1, "no", ["x" * LARGE])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_events_are_found_however_they_are_cut(end: str, size: int) -> None:
    first = ["\ufeff: hello", "event: a", "data: 1", "data:2", "id:7", "x: y", ""]
    text = end.join([*first, "", "data", "", "data: 3", "", ""])
    data, reader = text.encode(), SseParser(1_000)
    found = [event for at in range(0, len(data), size) for event in reader.feed(data[at : at + size])]
    assert [(event.data, event.fields) for event in found] == [
        (b"1\n2", {b"event": b"a", b"id": b"7"}),
        (b"", {}),
        (b"3", {}),
    ]
    assert found[0].text() == b"event: a\nid: 7\ndata: 1\ndata: 2\n\n"


def test_an_event_that_is_too_long_is_recognised_by_its_beginning_and_the_next_is_read() -> None:
    reader = SseParser(100)
    [long, next] = [*reader.feed(b'data: {"id":1,' + b"x" * 200), *reader.feed(b"\n\ndata: 2\n\n")]
    assert long.is_too_long and long.data.startswith(b'{"id":1,x')
    assert (next.data, next.is_too_long) == (b"2", False)
