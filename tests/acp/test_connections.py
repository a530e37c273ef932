"""Connections to servers of the editor that are no longer needed: each is closed exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabrelay.acp import editor_connection, local_port, requests
from tabrelay.acp.dialects import G2, Dialect
from tabrelay.acp.message import AcpMessage, RequestIds
from tabrelay.acp.requests import RequestTable
from tests.support.acp_harness import ACP, URL, WAIT_S, ConductorHarness, McpProgram
from tests.support.waiting import until

SHAPES = [(None, URL), (G2, URL), (None, ACP)]
NAMES = ["g1", "g2", "g3"]


async def asked_to_connect(stage: ConductorHarness, declared: Any = ACP) -> tuple[McpProgram, Any]:
    """A client that waits for its connection, and the editor's request for it."""
    await stage.greet()
    [server] = await stage.open(declared)
    plug = await stage.plug(server)
    asked = await stage.editor.next()
    assert asked["method"].endswith("mcp/connect")
    return plug, asked


def answer(stage: ConductorHarness, asked: Any, connection: str = "c1") -> None:
    spelling = "connectionId" if asked["method"] == "mcp/connect" else "connection_id"
    stage.editor.send(id=asked["id"], result={spelling: connection})


async def close_session(stage: ConductorHarness) -> None:
    stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
    await stage.agent.until(lambda message: message.get("method") == "session/close")
    stage.agent.send(id=9, result={})
    assert (await stage.editor.next())["id"] == 9


async def is_ended_once(stage: ConductorHarness, asked: Any, connection: str = "c1") -> None:
    """In the shape's own form; the next message is the agent's own."""
    gone = await stage.editor.next()
    if asked["method"] == "mcp/connect":
        assert (gone["method"], gone["params"]) == ("mcp/disconnect", {"connectionId": connection})
        stage.editor.send(id=gone["id"], result={})
    else:
        params = {"connection_id": connection}
        assert gone == {"jsonrpc": "2.0", "method": "_mcp/disconnect", "params": params}
    await nothing_more(stage)


async def nothing_more(stage: ConductorHarness) -> None:
    """Neither to the editor nor, after its answers, to the agent."""
    stage.editor.send(method="to the agent", params={})
    assert (await stage.agent.next())["method"] == "to the agent"
    stage.agent.send(method="to the editor", params={})
    assert (await stage.editor.next())["method"] == "to the editor"
    stage.editor.send(id=70, method="mcp/message", params={"connectionId": "c1", "method": "ping"})
    assert (await stage.editor.next())["error"]["code"] == -32602, "the connection is still known"


@pytest.mark.parametrize(("profile", "declared"), SHAPES, ids=NAMES)
@pytest.mark.parametrize("why", ["hung up", "closed", "too slow"])
async def test_a_connection_that_is_made_after_it_was_given_up_is_ended_once(
    profile: Dialect | None, declared: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "too slow":
        monkeypatch.setattr(editor_connection, "CONNECT_S", 0.1)
    async with ConductorHarness(profile=profile) as stage:
        plug, asked = await asked_to_connect(stage, declared)
        if why == "closed":
            await close_session(stage)
        elif why == "hung up":
            plug.close()
        if why != "closed":
            assert await plug.line() == b"" or why == "hung up"
            await close_session(stage)  # every action for the client is finished when this is answered
        answer(stage, asked)
        await is_ended_once(stage, asked)


@pytest.mark.parametrize(("profile", "declared"), SHAPES, ids=NAMES)
@pytest.mark.parametrize("refusal", [{"error": {"code": -32602, "message": "no"}}, {"result": {}}, {"result": None}])
async def test_one_that_is_refused_after_it_was_given_up_is_not_ended(
    profile: Dialect | None, declared: Any, refusal: Any
) -> None:
    async with ConductorHarness(profile=profile) as stage:
        _, asked = await asked_to_connect(stage, declared)
        await close_session(stage)
        stage.editor.send(id=asked["id"], **refusal)
        await nothing_more(stage)


@pytest.mark.parametrize("first", ["answer", "close"])
@pytest.mark.parametrize("turns", range(12))
async def test_one_that_is_made_just_when_it_is_given_up_is_ended_once(first: str, turns: int) -> None:
    """A cancelled task receives the cancellation a few iterations of the loop after the others have continued."""
    async with ConductorHarness() as stage:
        _, asked = await asked_to_connect(stage)
        stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        await stage.agent.next()
        for step in ("answer", "close") if first == "answer" else ("close", "answer"):
            if step == "answer":
                answer(stage, asked)
            else:
                stage.agent.send(id=9, result={})
            for _ in range(turns):
                await asyncio.sleep(0)
        said = [await stage.editor.next(), await stage.editor.next()]
        assert {one.get("id") for one in said} > {9}
        assert [one["params"] for one in said if one.get("method") == "mcp/disconnect"] == [{"connectionId": "c1"}]
        await nothing_more(stage)


@pytest.mark.parametrize("turns", range(24))
async def test_one_whose_session_is_closed_just_when_its_client_leaves_is_ended_once(turns: int) -> None:
    """Its close is already running, and no task waits for it any more."""
    async with ConductorHarness() as stage:
        plug, asked = await asked_to_connect(stage)
        answer(stage, asked)
        plug.send(id=1, method="tools/call", params={})
        call = await stage.editor.next()
        stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        await stage.agent.next()
        plug.writer.transport.abort()
        for _ in range(turns):
            await asyncio.sleep(0)
        stage.agent.send(id=9, result={})
        said = [await stage.editor.next() for _ in range(3)]
        assert sorted(str(one.get("method")) for one in said) == ["$/cancel_request", "None", "mcp/disconnect"]
        assert call["id"] in [one.get("params", {}).get("requestId") for one in said]
        await nothing_more(stage)


async def test_an_answer_that_comes_before_the_cancellation_is_noticed_is_looked_at_all_the_same() -> None:
    sent: asyncio.Queue[bytes] = asyncio.Queue()
    late: list[AcpMessage] = []

    async def too_late(message: AcpMessage) -> None:
        late.append(message)

    other = RequestTable(sent.put, RequestIds())
    task = asyncio.create_task(other.request("connect", None, on_late_answer=too_late))
    async with asyncio.timeout(WAIT_S):
        asked = AcpMessage.read(await sent.get())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    found = AcpMessage.read(b'{"id":%s,"result":{}}' % asked.id_text.encode())
    assert other.is_answer(found)
    await other.resolve(found)
    assert late == [found]
    await asyncio.wait({task})
    assert task.cancelled()
    await other.resolve(found)
    assert late == [found], "it was looked at twice"


async def test_a_connection_is_ended_also_when_its_session_is_closed_while_the_editor_does_not_read() -> None:
    async with ConductorHarness() as stage:
        plug, asked = await asked_to_connect(stage)
        answer(stage, asked)
        plug.send(id=1, method="tools/call", params={})
        call = await stage.editor.next()
        stage.editor.may_write.clear()
        plug.close()
        stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        await stage.agent.next()
        stage.agent.send(id=9, result={})
        for _ in range(100):  # every pending callback runs
            await asyncio.sleep(0)
        stage.editor.may_write.set()
        said = [await stage.editor.next() for _ in range(3)]
        assert sorted(str(one.get("method")) for one in said) == ["$/cancel_request", "None", "mcp/disconnect"]
        assert call["id"] in [one.get("params", {}).get("requestId") for one in said]
        await nothing_more(stage)


async def test_a_client_that_disconnects_while_it_is_connected_leaves_its_place_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_port, "MAX_CONNECTIONS", 1)
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        plug.send(id=1, method="initialize", params={})
        first = await stage.editor.next()
        plug.close()

        async def is_connected() -> bool:
            await stage.plug(server)
            return not stage.editor.is_silent

        await until(is_connected)  # no event shows when the slot is free
        second = await stage.editor.next()
        assert (first["method"], second["method"]) == ("mcp/connect", "mcp/connect")


