"""Servers that send values of any shape: the status, the lists and other servers are unaffected."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tabrelay.faces.mcp.offline_answers import LISTS, cached_legacy_result, cached_modern_result
from tabrelay.faces.mcp.subscriptions import SubscriptionFilter
from tabrelay.payloads.list_checks import ListBounds, read_server_description
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore
from tabrelay.routing.registry import Registry
from tabrelay.routing.status import describe
from tabrelay.routing.tool_drift import Baseline
from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.checked_reply import check_reply
from tests.support.link_worker import ECHO_TOOL, SyntheticWorker
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import RunningRelay


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"x": value}
    return value


DEEP = nested(300)  # orjson reads it, but can't write it
ODD: list[Any] = [None, True, False, 0, 5, -1.5, "", "x", "x" * 100_000, [], [5], [[]], {}, {"a": 1}, {"name": 5}, DEEP]
KNOWN = ["name", "version", "title", "uri", "uriTemplate", "description", "inputSchema", "outputSchema", "annotations"]
KNOWN += ["_meta", "icons", "arguments", "tools", "resources", "prompts", "logging", "listChanged", "experimental"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
names = st.sampled_from(KNOWN) | st.text(max_size=5)
anything = st.recursive(
    scalars | st.just(DEEP),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
items = st.dictionaries(st.sampled_from(KNOWN), anything, max_size=6) | anything
lists = st.lists(items, max_size=4) | anything
abouts = (
    st.fixed_dictionaries(
        {},
        optional={
            "protocolVersion": anything,
            "capabilities": st.dictionaries(st.sampled_from(KNOWN), anything, max_size=4) | anything,
            "serverInfo": st.dictionaries(st.sampled_from(KNOWN), anything, max_size=4) | anything,
            "instructions": anything,
            "_meta": anything,
        },
    )
    | anything
)
rows = st.fixed_dictionaries(
    {"initialize": abouts},
    optional={"tools": lists, "resources": lists, "templates": lists, "prompts": lists},
)


@settings(max_examples=500, deadline=None)
@example({"initialize": {"serverInfo": "x"}})
@example({"initialize": {"capabilities": 5, "serverInfo": {"title": 7, "name": "n"}}})
@example({"initialize": {"capabilities": {"experimental": DEEP}, "_meta": DEEP, "instructions": ["x"]}})
@example({"initialize": {}, "tools": [{"name": "t", "_meta": DEEP}, {"name": "u", "inputSchema": 5}]})
@example({"initialize": {}, "prompts": [{"name": "p", "arguments": 5}], "resources": 7})
@given(rows)
def test_whatever_a_server_declares_every_client_is_answered(row: dict[str, Any]) -> None:
    catalogue = Catalogue.from_dict(row)
    registry = Registry(CatalogueStore(None), declared=("notes", "other"))
    if catalogue is not None:
        registry.catalogues.keep("notes", catalogue)
        registry.catalogues.mark_used(registry.find("notes"))
        registry.accept_tools("notes")
    rows = describe(registry, "http://x", lambda name: True, 0.0)
    assert {row["name"] for row in orjson.loads(orjson.dumps(rows))} == {"notes", "other"}
    known = registry.cached_catalogue("notes")
    for method in ("server/discover", *LISTS):
        said = cached_modern_result(method, "notes", known, {})
        assert said is not None and orjson.dumps(said)
    for method in ("initialize", "ping", *LISTS):
        said = cached_legacy_result(method, {"protocolVersion": row}, "notes", known, {})
        assert said is not None and orjson.dumps(said)
    cached_legacy_result("logging/setLevel", {"level": row}, "notes", known, {})
    flags = {"toolsListChanged": True, "resourceSubscriptions": ["a"]}
    orjson.dumps(SubscriptionFilter.of({"notifications": flags}).honoured(known))
    # The stored values are read again unchanged: the file and other relays get them.
    if catalogue is not None:
        assert Catalogue.from_dict(orjson.loads(orjson.dumps(catalogue.to_dict()))) == catalogue


@settings(max_examples=300, deadline=None)
@given(abouts)
def test_what_is_read_of_a_servers_introduction_has_the_types_of_mcp_and_can_be_written(said: Any) -> None:
    about = read_server_description(said)
    orjson.dumps(about)
    assert isinstance(about.get("protocolVersion", ""), str) and isinstance(about.get("instructions", ""), str)
    assert all(isinstance(value, dict) for value in about.get("capabilities", {}).values())
    info = about.get("serverInfo", {"name": "", "version": ""})
    assert isinstance(info["name"], str) and isinstance(info["version"], str)


def test_a_plain_introduction_is_read_unchanged() -> None:
    about = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "logging": {}, "experimental": {"a": {"b": [1]}}},
        "serverInfo": {"name": "n", "version": "1", "title": "N", "icons": [{"src": "data:,"}]},
        "instructions": "Do it.",
        "_meta": {"a": 1},
    }
    assert read_server_description(about) == about


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(LISTS)), lists, anything)
def test_a_list_of_any_shape_can_be_passed_on(method: str, said: Any, more: Any) -> None:
    key = {"resources/templates/list": "resourceTemplates"}.get(method, method.partition("/")[0])
    payload = json.dumps(jsonrpc.result_message(1, {key: said, "_meta": more}))
    text, _ = check_reply(method, payload, ListBounds())
    assert isinstance(orjson.loads(text)["result"][key], list) or not isinstance(said, list)


@settings(max_examples=200, deadline=None)
@given(anything | st.fixed_dictionaries({"known": anything, "may_lack": st.lists(anything)}))
def test_a_baseline_of_any_shape_is_read_or_left_out(value: Any) -> None:
    loaded = Baseline.load(value)
    assert loaded is None or loaded.dump() == (Baseline.load(loaded.dump()) or loaded).dump()


# -- over real connections ---------------------------------------------------------------------------------------------


class OddWorker(SyntheticWorker):
    """Answers `initialize` and the lists with the test's values."""

    about: Any = None
    listed: Any = None

    def _received(self, event: Received[str]) -> None:
        message = json.loads(event.payload)
        method = message.get("method")
        if event.kind is Kind.REQ and method == "initialize":
            self.send_text(event, Kind.RES, json.dumps(jsonrpc.result_message(message["id"], self.about)))
        elif event.kind is Kind.REQ and str(method).endswith("/list") and self.listed is not None:
            keys = ("tools", "resources", "resourceTemplates", "prompts")
            result = {**dict.fromkeys(keys, self.listed), "resultType": "complete"}
            self.send_text(event, Kind.RES, json.dumps(jsonrpc.result_message(message["id"], result)))
        else:
            super()._received(event)


