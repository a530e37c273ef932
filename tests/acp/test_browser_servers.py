"""Browser servers for agents that support MCP over ACP, with the real relay and the browser's own Python."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tabrelay.acp.relay_client import RelayClient
from tests.support.acp_harness import WAIT_S, ConductorHarness
from tests.support.acp_relay import LEGACY, META, ConductorWithRelay, scene, whose


async def native(set: ConductorWithRelay, *servers: Any) -> Any:
    await set.stage.greet(acp=True)
    found = await set.stage.open(*servers)
    return found[-1]


async def test_a_native_agent_gets_every_declaration_as_it_was_and_one_more(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        theirs = {"type": "acp", "name": "theirs", "serverId": "t"}
        await set.stage.greet(acp=True)
        first, ours = await set.stage.open(theirs)
        assert first == theirs
        assert ours == {"type": "acp", "name": "notes", "serverId": ours["serverId"]}
        set.stage.agent.send(id=70, method="mcp/connect", params={"serverId": "t"})
        asked = await set.stage.editor.next()
        assert asked == {"jsonrpc": "2.0", "id": 70, "method": "mcp/connect", "params": {"serverId": "t"}}
        set.stage.editor.send(id=70, result={"connectionId": "k"})
        assert (await set.stage.agent.next())["result"] == {"connectionId": "k"}
        set.stage.editor.send(id=71, method="mcp/message", params={"connectionId": "k", "method": "ping"})
        assert (await set.stage.agent.next())["id"] == 71


@pytest.mark.parametrize(
    ("connect", "message", "disconnect"),
    [
        ("mcp/connect", "mcp/message", "mcp/disconnect"),
        ("_mcp/connect", "_mcp/message", "_mcp/disconnect"),
        ("_mcp/connect", "_mcp/request", "_mcp/disconnect"),
    ],
)
async def test_a_native_agent_uses_a_browser_over_a_connection(
    tmp_path: Path, connect: str, message: str, disconnect: str
) -> None:
    async with scene(tmp_path) as set:
        agent = set.stage.agent
        server = await native(set)
        asks = {"serverId": server["serverId"]}
        if connect.startswith("_"):
            asks = {"acp_url": f"acp:{server['serverId']}"}
        agent.send(id=1, method=connect, params=asks)
        connected = (await agent.next())["result"]
        connection = connected["connectionId" if connect == "mcp/connect" else "connection_id"]

        def say(method: str, params: Any, **id: Any) -> None:
            inner = {"connectionId": connection, "method": method, "params": params}
            agent.send(method=message if id else message.replace("request", "notification"), params=inner, **id)

        say("initialize", LEGACY, id=2)
        assert (await agent.next())["result"]["protocolVersion"] == "2025-11-25"
        say("notifications/initialized", {})
        say("tools/call", {"name": "whose", "arguments": {}}, id=3)
        answer = await agent.until(lambda one: one.get("id") == 3)
        assert (whose(answer)["session"], whose(answer)["connection"]) == ("s1", connection)
        say("tools/call", {"name": "hang", "arguments": {}}, id=4)
        async with asyncio.timeout(WAIT_S):
            await set.tools.began.wait()
            agent.send(method="$/cancel_request", params={"requestId": 4})
            await set.tools.cancelled.wait()
        assert (await agent.until(lambda one: one.get("id") == 4))["error"]["code"] == -32800
        if connect == "mcp/connect":
            agent.send(id=5, method=disconnect, params={"connectionId": connection})
            assert (await agent.until(lambda one: one.get("id") == 5))["result"] == {}
        else:
            agent.send(method=disconnect, params={"connection_id": connection})
        await set.sessions(lambda rows: not rows[0]["connections"])
        say("ping", {}, id=6)
        assert (await set.stage.editor.next())["id"] == 6, "it is forwarded: no request here has this id"


@pytest.mark.parametrize("shape", ["connection", "envelopes"])
async def test_a_stop_waits_for_no_native_agent_that_does_not_read(tmp_path: Path, shape: str) -> None:
    async with scene(tmp_path) as set:
        agent = set.stage.agent
        server = await native(set)
        call = {"method": "tools/call", "params": {"name": "hang", "arguments": {}, "_meta": META}}
        if shape == "connection":
            agent.send(id=1, method="mcp/connect", params={"serverId": server["serverId"]})
            call |= (await agent.next())["result"]
        else:
            call |= {"serverId": server["serverId"], "requestId": "r"}
        agent.send(id=2, method="mcp/message", params=call)
        async with asyncio.timeout(WAIT_S):
            await set.tools.began.wait()
        agent.reads.clear()
        set.stage.conductor.stop()
        assert await set.stage.ended() == 0
        assert agent.is_ended


async def test_a_native_agent_uses_a_browser_in_envelopes(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        agent = set.stage.agent
        server = await native(set)

        def ask(id: Any, method: str, request: Any = "r", **params: Any) -> None:
            inner = {"serverId": server["serverId"], "requestId": request, "method": method, "params": params}
            agent.send(id=id, method="mcp/message", params=inner)

        ask(1, "tools/call", name="whose", arguments={}, _meta=META)
        carried = (await agent.next())["result"]
        [row] = await set.sessions(lambda rows: rows[0]["connections"])
        [connection] = row["connections"]
        assert whose(carried) == {
            "session": "s1",
            "server": row["server_id"],
            "connection": connection,
            "agent": "played",
        }
        ask(2, "tools/call", name="nothing", arguments={}, _meta=META)
        assert (await agent.next())["result"]["error"]["code"] == -32602
        ask(3, "tools/list")
        assert "_meta" in (await agent.next())["result"]["error"]["message"]
        ask(4, "tools/list", request=7, _meta=META)
        assert (await agent.next())["error"]["code"] == -32602
        ask(5, "tools/call", "slow", name="hang", arguments={}, _meta={**META, "progressToken": "p"})
        note = await agent.next()
        assert (note["method"], note["params"]["requestId"]) == ("mcp/message", "slow")
        assert note["params"]["params"]["progressToken"] == "p"
        ask(6, "tools/list", "slow", _meta=META)
        assert (await agent.next())["error"]["code"] == -32602, "the same request id, while it runs"
        ask(5, "tools/list", "other", _meta=META)
        assert (await agent.next())["error"]["code"] == -32602, "the same id of the envelope, while it runs"
        agent.send(method="$/cancel_request", params={"requestId": 5})
        assert (await agent.next())["error"]["code"] == -32800
        async with asyncio.timeout(WAIT_S):
            await set.tools.cancelled.wait()
        set.stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        assert (await agent.next())["method"] == "session/close"
        agent.send(id=9, result={})
        await set.stage.editor.next()
        ask(7, "tools/list", _meta=META)
        assert (await agent.next())["error"]["code"] == -33001


async def test_each_session_of_a_native_agent_is_a_connection_of_its_own(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        agent = set.stage.agent
        await set.stage.greet(acp=True)
        servers = [(await set.stage.open(session=f"s{number}", id=number))[0] for number in (1, 2)]
        seen = []
        for number, server in enumerate([*servers, *servers], 10):
            params = {"name": "whose", "arguments": {}, "_meta": META}
            inner = {"serverId": server["serverId"], "requestId": "r", "method": "tools/call", "params": params}
            agent.send(id=number, method="mcp/message", params=inner)
            seen.append(whose((await agent.next())["result"]))
        assert [one["session"] for one in seen] == ["s1", "s2", "s1", "s2"]
        assert seen[:2] == seen[2:] and seen[0]["connection"] != seen[1]["connection"]
        rows = await set.sessions(lambda rows: all(row["connections"] for row in rows))
        assert {row["session"]: row["connections"] for row in rows} == {
            one["session"]: [one["connection"]] for one in seen
        }


async def test_no_more_than_64_requests_in_envelopes_run_at_a_time(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        agent = set.stage.agent
        server = await native(set)
        for number in range(65):
            params = {"name": "hang", "arguments": {}, "_meta": META}
            inner = {"serverId": server["serverId"], "requestId": str(number), "method": "tools/call", "params": params}
            agent.send(id=number, method="mcp/message", params=inner)
        refused = await agent.next()
        assert (refused["id"], refused["error"]["code"]) == (64, -33000)


async def test_a_relay_that_is_gone_is_a_failed_backend(tmp_path: Path) -> None:
    async with ConductorHarness(RelayClient(tmp_path, lambda: "http://127.0.0.1:1", ("notes",))) as stage:
        await stage.greet(acp=True)
        [server] = await stage.open()
        inner = {"serverId": server["serverId"], "requestId": "1", "method": "tools/list", "params": {"_meta": META}}
        stage.agent.send(id=1, method="mcp/message", params=inner)
        error = (await stage.agent.next())["error"]
        assert error["code"] == -33002 and "127.0.0.1:1" in error["message"]
