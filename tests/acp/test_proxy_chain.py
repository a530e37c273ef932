"""Proxies between editor and agent: envelopes, ids, names of both ages, cancellation, servers that they declare."""

from __future__ import annotations

from typing import Any

import pytest

from tabrelay.acp.dialects import G1
from tests.support.acp_harness import ACP, ConductorHarness

GREETED = {"protocolVersion": 1, "agentCapabilities": {}}


async def greet(stage: ConductorHarness, prefix: str = "proxy/") -> Any:
    """Sends `initialize` through the whole chain; returns the answer that the editor receives."""
    stage.editor.send(id=0, method="initialize", params={"protocolVersion": 1, "clientInfo": {"name": "e"}})
    for number, proxy in enumerate(stage.proxies):
        asked = await proxy.next()
        assert asked["method"] == f"{prefix}initialize"
        assert asked["params"] == {"protocolVersion": 1, "clientInfo": {"name": "e"}}
        proxy.send(
            id=f"init-{number}",
            method=f"{prefix}successor",
            params={"method": "initialize", "params": asked["params"], "_meta": {"hop": 1}},
        )
        stage.__dict__.setdefault("greetings", []).append(asked["id"])
    asked = await stage.agent.next()
    assert asked["method"] == "initialize" and "_meta" not in asked["params"]
    stage.agent.send(id=asked["id"], result=GREETED)
    for number, proxy in reversed(list(enumerate(stage.proxies))):
        answered = await proxy.next()
        assert answered["id"] == f"init-{number}"
        proxy.send(id=stage.__dict__["greetings"][number], result=GREETED)
    return await stage.editor.next()


@pytest.mark.parametrize("proxies", [1, 2, 3])
async def test_the_last_gets_a_plain_initialize_and_all_others_one_for_proxies(proxies: int) -> None:
    async with ConductorHarness(proxies=proxies) as stage:
        greeted = await greet(stage)
        assert greeted["id"] == 0
        assert greeted["result"]["agentCapabilities"]["mcpCapabilities"] == {"acp": True}


async def test_a_proxy_that_only_knows_the_first_names_gets_those() -> None:
    async with ConductorHarness(proxies=1) as stage:
        stage.editor.send(id=0, method="initialize", params={})
        [proxy] = stage.proxies
        refused = await proxy.next()
        proxy.send(id=refused["id"], error={"code": -32601, "message": "Method not found"})
        again = await proxy.next()
        assert (again["id"], again["method"]) == (0, "_proxy/initialize")
        proxy.send(id=1, method="_proxy/successor", params={"method": "initialize", "params": {}})
        asked = await stage.agent.next()
        stage.agent.send(id=asked["id"], result=GREETED)
        assert (await proxy.next())["id"] == 1
        proxy.send(id=0, result=GREETED)
        assert (await stage.editor.next())["id"] == 0
        stage.agent.send(method="session/update", params={"x": 1.0})
        assert await proxy.next() == {
            "jsonrpc": "2.0",
            "method": "_proxy/successor",
            "params": {"method": "session/update", "params": {"x": 1.0}},
        }


async def test_the_user_can_say_that_the_first_names_are_wanted() -> None:
    async with ConductorHarness(proxies=1, profile=G1) as stage:
        await greet(stage, "_proxy/")


async def test_messages_go_down_and_up_in_envelopes_and_ids_do_not_mix() -> None:
    async with ConductorHarness(proxies=2) as stage:
        await greet(stage)
        first, second = stage.proxies
        stage.editor.send(id=1, method="session/prompt", params={"n": 123456789012345678901234567890})
        assert (await first.next())["method"] == "session/prompt"
        first.send(
            id=1,
            method="proxy/successor",
            params={"method": "session/prompt", "params": {"n": 123456789012345678901234567890}},
        )
        down = await second.next()
        assert (down["id"], down["method"]) == (1, "session/prompt")
        second.send(id=1, method="proxy/successor", params={"method": "session/prompt", "params": down["params"]})
        assert (await stage.agent.next())["params"] == {"n": 123456789012345678901234567890}
        # Now the agent asks something, with an id that the other programs use too.
        stage.agent.send(id=1, method="session/request_permission", params={"p": 1})
        asked = await second.next()
        assert (asked["method"], asked["params"]["method"]) == ("proxy/successor", "session/request_permission")
        second.send(id="up", method="session/request_permission", params={"p": 2})
        asked_first = await first.next()
        assert asked_first["params"] == {"method": "session/request_permission", "params": {"p": 2}}
        first.send(id=77, method="session/request_permission", params={"p": 3})
        assert (await stage.editor.next())["params"] == {"p": 3}
        stage.editor.send(id=77, result={"ok": 3})
        assert await first.next() == {"jsonrpc": "2.0", "id": 77, "result": {"ok": 3}}
        first.send(id=asked_first["id"], result={"ok": 2})
        assert await second.next() == {"jsonrpc": "2.0", "id": "up", "result": {"ok": 2}}
        second.send(id=asked["id"], result={"ok": 1})
        assert await stage.agent.next() == {"jsonrpc": "2.0", "id": 1, "result": {"ok": 1}}
        stage.agent.send(id=1, result={"stopReason": "end_turn"})
        assert await second.next() == {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}