EVERYTHING: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
ABOUTS: list[Any] = [
    {"serverInfo": "x"},
    {"capabilities": 5},
    {"serverInfo": {"name": 5, "title": ["x"]}, "capabilities": {"tools": 5}},
    {"serverInfo": DEEP, "capabilities": EVERYTHING, "_meta": DEEP},
    {"capabilities": {"experimental": DEEP}, "protocolVersion": {"a": 1}, "instructions": 5},
    "x",
    None,
]
LISTED: list[Any] = [
    ODD,
    {"name": "x"},
    "x",
    [{"name": "t", "_meta": DEEP}, {"name": "u", "annotations": 5}, {"name": "v", "inputSchema": "x"}],
    [{"name": "t", "title": 5, "description": []}, {"uri": 5}, {"uri": "a:b", "name": {}}, {"uriTemplate": DEEP}],
]


def odd_servers() -> Iterator[tuple[Any, Any]]:
    yield from ((about, None) for about in ABOUTS)
    yield from (({"capabilities": EVERYTHING}, listed) for listed in LISTED)


async def is_answered(relay: RunningRelay) -> None:
    """What other clients use: the status, the metrics, and a call of another server."""
    for path in ("/-/status", "/-/metrics"):
        assert (await relay.http.get(path)).status_code == 200, path
    answer = await relay.call("fine", "echo", {"x": 1})
    assert answer.json()["result"]["content"][0]["text"] == '{"x": 1}'


async def ask_everything(relay: RunningRelay, server: str) -> None:
    """Whatever the server itself answers: no request hangs, and no error occurs inside the relay."""
    for method in ("server/discover", *LISTS):
        assert (await relay.http.post(f"/{server}", **relay.modern(method))).status_code in (200, 404), method
    _, headers = await relay.initialize(server)
    for method in ("ping", *LISTS):
        body = jsonrpc.request(1, method, {})
        assert (await relay.http.post(f"/{server}", json=body, headers=headers)).status_code == 200, method


