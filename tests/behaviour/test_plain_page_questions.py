"""Messages of a plain page during a call: they reach the one caller they belong to, in either era, or are dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabserver.wire import jsonrpc
from tests.support.link_worker import ECHO_TOOL, OTHER_TOOL
from tests.support.plain_page import Message, ScriptedPage
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import BOUND_S

FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
ACCEPT = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, plain=("notes",), away_wait_s=0.2) as relay:
        yield relay


@pytest.fixture
async def page(relay: RunningRelay) -> AsyncIterator[ScriptedPage]:
    async with ScriptedPage(relay.url, "notes", subprotocol=None) as page:
        yield page


class Asking:
    """A tool that asks before it answers, as websocket-mcp pages do (`names`) or as the SDK does."""

    def __init__(self, page: ScriptedPage, *, names: bool = False) -> None:
        self.page = page
        self.waiting: list[Message] = []
        self._names = names
        page.on_call = lambda page, message: self._ask(message)

    def _ask(self, message: Message) -> None:
        self.waiting.append(message)
        extra = {"relatedRequestId": message["id"], "resumptionToken": "r"} if self._names else {}
        self.page.queue({**jsonrpc.request(f"q{message['id']}", "elicitation/create", FORM), **extra})

    async def answers(self, number: int = 1) -> list[Message]:
        """The relay's responses to this many questions; each call is then answered with its own."""

        def found() -> list[Message]:
            said = [self.page.answer_to(f"q{message['id']}") for message in self.waiting]
            return [message for message in said if message is not None]

        await self.page.until(lambda: len(found()) >= number)
        for message in self.waiting:
            self.page.answer(message, {"content": [], "structuredContent": self.page.answer_to(f"q{message['id']}")})
        await self.page.flush()
        return found()


async def session(relay: RunningRelay, capabilities: dict[str, Any]) -> dict[str, str]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "t", "version": "1"},
    }
    response = await relay.http.post("/notes", json=jsonrpc.request(0, "initialize", params))
    return {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}


async def next_event(lines: AsyncIterator[str]) -> Message:
    async with asyncio.timeout(BOUND_S):
        async for line in lines:
            if line.startswith("data: {"):
                message: Message = json.loads(line.removeprefix("data: "))
                return message
    raise AssertionError("the stream ended")


def call(id: int = 5, **params: Any) -> Message:
    return jsonrpc.request(id, "tools/call", {"name": "ask", **params})


def modern(relay: RunningRelay, **params: Any) -> dict[str, Any]:
    meta = {"io.modelcontextprotocol/clientCapabilities": ABLE}
    return relay.modern("tools/call", {"name": "ask", "_meta": meta, **params})


# -- questions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [True, False], ids=["related", "only call"])
async def test_a_legacy_client_is_asked_on_its_own_stream_and_answers(
    relay: RunningRelay, page: ScriptedPage, names: bool
) -> None:
    asking = Asking(page, names=names)
    headers = await session(relay, ABLE)
    async with relay.http.stream("POST", "/notes", json=call(), headers=headers) as stream:
        lines = stream.aiter_lines()
        question = await next_event(lines)
        assert (question["method"], question["params"]) == ("elicitation/create", FORM)
        assert question.keys() == {"jsonrpc", "id", "method", "params"}
        answer = jsonrpc.result_message(question["id"], ACCEPT)
        assert (await relay.http.post("/notes", json=answer, headers=headers)).status_code == 202
        assert (await asking.answers())[0]["result"] == ACCEPT
        assert (await next_event(lines))["id"] == 5