async def test_cancelling_counts_on_the_hop_where_the_request_was_made() -> None:
    async with ConductorHarness(proxies=1) as stage:
        await greet(stage)
        [proxy] = stage.proxies
        proxy.send(id=5, method="proxy/successor", params={"method": "session/list"})
        assert (await stage.agent.next())["id"] == 5
        proxy.send(method="$/cancel_request", params={"requestId": 5})
        assert (await stage.agent.next()) == {
            "jsonrpc": "2.0",
            "method": "$/cancel_request",
            "params": {"requestId": 5},
        }
        stage.agent.send(id=9, method="fs/read_text_file", params={})
        asked = await proxy.next()
        stage.agent.send(method="$/cancel_request", params={"requestId": 9})
        assert (await proxy.next())["params"] == {"requestId": asked["id"]}
        proxy.send(id=6, method="fs/read_text_file", params={})
        await stage.editor.next()
        proxy.send(method="$/cancel_request", params={"requestId": 6})
        assert (await stage.editor.next())["params"] == {"requestId": 6}


async def test_an_envelope_with_nothing_in_it_is_refused() -> None:
    async with ConductorHarness(proxies=1) as stage:
        await greet(stage)
        stage.proxies[0].send(id=5, method="proxy/successor", params={})
        assert (await stage.proxies[0].next())["error"]["code"] == -32602
        stage.proxies[0].raw(b"no message")
        stage.proxies[0].send(method="proxy/successor", params={"method": "session/cancel", "params": None})
        assert await stage.agent.next() == {"jsonrpc": "2.0", "method": "session/cancel"}


async def test_a_server_that_a_proxy_declares_is_reached_through_it() -> None:
    async with ConductorHarness(proxies=1) as stage:
        await greet(stage)
        [proxy] = stage.proxies
        stage.editor.send(id=1, method="session/new", params={"cwd": "/", "mcpServers": []})
        asked = await proxy.next()
        params = {"method": "session/new", "params": {**asked["params"], "mcpServers": [ACP]}}
        proxy.send(id=10, method="proxy/successor", params=params)
        [server] = (await stage.agent.next())["params"]["mcpServers"]
        stage.agent.send(id=10, result={"sessionId": "s1"})
        assert (await proxy.next())["id"] == 10
        plug = await stage.plug(server)
        connect = await proxy.next()
        assert (connect["method"], connect["params"]["method"]) == ("proxy/successor", "mcp/connect")
        proxy.send(id=connect["id"], result={"connectionId": "c1"})
        plug.send(id=1, method="tools/list")
        call = await proxy.next()
        assert call["params"]["params"]["connectionId"] == "c1"
        proxy.send(id=call["id"], result={"tools": []})
        assert (await plug.next())["result"] == {"tools": []}
        note = {"connectionId": "c1", "method": "notifications/x"}
        proxy.send(method="proxy/successor", params={"method": "mcp/message", "params": note})
        assert (await plug.next())["method"] == "notifications/x"


async def test_a_proxy_that_dies_ends_the_chain() -> None:
    async with ConductorHarness(proxies=1) as stage:
        await greet(stage)
        stage.editor.send(id=1, method="session/list")
        await stage.proxies[0].next()
        stage.proxies[0].send(id=1, method="proxy/successor", params={"method": "session/list"})
        await stage.agent.next()
        stage.proxies[0].die(4)
        assert await stage.ended() == 4
        assert stage.agent.is_ended and stage.proxies[0].is_ended
