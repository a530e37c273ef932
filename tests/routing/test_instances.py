"""Several browsers under one name: which gets a call, which keeps a session, and how users tell them apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tabrelay.bridge.target import NameTarget, TargetError
from tabrelay.calls.principal import CALL, SERVE
from tabrelay.cli.status import text
from tabrelay.config.reader import effective
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.peers.browsers.user_agent import browser_name
from tabrelay.routing.instances import MAX_TABS, SharedName, TabRequest, read_tabs
from tabrelay.routing.shared_names import MAX_ABSENT
from tabrelay.routing.status import only_own_tasks
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.link_worker import ECHO_TOOL, OTHER_TOOL, SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

FIRST, SECOND = "laptop", "3f9a12bc"
Browsers = dict[str, SyntheticWorker]


def says_its_name(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    worker.answer(event, {"content": [{"type": "text", "text": worker.name}]})  # type: ignore[attr-defined]


async def come(relay: RunningRelay, stack: AsyncExitStack, browser: str, inst: str | None = None) -> SyntheticWorker:
    """A browser connects and the relay knows it, with its own tab."""
    worker = SyntheticWorker(relay.url, relay.token, "notes", inst=inst or browser, browser=browser)
    worker.name = browser  # type: ignore[attr-defined]
    worker.on_call = says_its_name
    await stack.enter_async_context(worker)
    await worker.show_tabs(f"tab-{browser}", used=0)
    await shown(relay, lambda row: any(one["id"] == browser and one["tabs"] for one in row["instances"]))
    return worker


async def shown(relay: RunningRelay, is_so: Any) -> dict[str, Any]:
    """The server's row in the status, once it satisfies the condition."""
    async with asyncio.timeout(BOUND_S):
        while True:
            [row] = (await relay.http.get("/-/status")).json()["servers"]
            if is_so(row):
                return dict(row)
            await asyncio.sleep(0.02)


def front(row: dict[str, Any]) -> str | None:
    return next((one["id"] for one in row["instances"] if one["front"]), None)


async def who(relay: RunningRelay, address: str, **more: Any) -> str:
    """The browser that gets a modern call for this address."""
    return str((await relay.call(address, "echo", **more)).json()["result"]["content"][0]["text"])


async def who_has(relay: RunningRelay, session: dict[str, str], id: int, **more: Any) -> str:
    params = {"name": "echo", "arguments": {}, **more}
    body = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return str((await relay.http.post("/notes", json=body, headers=session)).json()["result"]["content"][0]["text"])


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, instances=("notes",), away_wait_s=5, grace_s=0.2) as relay:
        yield relay


@pytest.fixture
async def browsers(relay: RunningRelay) -> AsyncIterator[Browsers]:
    async with AsyncExitStack() as stack:
        yield {browser: await come(relay, stack, browser) for browser in (FIRST, SECOND)}


@pytest.mark.requirement("instances")
async def test_all_stay_connected_and_the_newest_is_in_front(relay: RunningRelay, browsers: Browsers) -> None:
    assert await who(relay, "notes") == SECOND
    assert await who(relay, f"notes~{FIRST}") == FIRST
    assert await who(relay, f"notes~{SECOND}/mcp") == SECOND
    assert all(worker.close_code is None for worker in browsers.values())


async def test_a_browser_that_was_called_by_name_is_the_one_used_last(relay: RunningRelay, browsers: Browsers) -> None:
    assert await who(relay, f"notes~{FIRST}") == FIRST
    assert await who(relay, "notes") == FIRST
    # Listing its tools does not count as use.
    await relay.http.post(f"/notes~{SECOND}", **relay.modern("tools/list"))
    assert await who(relay, "notes") == FIRST


async def test_a_browser_that_its_user_turns_to_is_the_one_used_last(relay: RunningRelay, browsers: Browsers) -> None:
    await browsers[FIRST].show_tabs("tab-laptop", used=1)
    await shown(relay, lambda row: front(row) == FIRST)
    assert await who(relay, "notes") == FIRST