async def test_a_modern_client_is_asked_by_the_answer_and_its_retry_goes_on(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    asking = Asking(page)
    result = (await relay.http.post("/notes", **modern(relay))).json()["result"]
    assert result["resultType"] == "input_required"
    [key] = result["inputRequests"]
    retry = modern(relay, inputResponses={key: ACCEPT}, requestState=result["requestState"])
    running = asyncio.create_task(relay.http.post("/notes", **retry))
    assert (await asking.answers())[0]["result"] == ACCEPT
    done = (await running).json()["result"]
    assert (done["resultType"], done["structuredContent"]["result"]) == ("complete", ACCEPT)
    assert len(page.calls) == 1


class Flooding:
    """A tool that asks `number` questions of `size` characters and continues when the test permits it."""

    def __init__(self, page: ScriptedPage, number: int, size: int = 10) -> None:
        self.page, self.number = page, number
        self.waiting: list[Message] = []
        self._params = {**FORM, "message": "x" * size}
        page.on_call = lambda page, message: self._ask(message)

    def _ask(self, message: Message) -> None:
        self.waiting.append(message)
        for number in range(self.number):
            question = jsonrpc.request(f"q{message['id']}-{number}", "elicitation/create", self._params)
            self.page.queue({**question, "relatedRequestId": message["id"]})

    async def refused(self, count: int) -> set[str]:
        """The relay's refusals of questions, once there are this many."""

        def found() -> list[Message]:
            asked = [f"q{message['id']}-{number}" for message in self.waiting for number in range(self.number)]
            return [answer for id in asked if (answer := self.page.answer_to(id)) is not None]

        await self.page.until(lambda: len(found()) >= count)
        assert len(found()) == count
        assert {answer["error"]["code"] for answer in found()} == {jsonrpc.INVALID_REQUEST}
        return {answer["error"]["message"] for answer in found()}

    async def finish(self) -> None:
        for message in self.waiting:
            self.page.answer(message, {"content": []})
        await self.page.flush()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_open_questions_of_a_page_during_one_call_are_bounded_and_the_call_goes_on(
    relay: RunningRelay, page: ScriptedPage, era: str
) -> None:
    flood = Flooding(page, 200)
    headers = await session(relay, ABLE)
    request = modern(relay) if era == "modern" else {"json": call(), "headers": headers}
    running = asyncio.create_task(relay.http.post("/notes", **request))
    [text] = await flood.refused(200 - relay.settings.max_questions)
    assert text == "This call has 16 open questions already. Wait for an answer before you ask again."
    if era == "modern":
        assert len((await running).json()["result"]["inputRequests"]) == relay.settings.max_questions
        await flood.finish()
    else:
        await flood.finish()
        said = [json.loads(event) for event in events((await running).text)]
        assert len([message for message in said if "method" in message]) == relay.settings.max_questions
        assert said[-1]["result"] == {"content": []}


async def test_a_question_that_was_answered_or_withdrawn_makes_room_for_another(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("notes",), max_questions=1) as relay,
        ScriptedPage(relay.url, "notes", subprotocol=None) as page,
    ):
        flood = Flooding(page, 1)
        headers = await session(relay, ABLE)
        async with relay.http.stream("POST", "/notes", json=call(), headers=headers) as stream:
            lines = stream.aiter_lines()
            question = await next_event(lines)
            [message] = flood.waiting
            for number in range(3):
                await relay.http.post("/notes", json=jsonrpc.result_message(question["id"], ACCEPT), headers=headers)
                await page.send(jsonrpc.request(f"withdrawn-{number}", "elicitation/create", FORM))
                assert (await next_event(lines))["method"] == "elicitation/create"
                await page.send(jsonrpc.notification("notifications/cancelled", {"requestId": f"withdrawn-{number}"}))
                assert (await next_event(lines))["method"] == "notifications/cancelled"
                await page.send(jsonrpc.request(f"q{message['id']}-{number + 1}", "elicitation/create", FORM))
                question = await next_event(lines)
            await flood.finish()


async def test_open_questions_of_a_page_on_one_socket_are_bounded(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("notes",), max_questions_server=20) as relay,
        ScriptedPage(relay.url, "notes", subprotocol=None) as page,
    ):
        flood = Flooding(page, 10)
        headers = await session(relay, ABLE)
        running = [asyncio.create_task(relay.http.post("/notes", json=call(id), headers=headers)) for id in range(5)]
        await page.until(lambda: len(flood.waiting) == 5)
        [text] = await flood.refused(5 * 10 - 20)
        assert text.startswith("This server has 20 open questions already.")
        # Questions of finished calls do not count as open.
        await flood.finish()
        assert [answer.status_code for answer in await asyncio.gather(*running)] == [200] * 5
        flood.waiting.clear()
        last = asyncio.create_task(relay.http.post("/notes", json=call(7), headers=headers))
        await page.until(lambda: len(flood.waiting) == 1)
        await flood.finish()
        asked = [event for event in events((await last).text) if "elicitation/create" in event]
        assert len(asked) == 10


async def test_open_questions_have_a_size_together(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("notes",), question_budget=50_000) as relay,
        ScriptedPage(relay.url, "notes", subprotocol=None) as page,
    ):
        flood = Flooding(page, 10, 10_000)
        running = asyncio.create_task(relay.http.post("/notes", json=call(), headers=await session(relay, ABLE)))
        await page.until(lambda: len(flood.waiting) == 1)
        [text] = await flood.refused(6)
        assert text.startswith("Open questions of one server have at most 50,000 characters together.")
        await flood.finish()
        assert (await running).status_code == 200


