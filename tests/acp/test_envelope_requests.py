"""Servers of the editor in the dialect without connections (G4): one envelope for each request."""

from __future__ import annotations

from typing import Any

import pytest

from tabrelay.acp import legacy_agent
from tabrelay.acp.dialects import G4
from tests.support.acp_harness import ACP, META, SESSION, URL, ConductorHarness, McpProgram, modern


async def fourth(stage: ConductorHarness) -> tuple[McpProgram, Any]:
    """A connection to an editor that uses the fourth shape."""
    await stage.greet()
    [server] = await stage.open(ACP)
    plug = await stage.plug(server)
    plug.send(id=7, method="tools/call", params=modern(name="x"))
    asked = await stage.editor.next()
    if asked["method"] == "mcp/connect":
        stage.editor.send(id=asked["id"], error={"code": -32601, "message": "Method not found"})
        asked = await stage.editor.next()
    return plug, asked


async def test_the_fourth_shape_is_found_by_connecting() -> None:
    async with ConductorHarness() as stage:
        plug, asked = await fourth(stage)
        params = asked["params"]
        assert asked["method"] == "mcp/message"
        assert (params["serverId"], params["method"], params["params"]) == ("7d0", "tools/call", modern(name="x"))
        assert isinstance(params["requestId"], str) and params["_meta"] == SESSION
        note = {"serverId": "7d0", "requestId": params["requestId"], "method": "notifications/progress", "params": {}}
        stage.editor.send(method="mcp/message", params=note)
        assert (await plug.next())["method"] == "notifications/progress"
        stage.editor.send(id=asked["id"], result={"result": {"content": []}, "error": {"code": 1, "message": "no"}})
        assert await plug.next() == {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
        # The other servers of this editor are not asked again.
        [other] = await stage.open(ACP | {"serverId": "other"}, session="s2", id=2)
        second = await stage.plug(other)
        second.send(id=1, method="tools/list", params=modern())
        asked = await stage.editor.next()
        assert (asked["method"], asked["params"]["serverId"]) == ("mcp/message", "other")


async def test_servers_that_connect_at_once_are_all_found_to_have_the_fourth_shape() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        servers = await stage.open(ACP, ACP | {"name": "other", "serverId": "other"})
        plugs = [await stage.plug(server) for server in servers]
        connects = [await stage.editor.next() for _ in plugs]
        assert [asked["method"] for asked in connects] == ["mcp/connect"] * 2
        for asked in connects:
            stage.editor.send(id=asked["id"], error={"code": -32601, "message": "Method not found"})
        for plug in plugs:
            plug.send(id=1, method="tools/list", params=modern())
        assert {(await stage.editor.next())["params"]["serverId"] for _ in plugs} == {"7d0", "other"}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"result": {"error": {"code": -32010, "message": "inner", "data": None}}}, -32010),
        ({"error": {"code": -33001, "message": "gone"}}, -33001),
        ({"error": {"code": -33000, "message": "full"}}, -33000),
        ({"result": {"neither": 1}}, -33002),
        ({"result": {"error": {"code": "x"}}}, -33002),
        ({"result": None}, -33002),
    ],
)
async def test_every_error_of_the_fourth_shape_reaches_the_agent(answer: dict[str, Any], code: int) -> None:
    async with ConductorHarness(profile=G4) as stage:
        plug, asked = await fourth(stage)
        stage.editor.send(id=asked["id"], **answer)
        got = await plug.next()
        assert (got["id"], got["error"]["code"]) == (7, code)


async def test_a_subscription_of_the_fourth_shape_has_the_id_that_its_client_knows() -> None:
    key = "io.modelcontextprotocol/subscriptionId"
    async with ConductorHarness(profile=G4) as stage:
        plug, asked = await fourth(stage)
        request = asked["params"]["requestId"]
        meta = {"serverId": "7d0", "requestId": request, "method": "n", "params": {"_meta": {key: request}, "x": 1}}
        stage.editor.send(method="mcp/message", params=meta)
        assert (await plug.next())["params"] == {"_meta": {key: 7}, "x": 1}
        stage.editor.send(id=asked["id"], result={"result": {"_meta": {key: request}}})
        assert (await plug.next())["result"] == {"_meta": {key: 7}}