async def test_a_browser_that_describes_itself_in_any_shape_breaks_nothing_for_others(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "fine"):
        for number, (about, listed) in enumerate(odd_servers()):
            odd = OddWorker(relay.url, relay.token, f"odd{number}")
            odd.about, odd.listed = about, listed
            async with odd:
                await ask_everything(relay, f"odd{number}")
                await is_answered(relay)
                assert odd.close_code is None
            await ask_everything(relay, f"odd{number}")  # from the cache
        await is_answered(relay)
        relay.recorder.discard_violations()
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "fine"):
        await is_answered(relay)
        for number, _ in enumerate(odd_servers()):
            await ask_everything(relay, f"odd{number}")
        relay.recorder.discard_violations()


async def test_a_plain_page_that_describes_itself_in_any_shape_breaks_nothing_for_others(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("plain",), away_wait_s=0.2, greet_s=0.1) as relay,
        SyntheticWorker(relay.url, relay.token, "fine"),
    ):
        for about, listed in odd_servers():
            said = about if isinstance(about, dict) else {}
            async with ScriptedPage(relay.url, "plain") as page:
                page.about, page.tools = said.get("serverInfo"), listed
                page.capabilities = said.get("capabilities")  # type: ignore[assignment]  # that is the point
                await page.send(jsonrpc.notification("notifications/tools/list_changed"))
                await ask_everything(relay, "plain")
                await is_answered(relay)
                assert page.close_code is None
        relay.recorder.discard_violations()


async def test_a_memory_with_odd_values_is_read_and_what_is_sound_in_it_is_kept(tmp_path: Path) -> None:
    """As an earlier version has written it."""
    sound: dict[str, Any] = {"initialize": {"serverInfo": {"name": "s", "version": "1"}, "capabilities": {"tools": {}}}}
    sound |= {"tools": [ECHO_TOOL, {"name": 5}, "x"], "last_seen": time.time()}
    memory: dict[str, Any] = {f"odd{number}": {"initialize": about} for number, about in enumerate(ABOUTS)}
    memory |= {f"row{number}": value for number, value in enumerate(ODD) if value is not DEEP}
    memory |= {"base": {**sound, "baseline": {"known": {"a": "b"}, "may_lack": [{}, [], 5]}}, "sound": sound}
    memory |= {"lists": {"initialize": {"capabilities": EVERYTHING}, "tools": 5, "resources": "x", "prompts": {}}}
    tmp_path.joinpath("servers.json").write_text(json.dumps(memory))
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "fine"):
        await is_answered(relay)
        rows = {row["name"]: row for row in (await relay.http.get("/-/status")).json()["servers"]}
        assert [tool["name"] for tool in rows["sound"]["tools"]] == ["echo"] and rows["sound"]["title"] == "s"
        assert memory.keys() - {name for name in memory if name.startswith("row")} <= rows.keys()
        for name in memory.keys() & rows.keys():
            await ask_everything(relay, name)
        relay.recorder.discard_violations()


# -- notes ------------------------------------------------------------------------------------------------------------

METHODS = [
    *("$/tabrelay/pin", "$/tabrelay/tabs", "$/tabrelay/closeStream", "$/tabrelay/unknown", "$/tabrelay/", "x", ""),
    *("notifications/progress", "notifications/message", "notifications/cancelled", "notifications/initialized"),
    *("notifications/tools/list_changed", "notifications/resources/updated", "notifications/roots/list_changed"),
    *("notifications/elicitation/complete", "notifications/subscriptions/acknowledged", "notifications/tasks/status"),
]
PARAMS: list[Any] = [
    *ODD,
    *({"tab": value} for value in ODD),
    *({"tabs": value, "used": value} for value in ODD),
    {"tabs": [{"id": value, "title": value, "visible": value} for value in ODD]},
    *({"progressToken": value, "requestId": value, "uri": value, "level": value, "_meta": value} for value in ODD),
]


def notes() -> Iterator[dict[str, Any]]:
    for method in METHODS:
        for params in PARAMS:
            yield {"jsonrpc": "2.0", "method": method, "params": params}
    yield from ({"jsonrpc": "2.0", "method": method} for method in ODD)