async def test_an_answer_of_another_caller_is_dropped(relay: RunningRelay, page: ScriptedPage) -> None:
    asking = Asking(page)
    mine, theirs = await session(relay, ABLE), await session(relay, ABLE)
    async with relay.http.stream("POST", "/notes", json=call(), headers=mine) as stream:
        question = await next_event(stream.aiter_lines())
        forged = jsonrpc.result_message(question["id"], {"action": "decline"})
        await relay.http.post("/notes", json=forged, headers=theirs)
        await relay.http.post("/notes", json=jsonrpc.result_message(question["id"], ACCEPT), headers=mine)
        assert [answer["result"] for answer in await asking.answers()] == [ACCEPT]


async def test_with_calls_of_two_callers_only_a_named_one_can_be_asked(relay: RunningRelay, page: ScriptedPage) -> None:
    waiting: list[Message] = []
    page.on_call = lambda page, message: waiting.append(message)
    one, two = await session(relay, ABLE), await session(relay, ABLE)
    async with (
        relay.http.stream("POST", "/notes", json=call(), headers=one) as first,
        relay.http.stream("POST", "/notes", json=call(), headers=two),
    ):
        await page.until(lambda: len(waiting) == 2)
        await page.send(jsonrpc.request("q1", "elicitation/create", FORM))
        await page.until(lambda: page.answer_to("q1") is not None)
        answer = page.answer_to("q1")
        assert answer is not None and "error" in answer
        related = {"relatedRequestId": waiting[0]["id"]}
        await page.send({**jsonrpc.request("q2", "elicitation/create", FORM), **related})
        assert (await next_event(first.aiter_lines()))["method"] == "elicitation/create"


