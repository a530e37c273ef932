"""Discovery without a connected browser, and notifications when the next browser has other lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabserver.wire import jsonrpc
from tabserver.wire.events import Opened, Received
from tabserver.wire.frames import Kind
from tests.support.link_worker import ECHO_TOOL, MODERN, OTHER_TOOL, SyntheticWorker
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import BOUND_S

CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "logging": {},
}
LISTEN: dict[str, Any] = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
TEMPLATE = {"uriTemplate": "note:///{id}", "name": "note"}


class ListingWorker(SyntheticWorker):
    """Offers everything that can be listed, in pages of two."""

    def __init__(self, relay: RunningRelay, inst: str = "w1", prompts: int = 1) -> None:
        super().__init__(relay.url, relay.token, "notes", inst=inst)
        self.readings: list[Received[str]] = []
        self.is_confused = False
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
            read_again = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": about}
            self.answer(event, read_again | {"instructions": "Be brief."})
        elif method in self.lists:
            if method == "tools/list" and event.caller is None:
                self.readings.append(event)
            if self.is_confused:
                error = jsonrpc.error_message(message["id"], jsonrpc.INTERNAL_ERROR, "not now")
                self.send(event, Kind.RES, error)
                return
            key, items = self.lists[method]
            start = int(params.get("cursor", 0))
            more = {"nextCursor": str(start + 2)} if start + 2 < len(items) else {}
            self.answer(event, {key: items[start : start + 2]} | more | (MODERN if event.caller is not None else {}))
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


def result_of(response: httpx2.Response) -> dict[str, Any]:
    """The result of a response in either form."""
    is_stream = response.headers["content-type"] == "text/event-stream"
    message = json.loads(events(response.text)[-1]) if is_stream else response.json()
    assert "result" in message, message
    result: dict[str, Any] = message["result"]
    return result


@pytest.mark.parametrize("is_cut", [True, False], ids=["leaves", "is stuck"])
@pytest.mark.requirement("discovery-while-away")
async def test_discovery_does_not_fail_with_a_browser_that_has_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    # The relay notices that the browser left long before the other wait is over.
    monkeypatch.setattr("tabrelay.routing.switch.FALLBACK_S", 60.0 if is_cut else 0.1)
    asked: list[Received[str]] = []
    async with RunningRelay(tmp_path, grace_s=0.1 if is_cut else 60.0) as relay, ListingWorker(relay) as worker:
        await relay.has_read("notes")
        _, headers = await relay.initialize("notes")
        worker._received = asked.append  # type: ignore[assignment]  # and it answers nothing more
        level = jsonrpc.request("level", "logging/setLevel", {"level": "error"})
        async with asyncio.TaskGroup() as group:
            modern = {
                method: group.create_task(relay.http.post("/notes", **relay.modern(method, id=method)))
                for method in ("server/discover", *EXPECTED)
            }
            legacy = {
                method: group.create_task(
                    relay.http.post("/notes", json=jsonrpc.request(method, method), headers=headers)
                )
                for method in ("ping", *EXPECTED)
            }
            greeting = group.create_task(relay.initialize("notes"))
            setting = group.create_task(relay.http.post("/notes", json=level, headers=headers))
            expected = len(modern) + len(legacy) + 2
            await worker.until(lambda: sum(event.kind is Kind.REQ for event in asked) == expected)
            if is_cut:
                await worker.cut()
        for method, (key, names) in EXPECTED.items():
            assert [item["name"] for item in result_of(modern[method].result())[key]] == names
            assert [item["name"] for item in result_of(legacy[method].result())[key]] == names
        assert result_of(modern["server/discover"].result())["instructions"] == "Be brief."
        assert result_of(legacy["ping"].result()) == {} == result_of(setting.result())
        response, begun = greeting.result()
        assert result_of(response)["instructions"] == "Be brief."
        if not is_cut:
            return
        # Both sessions continue with the next browser, which receives the log level.
        async with ListingWorker(relay, inst="w2") as second:
            for session in (headers, begun):
                call = jsonrpc.request(9, "tools/call", {"name": "echo", "arguments": {}})
                assert result_of(await relay.http.post("/notes", json=call, headers=session))["content"]
            said = [event.payload for event in second.seen if isinstance(event, Received)]
            assert any('"logging/setLevel"' in payload and '"error"' in payload for payload in said)


@pytest.mark.requirement("discovery-while-away")
async def test_every_list_is_remembered_whole_and_over_a_restart(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        async with ListingWorker(relay):
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
    async with ListingWorker(relay):
        await relay.has_read("notes")
    _, headers = await relay.initialize("notes")
    level = jsonrpc.request(1, "logging/setLevel", {"level": "debug"})
    assert (await relay.http.post("/notes", json=level, headers=headers)).json()["result"] == {}
    async with ListingWorker(relay, "w2") as worker:
        call = jsonrpc.request(2, "tools/call", {"name": "echo"})
        await relay.http.post("/notes", json=call, headers=headers)
        assert any('"logging/setLevel"' in getattr(event, "payload", "") for event in worker.seen)


async def message(lines: AsyncIterator[str]) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        async for line in lines:
            if line.startswith("data: {"):
                found: dict[str, Any] = json.loads(line[6:])
                return found
    raise AssertionError("the stream ended")


@pytest.mark.requirement("list-changed")
async def test_a_get_stream_gets_changes_of_lists_that_differ_and_of_no_others(relay: RunningRelay) -> None:
    async with ListingWorker(relay):
        await relay.has_read("notes")
        _, headers = await relay.initialize("notes")
    async with relay.http.stream("GET", "/notes", headers=headers) as stream:
        lines = stream.aiter_lines()
        async with ListingWorker(relay, "w2", prompts=2):
            await relay.has_read("notes")
            assert await message(lines) == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}
        async with ListingWorker(relay, "w3", prompts=2):
            await relay.has_read("notes")
        async with ListingWorker(relay, "w4", prompts=1):
            # If the third browser had caused a notification, it would come here first.
            await relay.has_read("notes")
            assert (await message(lines))["method"] == "notifications/prompts/list_changed"


async def received_before_marker(lines: AsyncIterator[str], worker: ListingWorker) -> list[str]:
    """Methods received on a stream before the marker that the worker sends now, on every channel that it can use."""
    updated = jsonrpc.notification("notifications/resources/updated", {"uri": "note:///end"})
    for event in list(worker.seen):
        if isinstance(event, Opened):
            worker.link.send(event.channel, Kind.NOTE, json.dumps(updated), asyncio.get_running_loop().time())
        elif isinstance(event, Received) and '"subscriptions/listen"' in event.payload:
            worker.send(event, Kind.NOTE, updated)
    await worker.flush()
    found = []
    while (note := await message(lines))["method"] != "notifications/resources/updated":
        found.append(note["method"])
    return found


@asynccontextmanager
async def listening(relay: RunningRelay, era: str) -> AsyncIterator[AsyncIterator[str]]:
    """A client of either era that subscribes to every list, and the lines of its stream."""
    if era == "modern":
        request = relay.modern("subscriptions/listen", LISTEN, id="l1")
        async with relay.http.stream("POST", "/notes", **request) as stream:
            lines = stream.aiter_lines()
            assert (await message(lines))["method"] == "notifications/subscriptions/acknowledged"
            yield lines
    else:
        _, headers = await relay.initialize("notes")
        async with relay.http.stream("GET", "/notes", headers=headers) as stream:
            yield stream.aiter_lines()


async def read_again(relay: RunningRelay, worker: ListingWorker) -> None:
    """Wait until the relay has read the lists once more and could have sent notifications."""
    before = len(worker.readings)
    await worker.until(lambda: len(worker.readings) > before)
    await relay.has_read("notes")


TOOLS_CHANGED = "notifications/tools/list_changed"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.requirement("list-changed")
async def test_a_change_is_notified_once_however_often_the_browser_reports_it(relay: RunningRelay, era: str) -> None:
    async with ListingWorker(relay) as worker:
        await relay.has_read("notes")
        async with listening(relay, era) as lines:
            worker.lists["tools/list"] = ("tools", [OTHER_TOOL])
            await worker.change_tools([OTHER_TOOL], times=5)
            assert (await message(lines))["method"] == TOOLS_CHANGED
            assert await received_before_marker(lines, worker) == []
            # It announces a change again, and nothing differs.
            reading = asyncio.ensure_future(read_again(relay, worker))
            await worker.change_tools([OTHER_TOOL])
            await reading
            assert await received_before_marker(lines, worker) == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.requirement("list-changed")
async def test_a_reload_causes_no_notification_although_the_new_worker_begins_without_tools(
    relay: RunningRelay, era: str
) -> None:
    async with ListingWorker(relay):
        await relay.has_read("notes")
    _, headers = await relay.initialize("notes")
    get = relay.http.stream("GET", "/notes", headers=headers)
    post = relay.http.stream("POST", "/notes", **relay.modern("subscriptions/listen", LISTEN, id="l1"))
    async with get if era == "legacy" else post as stream:
        lines = stream.aiter_lines()
        if era == "modern":
            await message(lines)
        reloaded = ListingWorker(relay, "w2")
        reloaded.lists["tools/list"] = ("tools", [])
        async with reloaded:
            await reloaded.until(lambda: bool(reloaded.readings))
            # A client that lists now gets the whole list a moment later, not the empty one.
            listing = asyncio.create_task(relay.http.post("/notes", **relay.modern("tools/list")))
            for _ in range(5):  # enough time for an answer that does not wait
                await relay.http.get("/-/status")
            # The page has started: the worker has its tools, and announces them.
            reloaded.lists["tools/list"] = ("tools", [ECHO_TOOL])
            await reloaded.change_tools([ECHO_TOOL])
            assert [tool["name"] for tool in (await listing).json()["result"]["tools"]] == ["echo"]
            assert await received_before_marker(lines, reloaded) == []


@pytest.mark.requirement("list-changed")
async def test_a_client_that_read_a_list_in_the_middle_of_a_change_is_notified(relay: RunningRelay) -> None:
    async with ListingWorker(relay) as worker:
        await relay.has_read("notes")
        async with listening(relay, "legacy") as lines:
            worker.lists["tools/list"] = ("tools", [OTHER_TOOL])
            await worker.change_tools([OTHER_TOOL])
            # Before the relay reads the lists, a client sees the new one; then it is the old one again.
            await relay.http.post("/notes", **relay.modern("tools/list"))
            worker.lists["tools/list"] = ("tools", [ECHO_TOOL])
            assert (await message(lines))["method"] == TOOLS_CHANGED


@pytest.mark.requirement("list-changed")
async def test_when_the_relay_cannot_read_the_lists_it_forwards_the_browsers_notification(relay: RunningRelay) -> None:
    async with ListingWorker(relay) as worker:
        await relay.has_read("notes")
        async with listening(relay, "legacy") as lines:
            worker.is_confused = True
            await worker.change_tools([])
            assert (await message(lines))["method"] == TOOLS_CHANGED
            # The relay keeps its lists, and reads again without another announcement.
            assert [tool["name"] for tool in (await relay.has_read("notes"))["tools"]] == ["echo"]
            worker.lists["tools/list"] = ("tools", [OTHER_TOOL])
            worker.is_confused = False
            assert (await message(lines))["method"] == TOOLS_CHANGED
            assert [tool["name"] for tool in (await relay.has_read("notes"))["tools"]] == ["other"]


@pytest.mark.requirement("modern-listen")
async def test_a_modern_client_can_listen_while_the_browser_is_away(relay: RunningRelay) -> None:
    async with ListingWorker(relay):
        await relay.has_read("notes")
    request = relay.modern("subscriptions/listen", LISTEN, id="l1")
    async with relay.http.stream("POST", "/notes", **request) as stream:
        lines = stream.aiter_lines()
        first = await message(lines)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == LISTEN["notifications"]
        assert first["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l1"}
        async with ListingWorker(relay, "w2", prompts=3) as worker:
            news = await message(lines)
            assert news["method"] == "notifications/prompts/list_changed"
            assert news["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l1"}
            [asked] = [e for e in worker.seen if isinstance(e, Received) and "subscriptions/listen" in e.payload]
            note = jsonrpc.notification("notifications/resources/updated", {"uri": "note:///1", **news["params"]})
            worker.send(asked, Kind.NOTE, note)
            await worker.flush()
            # The browser's own acknowledgement is not forwarded.
            assert await message(lines) == note
        # It does not return: the stream ends regularly, and the client can listen again.
        last = await message(lines)
        assert last["id"] == "l1" and last["result"]["resultType"] == "complete"


@pytest.mark.requirement("modern-listen")
async def test_a_held_listener_is_notified_when_the_relay_stops(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        request = relay.modern("subscriptions/listen", LISTEN, id=7)
        async with relay.http.stream("POST", "/notes", **request) as stream:
            lines = stream.aiter_lines()
            assert (await message(lines))["method"] == "notifications/subscriptions/acknowledged"
            drained = asyncio.create_task(relay.drain.run())
            assert (await message(lines))["id"] == 7
        await drained
