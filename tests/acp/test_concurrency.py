"""More calls than may run at a time: which calls wait, for how long, and how waiting calls end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tabrelay.acp import browser_servers, concurrency, line_writer, relay_client, relay_session
from tabrelay.acp import connection as conversation
from tabrelay.acp.concurrency import OrderedDelivery
from tabrelay.acp.dialects import G4, MAX_ACTIVE
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.relay_client import RelayClient
from tabrelay.bridge import bridge
from tests.support.acp_harness import ACP, URL, ConductorHarness, McpProgram, NoRelay

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
GREETING = {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}
FOUND = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
SHAPES = ["g3", "g4", "handshake"]


class Line:
    """An MCP client's connection, in one of the shapes."""

    def __init__(self, stage: ConductorHarness, plug: McpProgram, shape: str) -> None:
        self.stage, self.plug, self.shape = stage, plug, shape
        self.places = 128 if shape == "g3" else MAX_ACTIVE

    def call(self, id: Any) -> None:
        params = {"name": "x", "arguments": {"n": id}, **({"_meta": META} if self.shape == "g4" else {})}
        self.plug.send(id=id, method="tools/call", params=params)

    def cancel(self, id: Any) -> None:
        self.plug.send(method="notifications/cancelled", params={"requestId": id})

    async def called(self) -> tuple[Any, Any]:
        """The editor's next call: its contents, and its id."""
        asked = await self.stage.editor.until(lambda one: "id" in one and "method" in one)
        return asked["params"]["params"]["arguments"]["n"], asked["id"]

    async def cancelled(self) -> Any:
        """The next call that the editor is asked to cancel."""
        said = await self.stage.editor.until(lambda one: one.get("method") == "$/cancel_request")
        return said["params"]["requestId"]

    def answer(self, id: Any, **result: Any) -> None:
        result = {"content": [], "resultType": "complete", **result}
        self.stage.editor.send(id=id, result=result if self.shape == "g3" else {"result": result})

    async def fill(self, more: int = 0) -> list[Any]:
        """As many calls as may run, and some that wait; returns the editor's ids of the former."""
        for number in range(self.places + more):
            self.call(number)
        return [(await self.called())[1] for _ in range(self.places)]


async def line(stage: ConductorHarness, shape: str) -> Line:
    await stage.greet()
    [server] = await stage.open(ACP)
    plug = await stage.plug(server)
    asked = await stage.editor.next() if shape == "g3" else None
    if asked is not None:
        stage.editor.send(id=asked["id"], result={"connectionId": "c1"})
    elif shape == "handshake":
        plug.send(id="i", method="initialize", params=GREETING)
        stage.editor.send(id=(await stage.editor.next())["id"], result={"result": FOUND})
        assert (await plug.next())["id"] == "i"
    return Line(stage, plug, shape)


def staged(shape: str) -> ConductorHarness:
    return ConductorHarness(profile=None if shape == "g3" else G4)


async def is_quiet(stage: ConductorHarness) -> None:
    """Whether the editor has received nothing else."""
    stage.agent.send(method="quiet", params={})
    assert (await stage.editor.next())["method"] == "quiet"


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_cancellation_does_not_wait_behind_calls_that_do(shape: str) -> None:
    async with staged(shape) as stage:
        on = await line(stage, shape)
        running = await on.fill(more=3)
        on.cancel(5)
        assert await on.cancelled() == running[5]
        assert (await on.called())[0] == on.places, "its place is the next one's"
        await is_quiet(stage)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_call_that_is_cancelled_while_it_waits_is_never_made(shape: str) -> None:
    async with staged(shape) as stage:
        on = await line(stage, shape)
        running = await on.fill(more=3)
        on.cancel(on.places + 1)
        on.cancel(on.places)
        on.call("last")
        stage.editor.send(method="x", params={})
        await is_quiet(stage)
        for id in running[:2]:
            on.answer(id)
        assert [(await on.called())[0] for _ in range(2)] == [on.places + 2, "last"]
        assert {(await on.plug.next())["id"] for _ in range(2)} == {0, 1}


