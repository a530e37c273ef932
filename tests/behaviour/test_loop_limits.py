"""Answers to messages that would take too long to parse, and what well-behaved users may still send."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.settings import MIB, Settings
from tabrelay.peers.browsers.peer import MAX_CONTROL
from tabrelay.routing.instances import read_tabs
from tabserver.wire.events import Received
from tabserver.wire.frames import CLOSE_TOO_BIG, Kind
from tabserver.wire.limits import LARGEST_PART
from tests.behaviour.test_memory_attacks import closed, dial, greeted
from tests.support.link_worker import SyntheticWorker
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import RunningRelay

MOST = Settings().max_values


class Answering(SyntheticWorker):
    """Answers every call with this result."""

    result: dict[str, Any]

    def _received(self, event: Received[str]) -> None:
        if event.kind is Kind.REQ and '"tools/call"' in event.payload[:300]:
            self.answer(event, self.result)
        else:
            super()._received(event)


async def test_a_small_message_of_too_many_values_is_refused(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, max_values=1_000) as relay,
        Answering(relay.url, relay.token, "notes") as worker,
    ):
        worker.result = {"content": [], "structuredContent": {"table": [1] * 2_000}}
        refused = (await relay.call("notes", "echo")).json()["error"]
        assert refused["data"]["reason"] == "result_too_large"
        assert "1,000 values" in refused["message"]
        worker.result = {"content": [], "structuredContent": {"table": [1] * 900}}
        assert "result" in (await relay.call("notes", "echo")).json()


@pytest.mark.parametrize(
    "header", ['{"t":"ack","a":0,"x":"' + "x" * 100 + '"}', '{"t":"msg","s":1,"a":0,"c":"c","k":"note"}']
)
async def test_a_frame_that_should_have_come_in_slices_ends_the_session(tmp_path: Path, header: str) -> None:
    async with RunningRelay(tmp_path) as relay, dial(relay, "notes") as socket:
        await greeted(socket, "notes")
        await socket.send(header + "\n" + "x" * (LARGEST_PART + 1))
        assert await closed(socket) == CLOSE_TOO_BIG


async def test_a_frame_header_of_many_values_ends_the_session(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, dial(relay, "notes") as socket:
        await greeted(socket, "notes")
        await socket.send('{"t":"ack","a":0,"x":[' + "1," * 100_000 + "1]}")
        assert await closed(socket) == CLOSE_TOO_BIG


async def test_a_note_about_tabs_that_is_too_long_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(said: Any) -> Any:
        seen.append(said.get("used"))
        return read_tabs(said)

    monkeypatch.setattr("tabrelay.peers.browsers.endpoint.read_tabs", spy)
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        await worker.until(lambda: bool(worker._relay_channels()))
        tabs = [{"id": "a", "title": "A", "visible": True}]
        for used, padding in ((1, MAX_CONTROL), (2, MAX_CONTROL - 4_096)):
            await worker._notify_relay("$/tabrelay/tabs", {"tabs": tabs, "used": used, "more": "x" * padding})
        await relay.has_read("notes", lambda row: bool(row["tabs"]))
        assert [used for used in seen if used is not None] == [2]


async def test_an_answer_of_a_plain_page_with_too_many_values_fails_its_call_at_once(tmp_path: Path) -> None:
    def answer(page: ScriptedPage, message: dict[str, Any]) -> None:
        count = message["params"]["arguments"]["count"]
        page.answer(message, {"content": [], "structuredContent": {"table": [1] * count}})

    async with RunningRelay(tmp_path, plain=("notes",)) as relay, ScriptedPage(relay.url, "notes") as page:
        page.on_call = answer
        async with asyncio.timeout(20):
            refused = (await relay.call("notes", "echo", {"count": MOST + 1})).json()["error"]
        assert refused["data"]["reason"] == "result_too_large"
        said = (await relay.call("notes", "echo", {"count": MOST * 9 // 10})).json()["result"]
        assert len(said["structuredContent"]["table"]) == MOST * 9 // 10


async def test_a_list_that_is_too_long_asks_for_pages(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        await relay.has_read("notes")
        worker.tools = [{"name": "large", "description": "x" * (5 * MIB), "inputSchema": {"type": "object"}}]
        refused = (await relay.http.post("/notes", **relay.modern("tools/list"))).json()["error"]
        assert refused["data"]["reason"] == "result_too_large"
        assert "nextCursor" in refused["message"]


async def test_messages_of_well_behaved_users_are_within_the_limits(tmp_path: Path) -> None:
    def tool(number: int) -> dict[str, Any]:
        fields = {f"field_{n}": {"type": "string", "description": "What this field is for."} for n in range(5)}
        schema = {"type": "object", "properties": fields, "required": ["field_1"], "additionalProperties": False}
        about = "A tool with a description of some words. " * 4
        return {"name": f"tool_{number}", "description": about, "inputSchema": schema}

    async with (
        RunningRelay(tmp_path, max_tools=2_000, max_list=4 * MIB) as relay,
        Answering(relay.url, relay.token, "notes") as worker,
    ):
        worker.tools = [tool(number) for number in range(2_000)]
        listed = (await relay.http.post("/notes", **relay.modern("tools/list"))).json()["result"]["tools"]
        assert len(listed) == 2_000
        rows = [{f"column {n}": n * 1.5 for n in range(10)} for _ in range(5_000)]
        numbers = [number / 7 for number in range(50_000)]
        texts = ["A paragraph of an article, which is a text like others. " * 4] * 60_000
        for content in (
            {"rows": rows},
            {"numbers": numbers},
            {"picture": "QUJD" * (15 * MIB // 4)},
            {"texts": texts},
        ):
            worker.result = {"content": [], "structuredContent": content}
            assert json.loads((await relay.call("notes", "echo")).content)["result"]["structuredContent"] == content
        sent = await relay.call("notes", "echo", {"numbers": numbers, "rows": rows[:1_000], "text": "x" * 2 * MIB})
        assert "result" in sent.json()
