"""The modern era through the bridge: the headers of each request, cancellation by disconnecting, and both eras at
once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabrelay.bridge.outbound import OutboundLimits
from tests.support.bridge_harness import InProcessBridge, request
from tests.support.fake_upstream import Reply, Upstream, hang, result, status
from tests.support.waiting import BOUND_S

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
BROKEN = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}


def modern(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return request(method, {"_meta": {**META, "progressToken": "p"}, **params}, id)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("server/discover", {}, None),
        ("tools/call", {"name": "go"}, "go"),
        ("tools/call", {"name": "größe"}, "=?base64?Z3LDtsOfZQ==?="),
        ("prompts/get", {"name": " p"}, "=?base64?IHA=?="),
        ("resources/read", {"uri": "file:///a b"}, "file:///a b"),
        ("tasks/get", {"taskId": "t"}, "t"),
        ("tools/list", {"name": "not this"}, None),
    ],
)
async def test_a_modern_request_has_its_method_and_name_in_headers(method: str, params: Any, name: str | None) -> None:
    async with Upstream({method: result({})}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(modern(method, **params))
        assert (await bridge.next())["result"] == {}
        [seen] = server.seen
        assert seen.headers["mcp-protocol-version"] == "2026-07-28"
        assert seen.headers["mcp-method"] == method
        assert seen.headers.get("mcp-name") == name
        assert "mcp-session-id" not in seen.headers


async def test_one_client_may_use_both_eras() -> None:
    on = {"server/discover": status(404, b"no"), "x": result({}), "y": result({})}
    async with Upstream(on) as server, InProcessBridge(server.url, has_listener=True) as bridge:
        await bridge.send(modern("server/discover"))
        assert (await bridge.next())["error"]["code"] == -32001
        await bridge.initialize()
        await bridge.ask("x")
        await bridge.send(modern("y"))
        await bridge.next()
        by_method = {seen.method: seen.headers for seen in server.seen}
        assert "mcp-protocol-version" not in by_method["initialize"]
        assert by_method["x"]["mcp-session-id"] == "s-1" and "mcp-method" not in by_method["x"]
        assert "mcp-session-id" not in by_method["y"] and by_method["y"]["mcp-method"] == "y"


async def test_a_server_of_one_era_is_not_asked_for_the_other() -> None:
    async with (
        Upstream({"tools/list": result({"tools": []})}) as server,
        InProcessBridge(server.url, has_listener=True) as bridge,
    ):
        await bridge.send(modern("tools/list"))
        await bridge.next()
    assert server.methods == ["tools/list"], "no GET, no DELETE"


async def test_arguments_that_a_tool_wants_in_headers_are_repeated_there() -> None:
    tools = {"tools": [{"name": "go", "inputSchema": REGION}, {"name": "stay", "inputSchema": {}}]}
    on = {"tools/list": result(tools), "tools/call": result({})}
    async with Upstream(on) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(modern("tools/list"))
        assert (await bridge.next())["result"] == tools
        for name, arguments in (("go", {"region": "eu"}), ("go", {}), ("stay", {"region": "eu"})):
            await bridge.send(modern("tools/call", name=name, arguments=arguments))
            await bridge.next()
        calls = server.all("tools/call")
        assert [seen.headers.get("mcp-param-region") for seen in calls] == ["eu", None, None]


async def test_a_tool_whose_headers_break_the_rules_is_not_shown() -> None:
    tools = [
        {"name": "bad", "inputSchema": BROKEN},
        {"name": "go", "inputSchema": REGION, "x": 12345678901234567890123},
    ]
    async with (
        Upstream({"tools/list": result({"tools": tools, "ttlMs": 1})}) as server,
        InProcessBridge(server.url) as bridge,
    ):
        await bridge.send(modern("tools/list"))
        assert (await bridge.next())["result"] == {"tools": tools[1:], "ttlMs": 1}
        # In the handshake era these headers do not exist, so no tool is hidden.
        await bridge.send(request("tools/list"))
        assert (await bridge.next())["result"]["tools"] == tools


async def test_a_call_whose_headers_we_did_not_know_of_reads_the_list_and_is_sent_again() -> None:
    async def strict(reply: Reply) -> None:
        if reply.seen.headers.get("mcp-param-region") == "eu":
            await reply.result("done")
        else:
            error = {"code": -32020, "message": "Header mismatch"}
            await reply.json({"jsonrpc": "2.0", "id": reply.seen.message["id"], "error": error}, 400)

    async def pages(reply: Reply) -> None:
        assert reply.seen.message["params"]["_meta"] == META
        if "cursor" in reply.seen.message["params"]:
            await reply.result({"tools": [{"name": "go", "inputSchema": REGION}]})
        else:
            await reply.result({"tools": [], "nextCursor": "2"})

    async with Upstream({"tools/call": strict, "tools/list": pages}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(modern("tools/call", name="go", arguments={"region": "eu"}))
        assert (await bridge.next())["result"] == "done"
        assert server.methods == ["tools/call", "tools/list", "tools/list", "tools/call"]
        await bridge.send(modern("tools/call", 2, name="other", arguments={"region": "eu"}))
        assert (await bridge.next())["error"]["code"] == -32020
        assert server.methods[4:] == ["tools/call", "tools/list", "tools/list", "tools/call"]
        assert bridge.is_silent


async def test_a_modern_call_is_cancelled_by_hanging_up_and_nothing_is_sent() -> None:
    gone = asyncio.Event()

    async def slow(reply: Reply) -> None:
        await reply.stream()
        await reply.is_gone.wait()
        gone.set()

    async with Upstream({"tools/call": slow, "ping": result({})}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(modern("tools/call", 5, name="slow"))
        await server.until_seen("tools/call")
        await bridge.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        async with asyncio.timeout(BOUND_S):
            await gone.wait()
        await bridge.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        await bridge.send(modern("ping"))
        await bridge.next()
        assert server.methods == ["tools/call", "ping"]
        assert bridge.is_silent


async def test_a_subscription_may_be_silent_for_longer_than_the_timeout_and_ends_with_the_client() -> None:
    notice = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    gone, may_send = asyncio.Event(), asyncio.Event()

    async def listen(reply: Reply) -> None:
        await reply.stream()
        await may_send.wait()
        await reply.event(notice)
        await reply.is_gone.wait()
        gone.set()

    async with Upstream({"subscriptions/listen": listen, "tools/call": hang}) as server:
        async with InProcessBridge(server.url, limits=OutboundLimits(timeout_ms=500)) as bridge:
            await bridge.send(modern("subscriptions/listen"))
            await server.until_seen("subscriptions/listen")
            await bridge.send(modern("tools/call", id=2, name="x"))
            assert "timed out" in (await bridge.next())["error"]["message"]
            may_send.set()
            assert await bridge.next() == notice
        async with asyncio.timeout(BOUND_S):
            await gone.wait()


async def test_a_modern_stream_that_breaks_is_not_resumed() -> None:
    async def broken(reply: Reply) -> None:
        await reply.stream()
        await reply.event("", id="e-1")
        await reply.end()

    async with Upstream({"tools/call": broken}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(modern("tools/call", name="x"))
        assert (await bridge.next())["error"]["code"] == -32000
        assert server.methods == ["tools/call"]