async def test_when_the_one_in_front_goes_the_other_serves_and_its_name_is_offline(
    relay: RunningRelay, browsers: Browsers
) -> None:
    await browsers[SECOND].hang_up()
    await shown(relay, lambda row: front(row) == FIRST)
    assert await who(relay, "notes") == FIRST
    row = await shown(relay, lambda row: {"offline", "online"} == {one["state"] for one in row["instances"]})
    assert row["state"] == "online"
    listed = await relay.http.post(f"/notes~{SECOND}", **relay.modern("tools/list"))
    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["echo"]


async def test_an_unused_name_is_unknown_and_the_server_waits_for_its_first_browser(relay: RunningRelay) -> None:
    assert (await relay.call("notes~unknown", "echo")).status_code == 404
    waiting = asyncio.create_task(who(relay, "notes"))
    async with AsyncExitStack() as stack:
        await come(relay, stack, FIRST)
        assert await waiting == FIRST


@pytest.mark.requirement("instances")
async def test_a_session_stays_with_its_browser_and_moves_when_that_is_gone(
    relay: RunningRelay, browsers: Browsers
) -> None:
    _, session = await relay.initialize("notes")
    assert await who_has(relay, session, 1) == SECOND
    assert await who(relay, f"notes~{FIRST}") == FIRST
    assert await who(relay, "notes") == FIRST
    assert await who_has(relay, session, 2) == SECOND
    await browsers[SECOND].hang_up()
    await shown(relay, lambda row: any(one["state"] == "offline" for one in row["instances"]))
    async with asyncio.timeout(BOUND_S):
        while True:  # during its grace it is still the session's browser
            params = {"name": "echo", "arguments": {}}
            body = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
            answer = (await relay.http.post("/notes", json=body, headers=session)).json()
            if "result" in answer:
                break
            await asyncio.sleep(0.02)
    assert answer["result"]["content"][0]["text"] == FIRST


async def test_a_session_whose_browser_lost_its_socket_waits_for_it(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, instances=("notes",)) as relay, AsyncExitStack() as stack:
        await come(relay, stack, FIRST)
        second = await come(relay, stack, SECOND)
        _, session = await relay.initialize("notes")
        await second.cut()
        await shown(relay, lambda row: front(row) == FIRST)
        assert await who(relay, "notes") == FIRST
        waiting = asyncio.create_task(who_has(relay, session, 1))
        await second.dial()
        assert await waiting == SECOND


@pytest.mark.requirement("instances")
async def test_a_call_in_flight_stays_with_its_browser(relay: RunningRelay, browsers: Browsers) -> None:
    held: list[Received[str]] = []
    browsers[SECOND].on_call = lambda worker, event, message: held.append(event)
    running = asyncio.create_task(who(relay, "notes"))
    await browsers[SECOND].until(lambda: bool(held))
    await browsers[FIRST].show_tabs("tab-laptop", used=1)
    await shown(relay, lambda row: front(row) == FIRST)
    browsers[SECOND].answer(held[0], {"content": [{"type": "text", "text": "late"}]})
    await browsers[SECOND].flush()
    assert await running == "late"


async def test_a_call_is_cancelled_where_it_runs(relay: RunningRelay, browsers: Browsers) -> None:
    _, session = await relay.initialize("notes")
    browsers[SECOND].on_call = lambda worker, event, message: None
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}}}
    running = asyncio.create_task(relay.http.post("/notes", json=body, headers=session))
    await browsers[SECOND].until(lambda: bool(browsers[SECOND].calls))
    await who(relay, f"notes~{FIRST}")
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    await relay.http.post("/notes", json=note, headers=session)
    await browsers[SECOND].until(
        lambda: any(isinstance(event, Received) and "cancelled" in event.payload for event in browsers[SECOND].seen)
    )
    assert not any(isinstance(one, Received) and "cancelled" in one.payload for one in browsers[FIRST].seen)
    running.cancel()