async def test_a_client_that_left_before_the_editor_was_asked_is_not_mentioned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(editor_connection, "SESSION_S", WAIT_S)
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.ask_for_session(ACP)
        plug = await stage.plug(server)
        plug.close()
        # Later messages were handled, so the first one is waiting.
        assert await (await stage.plug(server, nonce="guess")).line() == b""
        stage.agent.send(id=1, result={"sessionId": "s1"})
        assert (await stage.editor.next())["id"] == 1
        await close_session(stage)
        await nothing_more(stage)


async def test_an_agent_that_dies_leaves_no_connection_at_the_editor() -> None:
    async with ConductorHarness() as stage:
        _, asked = await asked_to_connect(stage)
        answer(stage, asked)
        stage.editor.send(id=5, method="mcp/message", params={"connectionId": "c1", "method": "roots/list"})
        stage.agent.die(3)
        said = [await stage.editor.next(), await stage.editor.next()]
        assert said[0]["id"] == 5 and "closed" in said[0]["error"]["message"]
        assert (said[1]["method"], said[1]["params"]) == ("mcp/disconnect", {"connectionId": "c1"})
        assert await stage.ended() == 3
        assert stage.editor.is_silent


async def test_an_editor_that_answers_none_is_asked_for_no_more_than_can_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "MAX_LATE", 2)
    monkeypatch.setattr(editor_connection, "CONNECT_S", 0.1)
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        asked = []
        for _ in range(2):
            plug = await stage.plug(server)
            asked.append(await stage.editor.next())
            assert await plug.line() == b""
        assert await (await stage.plug(server)).line() == b""
        assert stage.editor.is_silent, "it was asked for one more"
        for number, one in enumerate(asked):
            answer(stage, one, f"c{number}")
            assert (await stage.editor.next())["params"] == {"connectionId": f"c{number}"}
        await stage.plug(server)
        assert (await stage.editor.next())["method"] == "mcp/connect"


async def test_late_answers_reach_no_other_request_however_many_they_are() -> None:
    async with ConductorHarness() as stage:
        plug, asked = await asked_to_connect(stage)
        answer(stage, asked)
        late = []
        for number in range(1100):
            plug.send(id=number, method="tools/call", params={})
            late.append((await stage.editor.next())["id"])
            plug.send(method="notifications/cancelled", params={"requestId": number})
            assert (await stage.editor.next())["params"]["method"] == "notifications/cancelled"
            assert (await stage.editor.next())["method"] == "$/cancel_request"
        for id in late:
            stage.editor.send(id=id, error={"code": -32800, "message": "cancelled"})
        stage.editor.send(method="to the agent", params={})
        assert (await stage.agent.next())["method"] == "to the agent"


async def test_of_two_connections_with_one_name_the_end_of_one_is_not_the_others() -> None:
    async with ConductorHarness() as stage:
        first, asked = await asked_to_connect(stage)
        answer(stage, asked, "same")
        [server] = await stage.open(ACP, session="s2", id=2)
        second = await stage.plug(server)
        answer(stage, await stage.editor.next(), "same")
        second.send(id=1, method="ping")
        assert (await stage.editor.next())["params"]["method"] == "ping"
        first.close()
        assert (await stage.editor.next())["method"] == "mcp/disconnect"
        stage.editor.send(method="mcp/message", params={"connectionId": "same", "method": "notifications/x"})
        assert (await second.next())["method"] == "notifications/x"