async def test_a_browsers_notes_of_any_shape_leave_its_socket_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def say_everything(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        for number, note in enumerate(notes()):
            related = event.id if number % 2 else None
            worker.link.send(event.channel, Kind.NOTE, json.dumps(note), worker._now(), related=related)
        worker.answer(event, {"content": []})

    async with (
        RunningRelay(tmp_path) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
        SyntheticWorker(relay.url, relay.token, "fine"),
    ):
        worker.link._sender._limits = replaced(worker)
        worker.on_call = say_everything
        _, headers = await relay.initialize("notes")
        body = jsonrpc.request(5, "tools/call", {"name": "echo", "arguments": {}})
        answers = await asyncio.gather(
            relay.http.post("/notes", json=body, headers=headers), relay.call("notes", "echo", {})
        )
        assert [answer.status_code for answer in answers] == [200, 200]
        await worker.until(lambda: bool(worker._relay_channels()))
        for channel in worker._relay_channels():
            for note in notes():
                worker.link.send(channel, Kind.NOTE, json.dumps(note), worker._now())
        await worker.flush()
        worker.on_call = SyntheticWorker.echo
        answer = await relay.call("notes", "echo", {"x": 1})
        assert answer.json()["result"]["content"][0]["text"] == '{"x": 1}'
        await is_answered(relay)
        assert worker.close_code is None
        relay.recorder.discard_violations()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def replaced(worker: SyntheticWorker) -> Any:
    """Raises the limit, so that all of these notifications fit."""
    return replace(worker.link._limits, replay_messages=100_000, replay_bytes=1 << 30)


async def test_a_plain_pages_notes_and_questions_of_any_shape_leave_its_socket_open(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("plain",), away_wait_s=0.2, greet_s=0.1) as relay,
        SyntheticWorker(relay.url, relay.token, "fine"),
        ScriptedPage(relay.url, "plain") as page,
    ):

        def say_everything(page: ScriptedPage, message: dict[str, Any]) -> None:
            for note in notes():
                page.queue({**note, "relatedRequestId": message["id"]})
            for id in ODD:
                page.queue({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": DEEP})
                page.queue({"jsonrpc": "2.0", "id": id, "method": "ping"})
                page.queue({"jsonrpc": "2.0", "id": id, "error": id})
                page.queue({"jsonrpc": "2.0", "id": id, "result": DEEP})
            page.answer(message, {"content": []})

        page.on_call = say_everything
        assert (await relay.call("plain", "echo", {})).status_code == 200
        await page.send(*notes())
        page.on_call = ScriptedPage.echo
        answer = await relay.call("plain", "echo", {"x": 1})
        assert answer.json()["result"]["content"][0]["text"] == '{"x": 1}'
        await is_answered(relay)
        assert page.close_code is None
        relay.recorder.discard_violations()


async def test_a_clients_notes_of_any_shape_are_taken_and_the_next_request_is_answered(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        _, headers = await relay.initialize("notes")
        for note in notes():
            text = json.dumps(note)
            response = await relay.http.post("/notes", content=text, headers={**headers, **JSON})
            assert response.status_code in (202, 400), text[:200]
        body = jsonrpc.request(5, "tools/call", {"name": "echo", "arguments": {}})
        assert (await relay.http.post("/notes", json=body, headers=headers)).status_code == 200
        assert worker.close_code is None
        relay.recorder.discard_violations()


JSON = {"Content-Type": "application/json"}


async def test_a_tab_can_be_pinned_by_a_short_name_only(tmp_path: Path) -> None:
    """Each request of the caller repeats the name."""

    def pin(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        note = jsonrpc.notification("$/tabrelay/pin", {"tab": message["params"]["arguments"]["tab"]})
        worker.send(event, Kind.NOTE, note)
        worker.answer(event, {"content": []})

    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = pin
        seen: list[str | None] = []
        for tab in ("t" * 64, "u" * 65, None):
            await relay.call("notes", "echo", {"tab": tab})
            await relay.call("notes", "echo", {"tab": tab})
            last = [event for event in worker.seen if isinstance(event, Received) and event.caller][-1]
            assert last.caller is not None
            seen.append(last.caller.tab)
        assert seen == ["t" * 64, "t" * 64, None]