async def test_a_request_of_the_fourth_shape_is_cancelled_by_its_envelope() -> None:
    async with ConductorHarness(profile=G4) as stage:
        plug, asked = await fourth(stage)
        plug.send(method="notifications/cancelled", params={"requestId": 7})
        said = await stage.editor.next()
        assert said == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked["id"]}}
        stage.editor.send(id=asked["id"], error={"code": -32800, "message": "cancelled"})
        plug.send(id=8, method="tools/list", params=modern())
        listed = await stage.editor.next()
        stage.editor.send(id=listed["id"], result={"result": {}})
        assert (await plug.next())["id"] == 8, "a cancelled request was answered"


async def test_a_server_that_never_shows_its_shape_is_given_up_and_its_client_gets_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(legacy_agent, "DISCOVER_S", 0.2)
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        plug.send(id=1, method="initialize", params={"protocolVersion": "2025-06-18", "capabilities": {}})
        asked = await stage.editor.next()
        assert asked["params"]["method"] == "server/discover"
        given_up = await stage.editor.next()
        assert given_up["params"]["requestId"] == asked["id"]
        answer = await plug.next()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)


async def test_a_client_that_leaves_while_its_server_is_asked_what_it_is_is_noticed() -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        plug.send(id=1, method="initialize", params={"protocolVersion": "2025-06-18", "capabilities": {}})
        asked = await stage.editor.next()
        assert asked["params"]["method"] == "server/discover"
        plug.close()
        given_up = await stage.editor.next()
        assert (given_up["method"], given_up["params"]) == ("$/cancel_request", {"requestId": asked["id"]})


async def test_an_agent_of_the_handshake_era_can_use_the_fourth_shape() -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        plug.send(id=1, method="initialize", params=params)
        asked = await stage.editor.next()
        assert asked["params"]["method"] == "server/discover"
        assert META.keys() <= asked["params"]["params"]["_meta"].keys()
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
        stage.editor.send(id=asked["id"], result={"result": found})
        greeted = await plug.next()
        assert greeted["id"] == 1 and greeted["result"]["protocolVersion"] == "2025-06-18"
        assert greeted["result"]["capabilities"] == {"tools": {}}
        plug.send(method="notifications/initialized")
        plug.send(id=2, method="tools/call", params={"name": "x"})
        asked = await stage.editor.next()
        assert asked["params"]["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] == "old"
        result = {"resultType": "complete", "content": [{"type": "text", "text": "hi"}]}
        stage.editor.send(id=asked["id"], result={"result": result})
        assert (await plug.next())["result"] == {"content": [{"type": "text", "text": "hi"}]}
        plug.send(id=3, method="tools/call", params={"name": "slow"})
        asked = await stage.editor.next()
        plug.send(method="notifications/cancelled", params={"requestId": 3})
        assert (await stage.editor.next())["params"] == {"requestId": asked["id"]}


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_no_more_calls_go_out_in_envelopes_than_their_provider_takes(era: str) -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        if era == "handshake":
            plug.send(id="i", method="initialize", params={"protocolVersion": "2025-06-18", "capabilities": {}})
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            stage.editor.send(id=(await stage.editor.next())["id"], result={"result": found})
            assert (await plug.next())["id"] == "i"
        for number in range(100):
            plug.send(id=number, method="tools/call", params=modern(name="x") if era == "modern" else {"name": "x"})
        calls = [await stage.editor.next() for _ in range(64)]
        stage.agent.send(method="session/update", params={})
        assert (await stage.editor.next())["method"] == "session/update", "more were taken, or others have to wait"
        stage.editor.send(id=calls[0]["id"], result={"result": {"resultType": "complete", "content": []}})
        assert (await plug.next())["id"] == 0
        assert (await stage.editor.next())["method"] == "mcp/message"


async def test_a_server_with_a_url_is_named_without_its_scheme_in_envelopes() -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(URL)
        plug = await stage.plug(server)
        plug.send(id=7, method="tools/list", params=modern())
        asked = (await stage.editor.next())["params"]
        assert asked["serverId"] == "7d0"
        note = {"serverId": "7d0", "requestId": asked["requestId"], "method": "notifications/progress"}
        stage.editor.send(method="mcp/message", params=note)
        assert (await plug.next())["method"] == "notifications/progress"