async def test_an_answer_that_a_running_call_waits_for_does_not_wait_behind_calls_that_do() -> None:
    async with staged("g3") as stage:
        on = await line(stage, "g3")
        running = await on.fill(more=3)
        stage.editor.send(id=900, method="mcp/message", params={"connectionId": "c1", "method": "roots/list"})
        asked = await on.plug.next()
        on.plug.send(method="notifications/progress", params={"progressToken": 1})
        on.plug.send(id=asked["id"], result={"roots": []})
        told = await stage.editor.next()
        assert told["params"]["method"] == "notifications/progress"
        assert await stage.editor.next() == {"jsonrpc": "2.0", "id": 900, "result": {"roots": []}}
        on.answer(running[7])
        assert (await on.plug.next())["id"] == 7
        assert (await on.called())[0] == on.places


async def test_an_answer_in_envelopes_does_not_wait_behind_calls_that_do() -> None:
    async with staged("handshake") as stage:
        on = await line(stage, "handshake")
        running = await on.fill(more=3)
        question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
        on.answer(running[7], resultType="input_required", inputRequests={"q": question}, requestState="s")
        asked = await on.plug.next()
        assert asked["method"] == "elicitation/create"
        on.plug.send(id=asked["id"], result={"action": "decline"})
        again = await stage.editor.next()
        assert again["params"]["params"]["inputResponses"]["q"]["action"] == "decline"
        on.answer(again["id"])
        assert (await on.plug.next())["id"] == 7
        assert (await on.called())[0] == on.places


