"""Clients that use another relay for every request: sessions, streams, pairing, the status."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tabrelay.faces.mcp.session_store import SessionStore, digest
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests import canary
from tests.support.link_worker import SyntheticWorker
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.relay_pair import Pair, request
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until


async def test_a_session_goes_on_at_another_relay(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        _, session = await pair.a.initialize("notes")
        for relay in (pair.b, pair.a, pair.b):
            call = request("tools/call", {"name": "echo", "arguments": {"x": 1}})
            response = await relay.http.post("/notes", json=call, headers=session)
            assert response.json()["result"]["content"][0]["text"] == '{"x": 1}'


async def test_a_session_that_was_ended_at_one_relay_is_ended_at_the_others(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        _, session = await pair.a.initialize("notes")
        assert (await pair.b.http.post("/notes", json=request("ping"), headers=session)).status_code == 200
        assert (await pair.a.http.delete("/notes", headers=session)).status_code == 204

        async def is_dead() -> bool:
            return (await pair.b.http.post("/notes", json=request("ping"), headers=session)).status_code == 404

        await until(is_dead)


def test_a_late_notification_does_not_undo_the_end_of_a_session() -> None:
    store = SessionStore(None)
    store.end("id", 20.0)
    assert store.receive(digest("id"), {"last_used": 30, "level": "debug"}) is None
    record = store.find("id")
    assert record is not None and record.is_ended


async def test_a_message_for_a_stream_of_2024_is_refused_as_long_as_no_relay_can_be_asked(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        await pair.b.has_read("notes")
        pair.hub.cut()
        address = f"/notes/messages?session_id={'0' * 32}"
        refused = await pair.b.http.post(address, json=request("ping"))
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (503, "relay_unavailable")


async def test_a_stream_of_2024_takes_messages_at_any_relay(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        await pair.a.has_found("notes")
        lines: list[str] = []

        async def listen() -> None:
            async with pair.a.http.stream("GET", "/notes/sse", headers={"Accept": "text/event-stream"}) as response:
                async for line in response.aiter_lines():
                    lines.append(line)

        listening = asyncio.create_task(listen())
        await until(lambda: any(line.startswith("data: /notes/messages") for line in lines))
        [address] = [line.removeprefix("data: ") for line in lines if line.startswith("data: /notes/messages")]
        about = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        assert (await pair.b.http.post(address, json=request("initialize", about, id=1))).status_code == 202
        await until(lambda: any('"serverInfo"' in line for line in lines))
        call = request("tools/call", {"name": "echo", "arguments": {"x": 2}}, id=2)
        assert (await pair.b.http.post(address, json=call)).status_code == 202
        await until(lambda: any('{\\"x\\": 2}' in line for line in lines))
        made_up = address[:-4] + "0000"
        assert (await pair.b.http.post(made_up, json=call)).status_code == 404
        listening.cancel()
        pair.a.recorder.wrong.clear()  # it has received the answers to requests that were sent to the other relay


async def test_a_pairing_code_of_one_relay_is_good_once_and_at_any_of_them(tmp_path: Path) -> None:
    hub, url = MemoryBroker(), "https://relay.test"
    async with (
        RunningRelay(tmp_path, bus=MemoryBus(hub), public_url=url) as a,
        RunningRelay(tmp_path, bus=MemoryBus(hub), public_url=url) as b,
    ):
        await a.knows(nodes=2)
        await b.knows(nodes=2)
        record = {"Origin": url, "Host": "relay.test"}
        for giver, taker in ((a, b), (b, a)):
            code = (await giver.http.post("/-/codes", json={})).json()["url"].rpartition("#pair=")[2]
            response = await taker.http.post("/-/pair", json={"code": code}, headers=record)
            assert response.status_code == 200, response.text
            canary.register(response.json()["token"])
            again = await giver.http.post("/-/pair", json={"code": code}, headers=record)
            assert again.status_code != 200


async def test_the_status_of_every_relay_shows_all_nodes_and_all_servers(pair: Pair) -> None:
    async with pair.worker(pair.a, "here"), pair.worker(pair.b, "there"):
        await pair.a.has_read("here")
        await pair.b.has_read("there")
        seen = []
        for relay in (pair.a, pair.b):
            status = (await relay.http.get("/-/status")).json()
            assert {row["name"]: row["state"] for row in status["servers"] if row["name"] != "shared"} == {
                "here": "online",
                "there": "online",
            }
            assert {row["mcp_url"] for row in status["servers"]} == {
                f"{relay.url}/{name}" for name in ("here", "there", "shared")
            }
            assert [node["is_this"] for node in status["nodes"]] == [True, False]
            seen.append({row["name"]: row.get("node") for row in status["servers"]})
        assert seen[0] == seen[1]
        assert seen[0]["here"] != seen[0]["there"]


async def test_a_pin_made_at_one_relay_counts_at_another(pair: Pair) -> None:
    asked: list[Received[str]] = []
    async with pair.worker(pair.b, "notes") as worker:

        def pin(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
            asked.append(event)
            if len(asked) == 1:
                worker.send(event, Kind.NOTE, {"jsonrpc": "2.0", "method": "$/tabrelay/pin", "params": {"tab": "t1"}})
            worker.answer(event, {"content": []})

        worker.on_call = pin
        await pair.a.call("notes", "echo")

        async def is_pinned() -> bool:
            await pair.b.call("notes", "echo")
            return asked[-1].caller is not None and asked[-1].caller.tab == "t1"

        await until(is_pinned)