async def test_what_a_cancelled_call_still_asks_is_not_put_to_the_next_caller(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    waiting: list[Message] = []
    page.on_call = lambda page, message: waiting.append(message)
    running = asyncio.create_task(relay.http.post("/notes", **modern(relay)))
    await page.until(lambda: len(waiting) == 1)
    running.cancel()
    await page.until(lambda: page.has("notifications/cancelled"))
    next_one = asyncio.create_task(relay.http.post("/notes", **modern(relay)))
    await page.until(lambda: len(waiting) == 2)
    await page.send(jsonrpc.request("q1", "elicitation/create", FORM))
    await page.until(lambda: page.answer_to("q1") is not None)
    answer = page.answer_to("q1")
    assert answer is not None and "error" in answer
    page.answer(waiting[1], {"content": []})
    await page.flush()
    assert (await next_one).json()["result"]["resultType"] == "complete"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_that_cannot_be_asked_is_answered_for(relay: RunningRelay, page: ScriptedPage, era: str) -> None:
    asking = Asking(page)
    headers = await session(relay, {"sampling": {}})
    request = {"json": call(), "headers": headers} if era == "legacy" else relay.modern("tools/call", {"name": "ask"})
    running = asyncio.create_task(relay.http.post("/notes", **request))
    assert (await asking.answers())[0]["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert (await running).status_code == 200


async def test_outside_of_any_call_no_client_is_asked_but_pings_are_answered(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    await page.send(jsonrpc.request("q1", "roots/list"), jsonrpc.request("q2", "acme/x"), jsonrpc.request("q3", "ping"))
    await page.until(lambda: page.answer_to("q3") is not None)
    answers = [page.answer_to(id) for id in ("q1", "q2", "q3")]
    assert ["error" in (answer or {}) for answer in answers] == [True, True, False]


async def test_a_question_that_the_page_withdraws_is_withdrawn_from_its_caller(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    waiting: list[Message] = []
    page.on_call = lambda page, message: waiting.append(message)
    headers = await session(relay, ABLE)
    running = asyncio.create_task(relay.http.post("/notes", json=call(), headers=headers))
    await page.until(lambda: bool(waiting))
    page.queue(jsonrpc.request("q1", "elicitation/create", FORM))
    page.queue(jsonrpc.notification("notifications/cancelled", {"requestId": "q1", "reason": "timeout"}))
    page.answer(waiting[0], {"content": []})
    await page.flush()
    question, withdrawn, _ = map(json.loads, events((await running).text))
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"] == {"requestId": question["id"], "reason": "timeout"}


# -- logs, lists and resources ----------------------------------------------------------------------------------------


async def test_a_log_message_goes_to_the_call_it_belongs_to_at_its_level(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    def talk(page: ScriptedPage, message: Message) -> None:
        for level in ("debug", "warning"):
            page.queue(jsonrpc.notification("notifications/message", {"level": level, "data": level}))
        page.answer(message, {"content": []})

    page.on_call = talk
    quiet = await relay.http.post("/notes", **modern(relay))
    assert quiet.headers["content-type"] == "application/json"
    meta = {"io.modelcontextprotocol/logLevel": "warning", "io.modelcontextprotocol/clientCapabilities": ABLE}
    loud = await relay.http.post("/notes", **modern(relay, _meta=meta))
    received = [json.loads(event) for event in events(loud.text)]
    assert [message["params"]["data"] for message in received[:-1]] == ["warning"]
    assert [message["params"] for message in page.of("logging/setLevel")] == [{"level": "warning"}]


async def test_the_page_logs_at_the_most_detailed_level_of_all_callers(relay: RunningRelay, page: ScriptedPage) -> None:
    async def set_level(headers: dict[str, str], level: str) -> None:
        body = jsonrpc.request(1, "logging/setLevel", {"level": level})
        assert (await relay.http.post("/notes", json=body, headers=headers)).json()["result"] == {}

    one, two = await session(relay, {}), await session(relay, {})
    await set_level(one, "info")
    await set_level(two, "error")
    await set_level(two, "debug")
    await relay.http.delete("/notes", headers=two)
    await page.until(lambda: len(page.of("logging/setLevel")) == 3)
    assert [message["params"]["level"] for message in page.of("logging/setLevel")] == ["info", "debug", "info"]


async def test_a_log_message_outside_of_calls_reaches_sessions_and_none_that_names_a_call(
    relay: RunningRelay, page: ScriptedPage
) -> None:
    headers = await session(relay, {})
    async with relay.http.stream("GET", "/notes", headers=headers) as stream:
        lines = stream.aiter_lines()
        message = jsonrpc.notification("notifications/message", {"level": "info", "data": "whose?"})
        await page.send({**message, "relatedRequestId": 99})  # of a call that has ended
        params = {"level": "info", "data": "for all"}
        await page.send(jsonrpc.notification("notifications/message", params))
        while (event := await next_event(lines))["method"] != "notifications/message":
            pass
        assert event["params"] == params


async def test_a_changed_list_reaches_every_listener_even_after_a_reload(relay: RunningRelay) -> None:
    headers = await session(relay, {})
    listen = relay.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="mine")
    async with ScriptedPage(relay.url, "notes") as page:
        get = relay.http.stream("GET", "/notes", headers=headers)
        post = relay.http.stream("POST", "/notes", **listen)
        async with get as legacy, post as stream:
            lines = stream.aiter_lines()
            old = legacy.aiter_lines()
            assert (await next_event(lines))["params"]["notifications"] == {"toolsListChanged": True}
            page.tools = [OTHER_TOOL]
            await page.send(jsonrpc.notification("notifications/tools/list_changed"))
            tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": "mine"}}
            assert (await next_event(lines))["params"] == tag
            assert (await next_event(old)) == jsonrpc.notification("notifications/tools/list_changed")
            await page.hang_up()
            reloaded = ScriptedPage(relay.url, "notes")
            reloaded.tools = [OTHER_TOOL]
            async with reloaded:
                await reloaded.until(lambda: reloaded.has("tools/list"))
                reloaded.tools = [ECHO_TOOL, OTHER_TOOL]
                await reloaded.send(jsonrpc.notification("notifications/tools/list_changed"))
                assert (await next_event(lines))["params"] == tag
                assert (await next_event(old))["method"] == "notifications/tools/list_changed"


async def test_a_resource_is_subscribed_once_for_all_and_again_after_a_reload(relay: RunningRelay) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["note:1"]}}
    headers = await session(relay, {})
    subscribe = jsonrpc.request(1, "resources/subscribe", {"uri": "note:1"})
    async with ScriptedPage(relay.url, "notes") as page:
        await relay.http.post("/notes", json=subscribe, headers=headers)
        async with relay.http.stream("POST", "/notes", **relay.modern("subscriptions/listen", wanted)) as stream:
            lines = stream.aiter_lines()
            await next_event(lines)
            await page.send(
                jsonrpc.notification("notifications/resources/updated", {"uri": "note:2"}),
                jsonrpc.notification("notifications/resources/updated", {"uri": "note:1"}),
            )
            assert (await next_event(lines))["params"]["uri"] == "note:1"
        unsubscribe = jsonrpc.request(2, "resources/unsubscribe", {"uri": "note:1"})
        async with ScriptedPage(relay.url, "notes") as reloaded:
            await reloaded.until(lambda: reloaded.has("resources/subscribe"))
            answer = await relay.http.post("/notes", json=unsubscribe, headers=headers)
            assert answer.json()["result"] == {}
            await reloaded.until(lambda: reloaded.has("resources/unsubscribe"))