@pytest.mark.parametrize("shape", SHAPES)
async def test_calls_that_wait_are_made_in_the_order_in_which_they_came(shape: str) -> None:
    async with staged(shape) as stage:
        on = await line(stage, shape)
        ids = await on.fill(more=200)
        made = []
        for _ in range(200):
            on.answer(ids.pop())
            number, id = await on.called()
            made.append(number)
            ids.append(id)
        assert made == list(range(on.places, on.places + 200))


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_call_whose_turn_does_not_come_is_refused_and_may_be_tried_again(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "QUEUE_TIMEOUT_S", 0.2)
    async with staged(shape) as stage:
        on = await line(stage, shape)
        running = await on.fill(more=2)
        for number in (0, 1):
            refused = await on.plug.next()
            assert refused["id"] == on.places + number
            assert refused["error"]["code"] == -31013
            assert refused["error"]["data"] == {"reason": "busy", "delivered": "no", "retryable": True, "help": "TR104"}
            assert "not delivered" in refused["error"]["message"]
        on.answer(running[0])
        assert (await on.plug.next())["id"] == 0
        on.call("again")
        assert (await on.called())[0] == "again"


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_full_queue_delays_nothing_without_a_limit(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message that ends a running call is queued after it."""
    monkeypatch.setattr(concurrency, "QUEUE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(concurrency, "MAX_WAITING", 4)
    async with staged(shape) as stage:
        on = await line(stage, shape)
        running = await on.fill(more=10)
        on.cancel(3)
        assert await on.cancelled() == running[3]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_client_that_leaves_takes_the_calls_that_wait_with_it(shape: str) -> None:
    async with staged(shape) as stage:
        on = await line(stage, shape)
        running = await on.fill(more=50)
        on.plug.close()
        given_up = {await on.cancelled() for _ in running}
        assert given_up == set(running)
        if shape == "g3":
            assert (await stage.editor.next())["method"] == "mcp/disconnect"
        await is_quiet(stage)


async def test_a_client_that_leaves_is_noticed_behind_a_full_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "MAX_WAITING", 4)
    async with staged("g3") as stage:
        on = await line(stage, "g3")
        await on.fill(more=20)
        on.plug.close()
        assert (await stage.editor.until(lambda one: one.get("method") == "mcp/disconnect"))["id"]


async def test_a_call_is_cancelled_by_what_comes_in_the_same_piece() -> None:
    async with staged("handshake") as stage:
        on = await line(stage, "handshake")
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {"n": 1}}}
        given_up = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        on.plug.raw(b"\n".join(json.dumps(one).encode() for one in (call, given_up)))
        on.call(2)
        number, id = await on.called()
        if number == 1:  # it may have been made: then it was cancelled
            assert await on.cancelled() == id
            number, id = await on.called()
        assert number == 2
        on.answer(id)
        assert (await on.plug.next())["id"] == 2


async def test_a_call_that_is_asked_again_in_another_shape_can_be_cancelled() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(URL)
        plug = await stage.plug(server)
        stage.editor.send(id=(await stage.editor.next())["id"], result={"connection_id": "c1"})
        plug.send(id=1, method="tools/call", params={})
        first = await stage.editor.next()
        stage.editor.send(id=first["id"], error={"code": -32601, "message": "Method not found"})
        second = await stage.editor.next()
        assert second["method"] == "_mcp/message"
        plug.send(method="notifications/cancelled", params={"requestId": 1})
        said = await stage.editor.until(lambda one: one.get("method") == "$/cancel_request")
        assert said["params"] == {"requestId": second["id"]}
        stage.editor.send(id=second["id"], result={})
        plug.send(id=2, method="ping")
        stage.editor.send(id=(await stage.editor.next())["id"], result={})
        assert (await plug.next())["id"] == 2, "a cancelled request was answered"


async def test_no_more_questions_are_put_to_a_client_than_it_may_leave_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation, "MAX_INBOUND", 2)
    async with staged("g3") as stage:
        on = await line(stage, "g3")
        inner = {"connectionId": "c1", "method": "roots/list"}
        for id in (50, 51, 52):
            stage.editor.send(id=id, method="mcp/message", params=inner)
        refused = await stage.editor.next()
        assert (refused["id"], refused["error"]["code"]) == (52, -31013)
        asked = await on.plug.next()
        on.plug.send(id=asked["id"], result={})
        assert (await stage.editor.next())["id"] == 50
        stage.editor.send(id=53, method="mcp/message", params=inner)
        assert len({(await on.plug.next())["id"] for _ in range(2)}) == 2


@pytest.mark.parametrize("shape", SHAPES)
async def test_answers_to_a_client_that_does_not_read_stay_with_the_editor(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_writer, "MAX_BYTES", 1 << 20)
    async with staged(shape) as stage:
        on = await line(stage, shape)
        running = (await on.fill())[:60]
        on.plug.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for id in running:
            on.answer(id, content=[{"type": "text", "text": "x" * (1 << 20)}])
        unread = stage.editor.chunks_in
        before = 0
        while before != unread.qsize():  # until no more is read
            before = unread.qsize()
            for _ in range(300):
                await asyncio.sleep(0)
        assert unread.qsize() > 30, "they were taken, and are nowhere counted"
        on.plug.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert {(await on.plug.next())["id"] for _ in running} == set(range(60))


# -- the queue ---------------------------------------------------------------------------------------------------------


class FakeTransport:
    """Starts requests, and records which were started and refused."""

    def __init__(self, limit: int) -> None:
        self.begun: list[Any] = []
        self.refused: list[Any] = []
        self.queue = OrderedDelivery(limit, self._begin, self._write)

    async def _begin(self, message: AcpMessage) -> None:
        await asyncio.sleep(0)
        self.begun.append(message.id)
        if message.method == "broken":
            raise ValueError("broken")

    async def _write(self, line: bytes) -> None:
        self.refused.append(json.loads(line)["id"])

    def enter(self, id: Any, size: int = 0, method: str = "x") -> asyncio.Task[None]:
        message = {"id": id, "method": method, "params": {"text": "x" * size}}
        return asyncio.create_task(self.queue.submit(AcpMessage.read(json.dumps(message).encode())))


async def settled() -> None:
    """Runs everything that can run without further input."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("bound", "size"), [("MAX_WAITING", 0), ("MAX_BYTES", 500)])
async def test_a_full_queue_takes_no_more_until_there_is_room(
    bound: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, bound, 2 if bound == "MAX_WAITING" else 1500)
    fake = FakeTransport(1)
    tasks = [fake.enter(number, size) for number in range(5)]
    await settled()
    assert [task.done() for task in tasks] == [True, True, True, False, False]
    assert fake.queue.withdraw(("int", 1)) and not fake.queue.withdraw(("int", 1))
    await settled()
    assert [task.done() for task in tasks] == [True, True, True, True, False]
    for _ in range(5):
        fake.queue.release()
        await settled()
    assert fake.begun == [0, 2, 3, 4] and all(task.done() for task in tasks)
    await fake.queue.close()


async def test_one_that_exceeds_the_whole_limit_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "MAX_BYTES", 100)
    fake = FakeTransport(1)
    tasks = [fake.enter(number, 200) for number in range(3)]
    await settled()
    assert [task.done() for task in tasks] == [True, True, False]
    for _ in range(3):
        fake.queue.release()
        await settled()
    assert fake.begun == [0, 1, 2]
    await fake.queue.close()