@pytest.mark.parametrize(
    "naming",
    [
        {"_meta": {"tabrelay/tab": "tab-laptop"}},
        {"_meta": {"tabrelay/tab": {"id": "tab-laptop", "title": "?"}}},
        {"arguments": {"_tab": "tab-laptop"}},
        {"name": "tool_call", "arguments": {"name": "echo", "tab": "tab-laptop"}},
    ],
)
async def test_a_request_that_names_a_tab_goes_to_the_browser_that_has_it(
    relay: RunningRelay, browsers: Browsers, naming: dict[str, Any]
) -> None:
    params = {"name": "echo", "arguments": {}, **naming}
    answer = await relay.http.post("/notes", **relay.modern("tools/call", params))
    assert answer.json()["result"]["content"][0]["text"] == FIRST


@pytest.mark.requirement("instances")
async def test_a_pinned_tab_is_found_in_its_browser_also_by_callers_without_a_session(
    relay: RunningRelay, browsers: Browsers
) -> None:
    def pins(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.send(event, Kind.NOTE, {"jsonrpc": "2.0", "method": "$/tabrelay/pin", "params": {"tab": "tab-laptop"}})
        says_its_name(worker, event, message)

    browsers[FIRST].on_call = pins
    assert await who(relay, f"notes~{FIRST}") == FIRST
    assert await who(relay, "notes") == FIRST  # which pins the tab for callers of this address
    await browsers[SECOND].show_tabs("tab-3f9a12bc", used=1)
    await shown(relay, lambda row: front(row) == SECOND)
    assert await who(relay, "notes") == FIRST


async def test_the_status_distinguishes_the_browsers(relay: RunningRelay, browsers: Browsers) -> None:
    await who(relay, f"notes~{FIRST}")
    row = await shown(relay, lambda row: row["title"] is not None and not row["stale"])
    assert (row["state"], row["calls"]) == ("online", 1)
    assert [(one["id"], one["front"], one["calls"]) for one in row["instances"]] == [
        (FIRST, True, 1),
        (SECOND, False, 0),
    ]
    assert row["instances"][0]["mcp_url"] == f"{relay.url}/notes~{FIRST}"
    assert row["instances"][0]["tabs"] == [{"id": "tab-laptop", "title": "Tab tab-laptop", "visible": True}]
    assert row["instances"][0]["last_used_s"] >= 0
    said = text((await relay.http.get("/-/status")).json())
    assert f"notes~{FIRST}" in said and f"notes~{SECOND}" in said and "in front" in said and "1 tab" in said


async def test_clients_learn_of_other_lists_when_another_browser_is_in_front(
    relay: RunningRelay, browsers: Browsers
) -> None:
    await browsers[FIRST].offer([ECHO_TOOL, OTHER_TOOL])
    asked = relay.modern("tools/list")

    async def names() -> list[str]:
        return [tool["name"] for tool in (await relay.http.post("/notes", **asked)).json()["result"]["tools"]]

    assert await names() == ["echo"]
    params = {"notifications": {"toolsListChanged": True}}
    told: asyncio.Queue[str] = asyncio.Queue()
    browsers[SECOND].on_listen = lambda event: browsers[SECOND].send(
        event, Kind.NOTE, {"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": {"notifications": {}}}
    )

    async def listen() -> None:
        async with relay.http.stream("POST", "/notes", **relay.modern("subscriptions/listen", params)) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    told.put_nowait(json.loads(line.removeprefix("data: ")).get("method", ""))

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(BOUND_S):
        assert await told.get() == ACKNOWLEDGED
        await browsers[FIRST].show_tabs("tab-laptop", used=1)
        assert await told.get() == "notifications/tools/list_changed"
    assert await names() == ["echo", "other"]
    listening.cancel()


ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


async def test_the_same_browser_with_a_new_worker_takes_its_own_place_only(
    relay: RunningRelay, browsers: Browsers
) -> None:
    async with AsyncExitStack() as stack:
        await come(relay, stack, SECOND, inst="after-an-update")
        await browsers[SECOND].until(lambda: browsers[SECOND].close_code is not None)
        assert browsers[SECOND].close_code == 4409
        assert browsers[FIRST].close_code is None
        assert len((await shown(relay, lambda row: True))["instances"]) == 2


async def test_a_page_of_another_owner_is_refused_while_one_is_there(relay: RunningRelay, browsers: Browsers) -> None:
    stranger = relay.tokens.issue_named("stranger", [SERVE])
    with pytest.raises(InvalidStatus) as refused:
        await SyntheticWorker(relay.url, stranger, "notes", browser="other").dial()
    assert refused.value.response.status_code == 403


async def test_what_can_be_no_name_is_refused_and_a_worker_without_one_has_its_own(relay: RunningRelay) -> None:
    bad = SyntheticWorker(relay.url, relay.token, "notes", browser="a/b")
    await bad.dial()
    await bad.until(lambda: bad.close_code is not None)
    assert bad.close_code == 4400
    async with SyntheticWorker(relay.url, relay.token, "notes", inst="0123456789abcdef"):
        row = await shown(relay, lambda row: front(row) is not None)
        assert front(row) == "01234567"


async def test_browsers_are_kept_over_a_restart_and_removed_when_there_are_too_many(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, instances=("notes",), grace_s=0.05) as relay:
        for number in range(MAX_ABSENT + 4):
            async with SyntheticWorker(relay.url, relay.token, "notes", inst=f"i{number}", browser=f"b{number}"):
                pass
        await shown(relay, lambda row: all(one["state"] == "offline" for one in row["instances"]))
        await shown(relay, lambda row: len(row["instances"]) <= MAX_ABSENT)
    async with RunningRelay(tmp_path, instances=("notes",), away_wait_s=0.05) as relay:
        assert (await relay.call("notes~b19", "echo")).json()["error"]["data"]["reason"] == "server_offline"
        assert (await relay.call("notes~b0", "echo")).status_code == 404
    async with RunningRelay(tmp_path) as relay:
        assert (await relay.call("notes~b19", "echo")).status_code == 404


async def test_a_token_for_the_server_is_one_for_its_browsers_and_no_other(
    relay: RunningRelay, browsers: Browsers
) -> None:
    for servers, status in ((["notes"], 200), (["other"], 403)):
        token = relay.tokens.issue_named(f"for-{servers[0]}", [CALL], servers=servers)
        request = relay.modern("tools/call", {"name": "echo", "arguments": {}})
        request["headers"]["Authorization"] = f"Bearer {token}"
        assert (await relay.http.post(f"/notes~{FIRST}", **request)).status_code == status


def test_plain_pages_can_not_share_a_name() -> None:
    with pytest.raises(ConfigError, match="plain pages, which do not support instances"):
        Settings(plain=("notes",), instances=("notes",))


def test_a_session_stays_with_its_last_browser_until_that_is_gone() -> None:
    instances = SharedName()
    assert instances.choose(TabRequest("s"), []) is None
    for address in ("n~a", "n~b"):
        instances.use(address)
    instances.bind("s", "n~a")
    assert instances.choose(TabRequest("s"), ["n~a", "n~b"]) == "n~a"
    instances.set_tabs("n~b", ["t"])
    assert instances.choose(TabRequest("s", named="t"), ["n~a", "n~b"]) == "n~b"
    assert instances.choose(TabRequest("s", pinned="t"), ["n~a", "n~b"]) == "n~a"
    assert instances.choose(TabRequest(None, pinned="t"), ["n~a", "n~b"]) == "n~b"
    assert instances.choose(TabRequest(None), ["n~a"]) == "n~a"
    instances.remove("n~a")
    assert instances.bindings("s") == []
    assert instances.choose(TabRequest("s"), []) == "n~b"


def test_reports_of_tabs_are_bounded_and_may_be_malformed() -> None:
    assert read_tabs(None) is None
    assert read_tabs({"tabs": "x"}) is None
    known = read_tabs(
        {"tabs": [{"id": 1}, {"id": "a", "title": "t" * 999, "url": "u" * 999, "visible": 1}, 7], "used": "x"}
    )
    assert known is not None
    [tab] = known.tabs
    assert (tab.id, len(tab.title), len(tab.url), tab.is_visible, known.focus_count) == ("a", 200, 500, False, 0)
    assert (known.is_awake, known.is_in_use) == (True, False)
    known = read_tabs({"tabs": [{"id": str(number)} for number in range(2 * MAX_TABS)]})
    assert known is not None and len(known.tabs) == MAX_TABS


def test_what_a_worker_reports_of_its_tasks_is_bounded_and_may_be_nonsense() -> None:
    texts = {"id": "t1", "tool": "x" * 999, "principal": "token:a", "status": "working"}
    row = texts | {"created_ms": 1000, "updated_ms": 2000, "expires_ms": 9000}
    known = read_tabs({"tabs": [], "tasks": [row, 5, texts, row | {"created_ms": True}, row | {"status": "failed"}]})
    assert known is not None and known.is_in_use
    first, second = known.tasks
    assert (len(first.tool), first.is_over, second.is_over) == (200, False, True)
    times = {"age_s": 2.0, "changed_s": 1.0, "expires_in_s": 6.0}
    assert first.row(3.0) == texts | {"tool": "x" * 200} | times
    known = read_tabs({"tabs": [], "tasks": [row | {"status": "completed"}] * 2 * MAX_TABS})
    assert known is not None and len(known.tasks) == MAX_TABS and not known.is_in_use
    known = read_tabs({"tabs": [], "tasks": "x"})
    assert known is not None and known.tasks == ()


def test_the_status_of_a_client_has_its_own_tasks_only() -> None:
    rows: list[dict[str, Any]] = [
        {"tasks": [{"principal": "token:a"}, {"principal": "token:b"}]},
        {"instances": [{"tasks": [{"principal": "token:b"}]}]},
        {"kind": "stdio"},
    ]
    only_own_tasks(rows, "token:a")
    assert rows == [{"tasks": [{"principal": "token:a"}]}, {"instances": [{"tasks": []}]}, {"kind": "stdio"}]


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0", "Firefox 153 on Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 "
            "Safari/537.36 Edg/156.0.0.0",
            "Edge 156 on Windows",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 "
            "Safari/605.1.15",
            "Safari 26 on macOS",
        ),
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 HeadlessChrome/156.0 Safari/537.36",
            "Chrome 156 on Linux",
        ),
        ("curl/8.0", ""),
    ],
)
def test_a_browser_has_its_usual_name(agent: str, name: str) -> None:
    assert browser_name(agent) == name


