"""Long replies that are never joined: a client gets the browser's reply unchanged, or an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.http import exchange
from tabrelay.payloads import json_skeleton
from tabrelay.payloads.sliced import SlicedCodec, SlicedPayload, text_of
from tabserver.wire.events import Received
from tabserver.wire.frames import Greeting, Kind, Terms
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay

LONG = 'a "quoted" line\nand ünï© 🦀 ' * 20_000  # about ten slices
OPENING = '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"'


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[tuple[RunningRelay, SyntheticWorker]]:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        yield relay, worker


def says(worker: SyntheticWorker, text: str) -> None:
    """Answers every call with this text."""

    def answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.send_text(event, Kind.RES, text)

    worker.on_call = answer


@pytest.mark.parametrize("is_ascii", [True, False])
async def test_a_long_result_arrives_unchanged(stage: tuple[RunningRelay, SyntheticWorker], is_ascii: bool) -> None:
    relay, worker = stage
    result = {"resultType": "complete", "content": [{"type": "text", "text": LONG}]}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}, ensure_ascii=is_ascii)
    says(worker, text)
    answer = await relay.call("notes", "long")
    assert answer.content == text.encode()
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_a_long_result_arrives_in_a_session_at_once_and_as_a_stream(
    stage: tuple[RunningRelay, SyntheticWorker],
) -> None:
    relay, worker = stage
    _, session = await relay.initialize("notes")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "long", "arguments": {}}}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": LONG}]}})
    says(worker, text)
    assert (await relay.http.post("/notes", json=body, headers=session)).text == text
    waiting: list[Received[str]] = []
    worker.on_call = lambda worker, event, message: waiting.append(event)
    running = asyncio.create_task(relay.http.post("/notes", json=body | {"id": 2}, headers=session))
    await worker.until(lambda: bool(waiting))
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "soon"}}
    worker.link.send(waiting[0].channel, Kind.NOTE, json.dumps(note), 0.0, related=2)
    said = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": LONG}]}})
    worker.send_text(waiting[0], Kind.RES, said)
    await worker.flush()
    assert f"data: {said}\n\n" in (await running).text


@pytest.mark.parametrize(
    "text",
    [
        OPENING + "x" * 300_000,  # it does not end
        OPENING + "x" * 100_000 + "\x01" + "x" * 100_000 + '"}]}}',
        OPENING + "x" * 100_000 + "\n" + "x" * 100_000 + '"}]}}',
        OPENING + "x" * 200_000 + '"}]}',
        OPENING + "x" * 200_000 + '"}]}}\n{}',
        OPENING + "x" * 200_000 + '\\q"}]}}',
        OPENING.replace('"id":1', '"id":2') + "x" * 200_000 + '"}]}}',
        '{"jsonrpc":"2.0","id":1,"other":"' + "x" * 200_000 + '"}',
        "x" * 200_000,
    ],
)
async def test_a_long_answer_that_is_none_is_refused_and_the_browser_stays(
    stage: tuple[RunningRelay, SyntheticWorker], text: str
) -> None:
    relay, worker = stage
    says(worker, text)
    assert (await relay.call("notes", "long")).json()["error"]["data"]["reason"] == "bad_answer"
    worker.on_call = SyntheticWorker.echo
    assert "result" in (await relay.call("notes", "echo")).json()


async def test_a_long_error_is_one_for_the_relay_too(stage: tuple[RunningRelay, SyntheticWorker]) -> None:
    relay, worker = stage
    error = {"code": -32602, "message": "no", "data": LONG}
    says(worker, json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}))
    assert (await relay.call("notes", "long")).json()["error"] == error


@pytest.mark.parametrize("id", ["é" * 1_024, "🦀" * 1_024, "x" * 1_024])
async def test_a_long_id_is_still_the_requests_however_it_is_written(
    stage: tuple[RunningRelay, SyntheticWorker], id: str
) -> None:
    relay, worker = stage
    content = [{"type": "text", "text": LONG}]
    says(worker, json.dumps({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "content": content}}))
    request = relay.modern("tools/call", {"name": "long", "arguments": {}}, id=id)
    answer = (await relay.http.post("/notes", **request)).json()
    assert answer["id"] == id and answer["result"]["content"] == content


async def test_others_have_their_turn_while_a_long_answer_is_written() -> None:
    turns: list[str] = []

    async def send(message: Any) -> None:
        turns.append("a piece")

    async def other() -> None:
        for _ in range(3):
            turns.append("another")
            await asyncio.sleep(0)

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "headers": []}
    writing = exchange.Exchange(scope, receive, send).json(200, SlicedPayload([b"a", b"b", b"c"], None))
    await asyncio.gather(writing, other())
    assert turns == ["a piece", "a piece", "another", "a piece", "another", "a piece", "another"]


async def test_a_client_that_takes_a_little_now_and_then_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "STALL_S", 0.5)
    monkeypatch.setattr(exchange, "RENEW_S", 0.1)
    got: list[bytes] = []
    never = asyncio.Event()

    async def send(message: Any) -> None:
        got.append(message.get("body", b""))
        if message.get("body") == b"y":
            await never.wait()
        await asyncio.sleep(0.2)

    async def receive() -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "headers": []}
    slow = exchange.Exchange(scope, receive, send)
    await slow.json(200, SlicedPayload([b"x"] * 5, None))
    assert (b"".join(got), slow.is_gone) == (b"xxxxx", False)
    await slow.json(200, SlicedPayload([b"y"] * 5, None))
    assert slow.is_gone


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ('["' + "x" * 900 + '"]', 904 + 4),  # the string is scanned, and kept once
        ("[" + "1," * 450 + "1]", 2 * 903),
        ("[" + '"é",' * 225 + "1]", 903 + 225 + 4 * 903),
    ],
    ids=["string", "numbers", "text"],
)
def test_what_is_held_of_a_message_that_is_not_complete_counts(
    text: str, cost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_skeleton, "SHORT", 8)
    budget, limits = MemoryBudget(1 << 20), Limits(max_part=100, max_message=10_000)
    worker: Link[str] = Link.dialer(Greeting("s", "w", "b"), limits)
    relay: Link[Any] = Link.accepter(Terms("sid", "e", "b", max_message=10_000), limits, SlicedCodec(200_000), budget)
    used = [0]

    def cross() -> None:
        is_busy = True
        while is_busy:
            to_relay = worker.frames()
            for header, payload in to_relay:
                relay.receive(header, payload, 0.0)
                used.append(budget.used)
            to_worker = relay.frames()
            for header, payload in to_worker:
                worker.receive(header, payload, 0.0)
            is_busy = bool(to_relay or to_worker)

    worker.connected(0.0)
    relay.connected(0.0)
    cross()
    worker.send("c", Kind.RES, text, 0.0, id=1)
    cross()
    [whole] = [event.payload for event in relay.events() if isinstance(event, Received)]
    assert text_of(whole) == text
    assert cost * 0.8 < max(used) <= cost
    assert budget.used == 0


def test_slices_can_be_joined_to_one_text() -> None:
    long = SlicedPayload(["ä".encode(), b"b"], None)
    assert (len(long), text_of(long), list(long)) == (3, "äb", ["ä".encode(), b"b"])