async def test_a_request_that_cannot_be_started_frees_its_slot_and_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeTransport(1)
    tasks = [fake.enter(0), fake.enter(1, method="broken"), fake.enter(2)]
    await settled()
    fake.queue.release()
    await settled()
    assert fake.begun == [0, 1, 2] and fake.refused == [1] and all(task.done() for task in tasks)
    assert "could not be sent" in caplog.text
    await fake.queue.close()


async def test_no_request_is_started_after_close() -> None:
    fake = FakeTransport(1)
    before = asyncio.all_tasks()
    tasks = [fake.enter(number) for number in range(4)]
    await settled()
    fake.queue.release()
    await fake.queue.close()
    fake.queue.release()
    tasks.append(fake.enter(5))
    await settled()
    assert fake.begun == [0] and fake.refused == []
    assert all(task.done() for task in tasks) and asyncio.all_tasks() == before


async def test_close_releases_callers_that_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "MAX_WAITING", 1)
    fake = FakeTransport(1)
    tasks = [fake.enter(number) for number in range(4)]
    await settled()
    await fake.queue.close()
    await settled()
    assert fake.begun == [0] and all(task.done() for task in tasks)


# -- a browser's server that reads nothing -----------------------------------------------------------------------------


async def test_a_stalled_relay_does_not_delay_other_messages_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "MAX_QUEUED", 1000)
    monkeypatch.setattr(relay_session, "MAX_BYTES", 1000)
    monkeypatch.setattr(relay_session, "STALL_TIMEOUT_S", 0.2)
    monkeypatch.setattr(relay_client, "REQUEST_S", 0.1)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    still = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{still.sockets[0].getsockname()[1]}"
    async with still, ConductorHarness(RelayClient(tmp_path, lambda: url, ("notes",))) as stage:
        await stage.greet(acp=True)
        [server] = await stage.open()
        stage.agent.send(id=1, method="mcp/connect", params={"serverId": server["serverId"]})
        connection = (await stage.agent.next())["result"]["connectionId"]
        inner = {"connectionId": connection, "method": "initialize", "params": GREETING}
        stage.agent.send(id=2, method="mcp/message", params=inner)
        for id in range(3, 9):
            inner = {"connectionId": connection, "method": "tools/list", "params": {"text": "x" * 900}}
            stage.agent.send(id=id, method="mcp/message", params=inner)
        stage.agent.send(method="session/update", params={})
        assert await stage.editor.until(lambda one: one["method"] == "session/update")
        answered = []
        while (said := await stage.agent.next()).get("method") != "mcp/disconnect":
            answered.append((said["id"], said["error"]["message"]))
        assert answered[0] == (2, "The MCP connection was closed."), "the request is refused, since no answer will come"
        assert said["params"] == {"connectionId": connection}


async def test_an_agent_has_as_many_connections_to_a_browser_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_servers, "MAX_CONNECTIONS", 2)
    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet(acp=True)
        [server] = await stage.open()
        for id in range(3):
            stage.agent.send(id=id, method="mcp/connect", params={"serverId": server["serverId"]})
        said = [await stage.agent.next() for _ in range(3)]
        assert [one.get("error", {}).get("code") for one in said] == [None, None, -31013]
        stage.agent.send(id=3, method="mcp/disconnect", params=said[0]["result"])
        assert (await stage.agent.next())["id"] == 3
        stage.agent.send(id=4, method="mcp/connect", params={"serverId": server["serverId"]})
        assert (await stage.agent.next())["result"]["connectionId"]