async def test_a_listening_session_whose_browser_is_gone_is_notified_of_changed_lists(
    relay: RunningRelay, browsers: Browsers
) -> None:
    await browsers[FIRST].offer([ECHO_TOOL, OTHER_TOOL])
    _, session = await relay.initialize("notes")
    told: asyncio.Queue[str] = asyncio.Queue()

    async def listen() -> None:
        headers = {**session, "Accept": "text/event-stream"}
        async with relay.http.stream("GET", "/notes", headers=headers) as stream:
            told.put_nowait("open")
            async for line in stream.aiter_lines():
                if line.startswith("data: {"):
                    told.put_nowait(json.loads(line.removeprefix("data: ")).get("method", ""))

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(BOUND_S):
        assert await told.get() == "open"
        assert await who_has(relay, session, 1) == SECOND
        await browsers[SECOND].hang_up()
        assert await told.get() == "notifications/tools/list_changed"
        assert await who_has(relay, session, 2) == FIRST
    listening.cancel()


def test_the_bridge_reaches_a_browser_by_its_address() -> None:
    target = NameTarget("notes~laptop", lambda: "http://127.0.0.1:4747")()
    assert target.url == "http://127.0.0.1:4747/notes~laptop"
    assert target.advice == "Is the relay running? Start it: tabrelay serve notes"
    with pytest.raises(TargetError, match="can't name a browser"):
        NameTarget("notes~", lambda: "")


def test_a_configuration_file_names_the_servers_that_keep_their_browsers(tmp_path: Path) -> None:
    file = tmp_path / "tabrelay.toml"
    file.write_text("[servers.notes]\ninstances = true\n\n[servers.other]\n")
    settings, _ = effective({"config": [str(file)], "home": tmp_path}, {})
    assert settings.instances == ("notes",)
    file.write_text('[servers."notes~laptop"]\n')
    with pytest.raises(ConfigError, match="separates a server from one of its browsers"):
        effective({"config": [str(file)], "home": tmp_path}, {})
