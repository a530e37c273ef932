"""No request of a console takes more than 50 ms of the event loop thread's CPU time in one callback, and none fails
because of what it or a call contains."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tabrelay.http.json_body import MAX_LARGE, MAX_VALUES
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.behaviour.test_loop_time import ANSWER, JSON, LIMIT_MS, Answering, slowest, warm_up, with_arguments
from tests.support.json_shapes import largest
from tests.support.measured_relay import MeasuredRelay, Slow, measured_relay
from tests.support.running_relay import modern
from tests.support.waiting import BOUND_S

SHAPES = ("numbers", "keys", "empty lists", "strings of 60", "objects with their own keys", "towers", "escapes")
NOTICE = 200 * 1024
CALL = modern("tools/call", {"name": "echo", "arguments": {}})


class Noticing(Answering):
    """Sends `count` long notices before its answer."""

    count = 0

    def _received(self, event: Received[str]) -> None:
        if event.kind is Kind.REQ and '"tools/call"' in event.payload[:300]:
            params = f'{{"level":"info","data":{largest("numbers", NOTICE)}}}' if self.count else ""
            for _ in range(self.count):
                note = f'{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}'
                self.send_text(event, Kind.NOTE, note)
        super()._received(event)


@asynccontextmanager
async def watched(home: Path) -> AsyncIterator[tuple[MeasuredRelay, Noticing]]:
    """A relay with an open console."""
    async with (
        measured_relay(home, rate_s=0) as relay,
        Noticing(relay.url, relay.token, "notes") as worker,
        relay.http.stream("GET", "/-/console/events", timeout=None) as stream,
    ):
        reading = asyncio.create_task(stream.aread())
        try:
            await warm_up(relay)
            yield relay, worker
        finally:
            reading.cancel()


def too_slow(found: dict[str, Slow]) -> dict[str, Slow]:
    return {name: each for name, each in found.items() if each.ms > LIMIT_MS}


async def newest(relay: MeasuredRelay, is_over: bool = True) -> str:
    """The id of the newest captured call."""
    async with asyncio.timeout(BOUND_S):
        while True:
            row = (await relay.http.get("/-/console/calls", params={"limit": 1})).json()["rows"][0]
            if row["ms"] is not None or not is_over:
                return str(row["id"])


def body_of(shape: str, **more: Any) -> bytes:
    """A body of this shape that is as large as the limits permit."""
    text = largest(shape, MAX_LARGE - 4096, MAX_VALUES - 2000)
    whole = {"server": "notes", "method": "tools/call", "params": {"name": "echo", "arguments": {"a": "PLACE"}}, **more}
    return json.dumps(whole).replace('"PLACE"', text).encode()


async def test_calls_that_a_console_runs_and_sends_again(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with watched(tmp_path) as (relay, _):
        for shape in SHAPES:

            async def run(shape: str = shape, **more: Any) -> None:
                answer = await relay.http.post("/-/console/run", content=body_of(shape, **more), headers=JSON)
                assert answer.status_code == 202, answer.text
                await newest(relay)

            slow[shape] = await slowest(relay, run)
            await relay.http.post("/notes", **with_arguments(largest(shape, 250_000)))
            original = await newest(relay)
            slow[f"{shape} again"] = await slowest(relay, lambda run=run, of=original: run(of=of))  # type: ignore[misc]
    assert too_slow(slow) == {}


async def test_details_of_calls_with_long_messages(tmp_path: Path) -> None:
    async with watched(tmp_path) as (relay, worker):
        worker.count = 30
        text = largest("numbers", 250_000)
        worker.result_text = f'{{"resultType":"complete","content":[],"structuredContent":{text}}}'
        asked = modern("tools/call", {"name": "echo", "arguments": {"a": "b" * 250_000}})
        await relay.http.post("/notes", **asked)
        id = await newest(relay)
        detail = (await relay.http.get(f"/-/console/calls/{id}")).json()
        assert 0 < len(detail["notices"]) < 10 and detail["dropped"] > 20

        async def read() -> None:
            assert (await relay.http.get(f"/-/console/calls/{id}")).status_code == 200

        async def read_many() -> None:
            answer = await relay.http.post("/-/console/details", json={"ids": [id, "none", id, *["more"] * 97]})
            assert len(answer.json()["details"]) == 1

        slow = {"one": await slowest(relay, read), "many": await slowest(relay, read_many)}
    assert too_slow(slow) == {}


async def test_messages_that_are_held(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}

    async with watched(tmp_path) as (relay, worker):
        found = await relay.http.put("/-/console/breakpoints", json={"breakpoints": [{"at": "result"}]})
        assert found.status_code == 200

        async def held() -> str:
            async with asyncio.timeout(BOUND_S):
                while True:
                    if rows := (await relay.http.get("/-/console/breakpoints")).json()["held"]:
                        return str(rows[0]["id"])

        def holding(shape: str, size: int, edit: Callable[[str], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            text = largest(shape, size, MAX_VALUES - 2000)
            worker.result_text = f'{{"resultType":"complete","content":[],"structuredContent":{text}}}'

            async def attack() -> None:
                calling = asyncio.create_task(relay.http.post("/notes", **CALL))
                await edit(await held())
                assert (await calling).status_code == 200

            return attack

        async def show_and_edit(id: str) -> None:
            shown = (await relay.http.get(f"/-/console/held/{id}")).json()
            result = {"resultType": "complete", "content": shown["result"]["content"]}
            content = json.dumps({"do": "release", "result": result | {"structuredContent": "PLACE"}})
            text = content.replace('"PLACE"', largest("numbers", 300_000)).encode()
            answer = await relay.http.post(f"/-/console/held/{id}", content=text, headers=JSON)
            assert answer.status_code == 204, answer.text

        async def release_a_long_one(id: str) -> None:
            assert (await relay.http.get(f"/-/console/held/{id}")).json()["truncated"] is True
            edited = await relay.http.post(f"/-/console/held/{id}", json={"do": "release", "result": {}})
            assert edited.status_code == 400 and "too long" in edited.text
            released = await relay.http.post(f"/-/console/held/{id}", json={"do": "release"})
            assert released.status_code == 204

        for shape in SHAPES:
            slow[shape] = await slowest(relay, holding(shape, 900_000, show_and_edit))
        slow["a long one"] = await slowest(relay, holding("text", ANSWER, release_a_long_one))
    assert too_slow(slow) == {}


async def test_names_and_texts_of_every_kind_are_answered_with_a_reason(tmp_path: Path) -> None:
    """What can't be encoded, is no text, or is too long is refused; nothing fails and nothing stays running."""
    bodies = [
        b'{"server":"notes","method":"tools/call","params":{"name":"\\ud800"}}',
        b'{"server":"\\udfff","method":"tools/call","params":{"name":"x"}}',
        b'{"server":"notes","method":"tools/call","params":{"name":"echo","arguments":{"a":NaN}}}',
        b'{"server":"notes","method":"tools/call","params":{"name":"echo","arguments":%s}}'
        % (b'{"a":' * 300 + b"1" + b"}" * 300),
        b'{"server":"%s","method":"tools/call","params":{"name":"x"}}' % (b"a" * 100_000),
        b'{"server":"notes","method":"%s","params":{}}' % (b"a" * 100_000),
        b'{"server":["notes"],"method":{"a":1},"params":[]}',
        b'{"of":"%s"}' % (b"a" * 100_000),
        b'{"of":{"a":[]},"responses":[]}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"",
    ]
    paths = ("/-/console/run", "/-/console/details", "/-/console/faults", "/-/console/held/h1", "/-/drift", "/-/forget")
    async with watched(tmp_path) as (relay, _):
        for body in bodies:
            for path in paths:
                answer = await relay.http.post(path, content=body, headers=JSON)
                assert 400 <= answer.status_code < 500, (path, body[:80], answer.text)
            for path in ("/-/console/breakpoints", "/-/acp/me"):
                answer = await relay.http.put(path, content=body, headers=JSON)
                assert 400 <= answer.status_code < 500, (path, body[:80], answer.text)
        large = b'{"server":"notes","method":"tools/call","params":{"name":"echo","arguments":{"a":%d}}}' % 10**30
        assert (await relay.http.post("/-/console/run", content=large, headers=JSON)).status_code == 202
        for query in ("since=x", "since=" + "9" * 5000, "since=-1e9"):
            assert (await relay.http.get(f"/-/console/events?{query}")).status_code == 400
        for query in ("before=x", "limit=" + "9" * 5000, "group=" + "%ff" * 1000, "limit=-5"):
            assert (await relay.http.get(f"/-/console/calls?{query}")).status_code in (200, 400)

        await newest(relay)
        rows = (await relay.http.get("/-/console/calls")).json()["rows"]
        assert [row["name"] for row in rows if row["by"] == "console"] == ["echo"]
        assert [row for row in rows if row["ms"] is None] == []
