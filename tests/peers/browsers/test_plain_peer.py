"""Plain pages: MCP over a WebSocket without a link, over real sockets, with a scripted page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from tabrelay.config.specs import BrowserSpec
from tabserver.wire import jsonrpc
from tests.support.link_worker import SyntheticWorker
from tests.support.plain_page import Message, ScriptedPage
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import pause


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, plain=("notes",), away_wait_s=0.2, greet_s=0.1) as relay:
        yield relay


@pytest.fixture
async def page(relay: RunningRelay) -> AsyncIterator[ScriptedPage]:
    async with ScriptedPage(relay.url, "notes") as page:
        yield page


def last(response: httpx2.Response) -> Any:
    """The final message, as JSON or as the end of a stream."""
    is_stream = response.headers["content-type"].startswith("text/event-stream")
    return json.loads(events(response.text)[-1] if is_stream else response.text)


def keep(waiting: list[Message]) -> Any:
    """A slow tool: the test answers."""
    return lambda page, message: waiting.append(message)


# -- admission and handshake ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subprotocol", ["mcp", None])
async def test_a_plain_page_is_initialized_and_called(relay: RunningRelay, subprotocol: str | None) -> None:
    async with ScriptedPage(relay.url, "notes", subprotocol=subprotocol, query="?tab=1") as page:
        assert page.chosen == subprotocol
        asked = page.of("initialize")[0]["params"]
        assert (asked["protocolVersion"], asked["clientInfo"]["name"]) == ("2025-11-25", "tabrelay")
        assert {"elicitation", "sampling", "roots"} <= asked["capabilities"].keys()
        answer = await relay.call("notes", "echo", {"x": 1})
        assert answer.json()["result"]["content"][0]["text"] == '{"x": 1}'


async def test_a_page_may_dial_the_path_that_its_server_was_given(tmp_path: Path) -> None:
    specs = [BrowserSpec("notes", "/ws/db", frozenset({"plain"}))]
    async with (
        RunningRelay(tmp_path, plain=("notes",), specs=specs) as relay,
        ScriptedPage(relay.url, "ws/db", subprotocol=None, query="?tab=1"),
    ):
        for name in ("notes", "ws/db", "ws/db/mcp"):
            answer = await relay.call(name, "echo", {"x": 1})
            assert answer.json()["result"]["content"][0]["text"] == '{"x": 1}'
        with pytest.raises(InvalidStatus):
            await ScriptedPage(relay.url, "ws/db", origin="https://evil.example").dial()


async def test_a_name_that_is_not_configured_takes_no_plain_page(relay: RunningRelay) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await ScriptedPage(relay.url, "other").dial()
    assert refused.value.response.status_code == 401


async def test_an_unknown_subprotocol_is_refused_before_the_handshake(relay: RunningRelay) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await ScriptedPage(relay.url, "notes", subprotocol="graphql-ws").dial()
    assert refused.value.response.status_code == 400


async def test_a_page_of_an_origin_that_is_not_listed_is_refused(relay: RunningRelay) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await ScriptedPage(relay.url, "notes", origin="https://evil.example").dial()
    assert refused.value.response.status_code == 403


async def test_a_page_that_missed_its_greeting_is_greeted_again(relay: RunningRelay) -> None:
    async with ScriptedPage(relay.url, "notes", never_answers=True) as page:
        await page.until(lambda: len(page.of("initialize")) == 2)
        page.never_answers = False
        await page.until(lambda: page.has("notifications/initialized"))
        assert len(page.of("notifications/initialized")) == 1
        assert (await relay.call("notes", "echo")).json()["result"]


async def test_only_json_rpc_is_sent_to_a_page(relay: RunningRelay, page: ScriptedPage) -> None:
    _, headers = await relay.initialize("notes")
    call = jsonrpc.request(1, "tools/call", {"name": "echo"}) | {"relatedRequestId": 3, "resumptionToken": "x"}
    await relay.http.post("/notes", json=call, headers=headers)
    await relay.call("notes", "echo")
    allowed = {"jsonrpc", "id", "method", "params", "result", "error"}
    assert all(message.keys() <= allowed for message in page.received)
    assert not any("io.modelcontextprotocol/" in json.dumps(message) for message in page.received)


async def test_members_that_a_page_adds_go_no_further(relay: RunningRelay, page: ScriptedPage) -> None:
    page.on_call = lambda page, message: page.answer(message, {"content": []}, resumptionToken="x", relatedRequestId=1)
    _, headers = await relay.initialize("notes")
    call = jsonrpc.request("mine", "tools/call", {"name": "echo"})
    answer = (await relay.http.post("/notes", json=call, headers=headers)).json()
    assert answer == {"jsonrpc": "2.0", "id": "mine", "result": {"content": []}}


async def test_text_that_is_no_message_is_ignored(relay: RunningRelay, page: ScriptedPage) -> None:
    assert page._socket is not None
    for text in ("not json", "[]", '"x"', "{}", '{"jsonrpc":"2.0","id":true,"result":{}}', '{"id":1,"method":7}'):
        await page._socket.send(text)
    assert (await relay.call("notes", "echo")).json()["result"]


NESTED: Any = []
for _ in range(300):
    NESTED = [NESTED]


@pytest.mark.parametrize("result", [{"text": "\ud800"}, {"deep": NESTED}], ids=["lone surrogate", "too deep"])
async def test_an_answer_that_cannot_be_passed_on_is_an_error_and_the_page_stays(
    relay: RunningRelay, page: ScriptedPage, result: Any
) -> None:
    page.on_call = lambda page, message: page.answer(message, result)
    error = (await relay.call("notes", "bad")).json()["error"]
    assert (error["data"]["reason"], error["data"]["delivered"]) == ("bad_answer", "unknown")
    page.on_call = ScriptedPage.echo
    page.queue(jsonrpc.notification("notifications/tools/list_changed", {"deep": NESTED}))
    assert (await relay.call("notes", "echo")).json()["result"]
    assert page.close_code is None


async def test_a_handshake_without_a_description_leaves_the_configured_name(relay: RunningRelay) -> None:
    page = ScriptedPage(relay.url, "notes")
    page.about = "unnamed"
    async with page:
        response, _ = await relay.initialize("notes")
        assert response.json()["result"]["serverInfo"] == {"name": "notes", "version": "0"}
        assert (await relay.http.get("/-/status")).status_code == 200


# -- callers are kept apart -------------------------------------------------------------------------------------------


async def test_callers_with_the_same_ids_and_tokens_get_their_own_answers(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    waiting: list[Message] = []
    page.on_call = keep(waiting)
    _, one = await relay.initialize("notes")
    _, two = await relay.initialize("notes")
    params = {"name": "echo", "_meta": {"progressToken": "t"}}
    tasks = []
    for number, headers in enumerate((one, two), 1):
        body = jsonrpc.request(5, "tools/call", {**params, "arguments": {"n": number}})
        tasks.append(asyncio.create_task(relay.http.post("/notes", json=body, headers=headers)))
        await page.until(lambda: len(waiting) == len(tasks))
    first, second = waiting
    assert first["id"] != second["id"]
    assert first["params"]["_meta"]["progressToken"] != second["params"]["_meta"]["progressToken"]
    for message in (second, first):
        token = message["params"]["_meta"]["progressToken"]
        page.queue(jsonrpc.notification("notifications/progress", {"progressToken": token, "progress": token}))
        page.echo(message)
    await page.flush()
    for number, (task, message) in enumerate(zip(tasks, waiting, strict=True), 1):
        progress, answer = map(json.loads, events((await task).text))
        token = message["params"]["_meta"]["progressToken"]
        assert progress["params"] == {"progressToken": "t", "progress": token}
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (5, json.dumps({"n": number}))


async def test_a_callers_cancel_reaches_the_page_and_ends_its_stream(relay: RunningRelay, page: ScriptedPage) -> None:
    waiting: list[Message] = []
    page.on_call = keep(waiting)
    _, headers = await relay.initialize("notes")
    _, stranger = await relay.initialize("notes")
    call = jsonrpc.request(5, "tools/call", {"name": "slow"})
    running = asyncio.create_task(relay.http.post("/notes", json=call, headers=headers))
    await page.until(lambda: bool(waiting))
    cancel = jsonrpc.notification("notifications/cancelled", {"requestId": 5})
    await relay.http.post("/notes", json=cancel, headers=stranger)
    await relay.http.post("/notes", json=cancel, headers=headers)
    await page.until(lambda: page.has("notifications/cancelled"))
    assert [message["params"]["requestId"] for message in page.of("notifications/cancelled")] == [waiting[0]["id"]]
    assert last(await running)["error"]["code"] == -32800


async def test_a_modern_client_that_disconnects_cancels(relay: RunningRelay, page: ScriptedPage) -> None:
    waiting: list[Message] = []
    page.on_call = keep(waiting)
    running = asyncio.create_task(relay.call("notes", "slow"))
    await page.until(lambda: bool(waiting))
    running.cancel()
    await page.until(lambda: page.has("notifications/cancelled"))
    assert page.of("notifications/cancelled")[0]["params"]["requestId"] == waiting[0]["id"]


async def test_a_session_that_ends_cancels_its_calls(relay: RunningRelay, page: ScriptedPage) -> None:
    waiting: list[Message] = []
    page.on_call = keep(waiting)
    _, headers = await relay.initialize("notes")
    call = jsonrpc.request(5, "tools/call", {"name": "slow"})
    running = asyncio.create_task(relay.http.post("/notes", json=call, headers=headers))
    await page.until(lambda: bool(waiting))
    await relay.http.delete("/notes", headers=headers)
    await page.until(lambda: page.has("notifications/cancelled"))
    assert last(await running)["error"]["data"]["reason"] == "session_not_found"


async def test_the_handshake_is_answered_from_the_pages_own(relay: RunningRelay, page: ScriptedPage) -> None:
    newer, _ = await relay.initialize("notes", "2025-11-25")
    older, _ = await relay.initialize("notes", "2025-03-26")
    assert newer.json()["result"]["protocolVersion"] == "2025-06-18"
    assert older.json()["result"]["protocolVersion"] == "2025-03-26"
    assert newer.json()["result"]["serverInfo"]["name"] == "scripted"
    assert "tasks" not in newer.json()["result"]["capabilities"]
    assert len(page.of("initialize")) == 1


async def test_tasks_of_one_caller_are_not_shown_to_another(relay: RunningRelay, page: ScriptedPage) -> None:
    _, headers = await relay.initialize("notes")
    answer = await relay.http.post("/notes", json=jsonrpc.request(1, "tasks/list"), headers=headers)
    assert answer.json()["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert not page.has("tasks/list")


async def test_an_id_in_use_and_too_many_calls_are_refused(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("notes",), in_flight_server=1) as relay,
        ScriptedPage(relay.url, "notes") as page,
    ):
        await relay.has_read("notes")  # its own questions count too
        waiting: list[Message] = []
        page.on_call = keep(waiting)
        running = asyncio.create_task(relay.call("notes", "slow"))
        await page.until(lambda: bool(waiting))
        error = (await relay.call("notes", "slow")).json()["error"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == ("busy", "no")
        page.answer(waiting[0], {"content": []})
        await page.flush()
        assert (await running).json()["result"]


# -- sockets connect and disconnect -----------------------------------------------------------------------------------


async def test_a_call_fails_as_unknown_when_its_socket_goes(relay: RunningRelay) -> None:
    async with ScriptedPage(relay.url, "notes") as page:
        waiting: list[Message] = []
        page.on_call = keep(waiting)
        running = asyncio.create_task(relay.call("notes", "slow"))
        await page.until(lambda: bool(waiting))
    error = last(await running)["error"]
    assert (error["code"], error["data"]["delivered"], error["data"]["retryable"]) == (-31011, "unknown", False)
    offline = (await relay.call("notes", "echo")).json()["error"]
    assert (offline["code"], offline["data"]["delivered"]) == (-31010, "no")
    assert "Open its page" in offline["message"]


async def test_the_newest_page_that_answers_is_used_and_the_other_stays_open(relay: RunningRelay) -> None:
    async with ScriptedPage(relay.url, "notes", name="old") as old:
        async with ScriptedPage(relay.url, "notes", name="new") as new:
            await relay.call("notes", "echo")
            assert (len(old.calls), len(new.calls)) == (0, 1)
            assert old.close_code is None
        async with asyncio.timeout(60):
            while "error" in (await relay.call("notes", "echo")).json():
                await pause()
        assert len(old.calls) == 1
        assert len(old.of("initialize")) == 1


async def test_a_socket_that_never_answers_takes_no_calls_from_one_that_does(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    async with ScriptedPage(relay.url, "notes", never_answers=True) as deaf:
        await deaf.until(lambda: deaf.has("initialize"))
        assert (await relay.call("notes", "echo")).json()["result"]
        assert deaf.close_code is None


async def test_a_displaced_page_may_still_answer_what_it_has(relay: RunningRelay, page: ScriptedPage) -> None:
    waiting: list[Message] = []
    page.on_call = keep(waiting)
    running = asyncio.create_task(relay.call("notes", "slow"))
    await page.until(lambda: bool(waiting))
    async with ScriptedPage(relay.url, "notes"):
        page.answer(waiting[0], {"content": []})
        await page.flush()
        assert (await running).json()["result"]["content"] == []


async def test_a_page_of_another_origin_is_refused_while_the_name_is_held(tmp_path: Path) -> None:
    other = "http://localhost:5173"
    async with RunningRelay(tmp_path, plain=("notes",), allow_origins=(other,)) as relay:
        async with ScriptedPage(relay.url, "notes"):
            with pytest.raises(InvalidStatus) as refused:
                await ScriptedPage(relay.url, "notes", origin=other).dial()
            assert refused.value.response.status_code == 403
        async with ScriptedPage(relay.url, "notes", origin=other):
            assert (await relay.call("notes", "echo")).json()["result"]


async def test_a_page_waits_until_a_worker_with_the_name_has_gone(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("notes",), greet_s=0.1, grace_s=0.05) as relay,
        ScriptedPage(relay.url, "notes", never_answers=True) as page,
    ):
        await page.until(lambda: page.has("initialize"))
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            page.never_answers = False
            await page.until(lambda: page.has("notifications/initialized"))
            await relay.call("notes", "echo")
            assert (len(worker.calls), len(page.calls)) == (1, 0)
        assert (await relay.call("notes", "echo")).json()["result"]
        assert (len(page.calls), page.close_code) == (1, None)


async def test_a_worker_of_another_principal_is_refused_while_a_page_has_the_name(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await SyntheticWorker(relay.url, relay.token, "notes").dial()
    assert refused.value.response.status_code == 403


async def test_a_worker_of_the_same_principal_takes_over_and_the_page_stays_idle(relay: RunningRelay) -> None:
    async with ScriptedPage(relay.url, "notes", token=relay.token) as page:
        assert page.chosen == "mcp"
        waiting: list[Message] = []
        page.on_call = keep(waiting)
        listen = relay.modern("subscriptions/listen", {"notifications": {}}, id="mine")
        listening = asyncio.create_task(relay.http.post("/notes", **listen))
        running = asyncio.create_task(relay.call("notes", "slow"))
        await page.until(lambda: bool(waiting))
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            assert last(await running)["error"]["data"]["reason"] == "browser_gone"
            assert last(await listening)["result"]["resultType"] == "complete"
            await relay.call("notes", "echo")
            assert (len(worker.calls), page.close_code) == (1, None)


async def test_the_catalogue_is_that_of_the_page_that_is_connected(relay: RunningRelay) -> None:
    async def title() -> str | None:
        [row] = (await relay.http.get("/-/status")).json()["servers"]
        return str(row["title"]) if row["tools"] else None

    for name in ("first", "second"):
        async with ScriptedPage(relay.url, "notes", name=name), asyncio.timeout(60):
            while await title() != name:
                await pause()


async def test_pages_beyond_the_limit_are_refused_before_the_handshake(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabrelay.peers.browsers.plain_peer.MAX_SOCKETS", 1)
    async with ScriptedPage(relay.url, "notes") as page:
        with pytest.raises(InvalidStatus) as refused:
            await ScriptedPage(relay.url, "notes").dial()
        assert refused.value.response.status_code == 409
        assert page.close_code is None
