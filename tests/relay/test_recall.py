"""Discovery while a browser is away, and the news when the one that comes has other lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.relay import RunningRelay
from tests.support.worker import ECHO_TOOL, SyntheticWorker

CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "logging": {},
}
TEMPLATE = {"uriTemplate": "note:///{id}", "name": "note"}


class Librarian(SyntheticWorker):
    """Offers everything that can be listed, in pages of two."""

    def __init__(self, relay: RunningRelay, inst: str = "w1", prompts: int = 1) -> None:
        super().__init__(relay.url, relay.token, "notes", inst=inst)
        self.lists: dict[str, tuple[str, list[dict[str, Any]]]] = {
            "tools/list": ("tools", [ECHO_TOOL]),
            "resources/list": ("resources", [{"uri": f"note:///{n}", "name": f"n{n}"} for n in range(5)]),
            "resources/templates/list": ("resourceTemplates", [TEMPLATE]),
            "prompts/list": ("prompts", [{"name": f"p{n}"} for n in range(prompts)]),
        }

    def _received(self, event: Received[str]) -> None:
        message = json.loads(event.payload)
        method, params = message.get("method"), message.get("params") or {}
        if method == "initialize":
            about = {"name": "synthetic", "version": "1"}
            told = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": about}
            self.answer(event, told | {"instructions": "Be brief."})
        elif method in self.lists:
            key, items = self.lists[method]
            start = int(params.get("cursor", 0))
            more = {"nextCursor": str(start + 2)} if start + 2 < len(items) else {}
            self.answer(event, {key: items[start : start + 2]} | more)
        elif method == "subscriptions/listen":
            meta = {"io.modelcontextprotocol/subscriptionId": event.id}
            said = {"notifications": params["notifications"], "_meta": meta}
            self.send(event, Kind.NOTE, jsonrpc.notification("notifications/subscriptions/acknowledged", said))
        else:
            super()._received(event)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.1, grace_s=0.1, servers=("notes",)) as relay:
        yield relay


EXPECTED = {
    "tools/list": ("tools", ["echo"]),
    "resources/list": ("resources", ["n0", "n1", "n2", "n3", "n4"]),
    "resources/templates/list": ("resourceTemplates", ["note"]),
    "prompts/list": ("prompts", ["p0"]),
}


async def check_lists(relay: RunningRelay, headers: dict[str, str]) -> None:
    for method, (key, names) in EXPECTED.items():
        legacy = (await relay.http.post("/notes", json=jsonrpc.request(1, method), headers=headers)).json()["result"]
        assert [item["name"] for item in legacy[key]] == names
        modern = (await relay.http.post("/notes", **relay.modern(method))).json()["result"]
        assert [item["name"] for item in modern[key]] == names
        assert (modern["resultType"], modern["ttlMs"], modern["cacheScope"]) == ("complete", 0, "private")


@pytest.mark.requirement("discovery-while-away")
async def test_every_list_is_remembered_whole_and_over_a_restart(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        async with Librarian(relay):
            assert (await relay.has_read("notes"))["stale"] is False
            _, headers = await relay.initialize("notes")
        await check_lists(relay, headers)
    async with RunningRelay(tmp_path) as relay:
        await check_lists(relay, headers)
        [row] = (await relay.http.get("/-/status")).json()["servers"]
        assert (row["state"], row["stale"]) == ("offline", True)
        response, _ = await relay.initialize("notes")
        result = response.json()["result"]
        assert (result["capabilities"], result["instructions"]) == (CAPABILITIES, "Be brief.")
        discovered = (await relay.http.post("/notes", **relay.modern("server/discover"))).json()["result"]
        assert (discovered["capabilities"], discovered["instructions"]) == (CAPABILITIES, "Be brief.")


@pytest.mark.requirement("discovery-while-away")
async def test_a_client_that_sets_its_log_level_first_can_connect_while_the_browser_is_away(
    relay: RunningRelay,
) -> None:
    async with Librarian(relay):
        await relay.has_read("notes")
    _, headers = await relay.initialize("notes")
    level = jsonrpc.request(1, "logging/setLevel", {"level": "debug"})
    assert (await relay.http.post("/notes", json=level, headers=headers)).json()["result"] == {}
    async with Librarian(relay, "w2") as worker:
        call = jsonrpc.request(2, "tools/call", {"name": "echo"})
        await relay.http.post("/notes", json=call, headers=headers)
        assert any('"logging/setLevel"' in getattr(event, "payload", "") for event in worker.seen)


async def message(lines: AsyncIterator[str]) -> dict[str, Any]:
    async with asyncio.timeout(10):
        async for line in lines:
            if line.startswith("data: {"):
                found: dict[str, Any] = json.loads(line[6:])
                return found
    raise AssertionError("the stream ended")


@pytest.mark.requirement("list-changed")
async def test_a_get_stream_hears_of_lists_that_differ_and_of_no_others(relay: RunningRelay) -> None:
    async with Librarian(relay):
        await relay.has_read("notes")
        _, headers = await relay.initialize("notes")
    async with relay.http.stream("GET", "/notes", headers=headers) as stream:
        lines = stream.aiter_lines()
        async with Librarian(relay, "w2", prompts=2):
            await relay.has_read("notes")
            assert await message(lines) == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}
        async with Librarian(relay, "w3", prompts=2):
            await relay.has_read("notes")
        async with Librarian(relay, "w4", prompts=1):
            # Had the third browser been news, its notice would come here first.
            await relay.has_read("notes")
            assert (await message(lines))["method"] == "notifications/prompts/list_changed"


LISTEN = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}


@pytest.mark.requirement("modern-listen")
async def test_a_modern_client_can_listen_while_the_browser_is_away(relay: RunningRelay) -> None:
    async with Librarian(relay):
        await relay.has_read("notes")
    request = relay.modern("subscriptions/listen", LISTEN, id="l1")
    async with relay.http.stream("POST", "/notes", **request) as stream:
        lines = stream.aiter_lines()
        first = await message(lines)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == LISTEN["notifications"]
        assert first["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l1"}
        async with Librarian(relay, "w2", prompts=3) as worker:
            news = await message(lines)
            assert news["method"] == "notifications/prompts/list_changed"
            assert news["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l1"}
            [asked] = [e for e in worker.seen if isinstance(e, Received) and "subscriptions/listen" in e.payload]
            note = jsonrpc.notification("notifications/tools/list_changed", news["params"])
            worker.send(asked, Kind.NOTE, note)
            await worker.flush()
            # The browser's own acknowledgement is not said again.
            assert await message(lines) == note
        # It does not come back: the stream ends in its own way, and the client listens anew.
        last = await message(lines)
        assert last["id"] == "l1" and last["result"]["resultType"] == "complete"


@pytest.mark.requirement("modern-listen")
async def test_a_held_listener_is_told_when_the_relay_stops(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        request = relay.modern("subscriptions/listen", LISTEN, id=7)
        async with relay.http.stream("POST", "/notes", **request) as stream:
            lines = stream.aiter_lines()
            assert (await message(lines))["method"] == "notifications/subscriptions/acknowledged"
            drained = asyncio.create_task(relay.drain.run())
            assert (await message(lines))["id"] == 7
        await drained
