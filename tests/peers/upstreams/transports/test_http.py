"""A scripted server at a URL: refusals, lost sessions, broken streams, and their outcome."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.specs import HttpSpec
from tests.support.fake_upstream import Handler, Reply, Upstream, cut, hang, result, status
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, pause

TEXT = {"content": [{"type": "text", "text": "done"}]}
TOOL = {"name": "t", "description": "a tool", "inputSchema": {"type": "object"}}


def legacy(**on: Any) -> Upstream:
    """A server of the handshake era with one tool; `call` handles its calls."""
    handlers = {"tools/list": result({"tools": [TOOL]}), "tools/call": on.pop("call", result(TEXT)), **on}
    return Upstream({**handlers, "initialize": initialize})


async def initialize(reply: Reply) -> None:
    capabilities = {"tools": {"listChanged": True}}
    about = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "u", "version": "1"}}
    await reply.result(about, Mcp_Session_Id=f"s-{len(reply.seen.headers)}")


def modern(**on: Any) -> Upstream:
    """A server of 2026-07-28."""
    shape = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    about = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **shape}
    handlers = {
        "server/discover": result(about),
        "tools/list": result({"tools": [TOOL], **shape}),
        "tools/call": on.pop("call", result({**TEXT, "resultType": "complete"})),
        **on,
    }
    return Upstream(handlers)


def relay_for(home: Path, server: Upstream, **more: Any) -> RunningRelay:
    fields = {key: more.pop(key) for key in ("headers", "transport", "timeout_s", "era", "ids") if key in more}
    more.setdefault("away_wait_s", 2.0)
    return RunningRelay(home, specs=[HttpSpec("far", server.url, **fields)], **more)


async def call(relay: RunningRelay, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await relay.call("far", "t", arguments)).json()
    return answer


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_the_handshake_comes_in_order_and_its_headers_after_it(tmp_path: Path) -> None:
    async with legacy() as server, relay_for(tmp_path, server, headers=(("X-Key", "hunter22"),)) as relay:
        assert (await call(relay))["result"]["content"] == TEXT["content"]
        await server.until_seen("GET")
        methods = [method for method in server.methods if method not in ("server/discover", "tools/list", "tools/call")]
        assert methods == ["initialize", "notifications/initialized", "GET"]
        assert "mcp-protocol-version" not in server.all("initialize")[0].headers
        for seen in (*server.all("tools/call"), *server.all("GET"), *server.all("notifications/initialized")):
            assert seen.headers["mcp-protocol-version"] == "2025-11-25"
            assert seen.headers["mcp-session-id"].startswith("s-")
        assert {seen.headers["x-key"] for seen in server.seen} == {"hunter22"}
        sent = server.all("tools/call")[0].message
        assert isinstance(sent["id"], int) and "_meta" not in sent["params"]
    assert server.methods[-1] == "DELETE"


async def test_a_modern_server_gets_envelope_and_headers_and_no_session(tmp_path: Path) -> None:
    async with modern() as server, relay_for(tmp_path, server) as relay:
        assert (await call(relay))["result"]["content"] == TEXT["content"]
        [seen] = server.all("tools/call")
        assert seen.headers["mcp-protocol-version"] == "2026-07-28"
        assert (seen.headers["mcp-method"], seen.headers["mcp-name"]) == ("tools/call", "t")
        meta = seen.message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "test"
        assert not {"initialize", "GET", "DELETE"} & set(server.methods)
        assert not any("mcp-session-id" in seen.headers for seen in server.seen)


@pytest.mark.parametrize("make", [legacy, modern])
async def test_a_clients_trace_goes_on_in_meta_and_in_headers(tmp_path: Path, make: Any) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with make() as server, relay_for(tmp_path, server) as relay:
        request = relay.modern("tools/call", {"name": "t", "arguments": {}})
        request["headers"] |= {"traceparent": parent, "tracestate": "a=1", "baggage": "user=alice"}
        assert "result" in (await relay.http.post("/far", **request)).json()
        assert "result" in await call(relay)
        traced, other = server.all("tools/call")
        assert (traced.headers["traceparent"], traced.headers["tracestate"]) == (parent, "a=1")
        assert traced.message["params"]["_meta"]["traceparent"] == parent
        assert "baggage" not in traced.headers
        assert "traceparent" not in other.headers and "traceparent" not in str(other.message)


async def test_ids_may_be_strings_for_servers_that_want_them(tmp_path: Path) -> None:
    async with legacy() as server, relay_for(tmp_path, server, ids="string") as relay:
        await call(relay)
        ids = [seen.message["id"] for seen in server.seen if seen.verb == "POST" and "id" in seen.message]
        assert all(isinstance(id, str) for id in ids) and len(set(ids)) == len(ids)


async def test_arguments_that_a_tool_marks_are_repeated_and_broken_marks_hide_a_tool(tmp_path: Path) -> None:
    def tool(name: str, mark: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": mark}}}
        return {"name": name, "inputSchema": schema}

    listed = {"tools": [tool("good", "Region"), tool("bad", "not a token")], "resultType": "complete"}
    on = {"tools/list": result({**listed, "ttlMs": 0, "cacheScope": "private"})}
    async with modern(**on) as server, relay_for(tmp_path, server) as relay:
        tools = (await relay.http.post("/far", **relay.modern("tools/list"))).json()["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["good"]
        request = relay.modern("tools/call", {"name": "good", "arguments": {"region": "Zürich"}})
        request["headers"]["Mcp-Param-Region"] = "=?base64?WsO8cmljaA==?="
        assert "result" in (await relay.http.post("/far", **request)).json()
        assert server.all("tools/call")[0].headers["mcp-param-region"] == "=?base64?WsO8cmljaA==?="


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "delivered"), [(401, "no"), (403, "no"), (429, "no"), (500, "unknown"), (503, "unknown")]
)
async def test_an_http_error_is_reported_with_its_hints_and_not_tried_again(
    tmp_path: Path, code: int, delivered: str
) -> None:
    refuse = status(code, b"go away, hunter22", WWW_Authenticate='Bearer realm="x"')
    async with legacy(call=refuse) as server, relay_for(tmp_path, server, headers=(("X-Key", "hunter22"),)) as relay:
        error = (await call(relay))["error"]
        assert (error["code"], error["data"]["delivered"]) == (-31018, delivered)
        assert f'HTTP {code}: go away, [redacted] [WWW-Authenticate: Bearer realm="x"]' in error["message"]
        assert len(server.all("tools/call")) == 1
        assert "result" not in await call(relay)


async def test_a_json_rpc_error_in_a_refusal_is_the_servers_own_word(tmp_path: Path) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32099, "message": "no", "data": {"x": 1}}})

    async def refuse(reply: Reply) -> None:
        await reply.body(body.encode(), 400, "application/json")

    async with legacy(call=refuse) as server, relay_for(tmp_path, server) as relay:
        assert await call(relay) == {"jsonrpc": "2.0", "id": 1, "error": json.loads(body)["error"]}


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (status(202), "bad_answer"),
        (status(200, b"<html>", Content_Type="text/html"), "bad_answer"),
        (status(200, b"", Content_Type="application/json"), "bad_answer"),
        (status(200, b"{", Content_Type="application/json"), "bad_answer"),
        (status(302, Location="http://127.0.0.1:1/moved"), "upstream_failed"),
    ],
)
async def test_an_answer_that_is_none_fails_its_call_and_nothing_else(
    tmp_path: Path, handler: Handler, reason: str
) -> None:
    async with legacy(call=[handler, result(TEXT)]) as server, relay_for(tmp_path, server) as relay:
        error = (await call(relay))["error"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == (reason, "unknown"), error
        assert "result" in await call(relay)
        assert len(server.all("initialize")) == 1


async def test_an_answer_that_is_too_large_is_not_taken(tmp_path: Path) -> None:
    large = {"content": [{"type": "text", "text": "x" * 300_000}]}

    async def stream(reply: Reply) -> None:
        await reply.stream()
        await reply.answer(large)
        await reply.end()

    calls = [result(large), stream, result(TEXT)]
    async with legacy(call=calls) as server, relay_for(tmp_path, server, max_message=200_000) as relay:
        assert (await call(relay))["error"]["data"]["reason"] == "result_too_large"
        assert "error" in await call(relay)
        assert "result" in await call(relay)


# -- lost sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lost", [status(404), status(400, b'{"error": "Bad Request: No valid session ID provided"}')], ids=["404", "400"]
)
async def test_a_server_that_lost_the_session_is_initialized_again_and_the_call_repeated(
    tmp_path: Path, lost: Handler
) -> None:
    async with legacy(call=[lost, result(TEXT)]) as server, relay_for(tmp_path, server) as relay:
        assert "result" in await call(relay)
        assert (len(server.all("tools/call")), len(server.all("initialize"))) == (2, 2)


async def test_calls_that_find_the_session_lost_together_share_one_greeting(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def forgotten(reply: Reply) -> None:
        if len(server.all("tools/call")) >= 5:
            gate.set()
        await gate.wait()
        await reply.body(b"", 404)

    async def answer(reply: Reply) -> None:
        if len(server.all("initialize")) == 1:
            await forgotten(reply)
        else:
            await reply.result(TEXT)

    async with legacy(call=answer) as server, relay_for(tmp_path, server) as relay:
        assert all("result" in answer for answer in await asyncio.gather(*(call(relay) for _ in range(5))))
        assert len(server.all("initialize")) == 2


async def test_attempts_for_a_session_that_is_lost_at_once_again_have_a_limit(tmp_path: Path) -> None:
    async with legacy(call=status(404)) as server, relay_for(tmp_path, server) as relay:
        error = (await call(relay))["error"]
        assert (error["data"]["delivered"], len(server.all("tools/call"))) == ("no", 2)


async def test_a_call_that_may_have_arrived_is_never_made_again(tmp_path: Path) -> None:
    async def half(reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b": begun\n\n")
        reply.cut()

    for handler in (cut, half):
        async with legacy(call=[handler, result(TEXT)]) as server, relay_for(tmp_path, server) as relay:
            error = (await call(relay))["error"]
            assert error["data"]["delivered"] == "unknown"
            assert len(server.all("tools/call")) == 1
            # Only that call used the connection that broke.
            assert "result" in await call(relay)
            assert len(server.all("initialize")) == 1


async def test_reading_is_made_again_since_that_does_no_harm(tmp_path: Path) -> None:
    async with legacy() as server, relay_for(tmp_path, server) as relay:
        await relay.has_read("far")
        for code in (502, 503, 504):
            server.on["tools/list"] = [status(code), result({"tools": [TOOL]})]
            assert "result" in (await relay.http.post("/far", **relay.modern("tools/list"))).json()


async def test_a_call_to_a_server_that_was_restarted_works(tmp_path: Path) -> None:
    async with legacy() as server, relay_for(tmp_path, server) as relay:
        assert "result" in await call(relay)
        await server.__aexit__()
        error = asyncio.create_task(call(relay))
        # The port has no listener for a while.
        await asyncio.sleep(0)
        await server.__aenter__()
        assert "result" in await error
        assert "result" in await call(relay)


async def test_a_server_that_is_not_there_at_the_start_is_found_when_it_comes(tmp_path: Path) -> None:
    async with legacy() as server:
        pass
    async with relay_for(tmp_path, server, away_wait_s=0.1) as relay:
        error = (await call(relay))["error"]
        assert (error["code"], error["data"]["delivered"]) == (-31010, "no")
        async with server:
            async with asyncio.timeout(BOUND_S):
                while "result" not in await call(relay):
                    await pause()


async def test_one_call_that_hangs_does_not_hold_up_another(tmp_path: Path) -> None:
    async with legacy(call=[hang, result(TEXT)]) as server, relay_for(tmp_path, server, timeout_s=1.0) as relay:
        slow = asyncio.create_task(call(relay))
        await server.until_seen("tools/call")
        assert "result" in await call(relay)
        assert (await slow)["error"]["code"] == -31012
        # The server gets a cancellation.
        [told] = await server.until_seen("notifications/cancelled")
        assert told.message["params"]["requestId"] == server.all("tools/call")[0].message["id"]


async def test_a_disconnect_of_a_modern_call_is_one_at_the_server_too(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def wait(reply: Reply) -> None:
        await reply.is_gone.wait()
        gone.set()

    async with modern(call=wait) as server, relay_for(tmp_path, server) as relay:
        running = asyncio.create_task(call(relay))
        await server.until_seen("tools/call")
        running.cancel()
        async with asyncio.timeout(BOUND_S):
            await gone.wait()
        assert "notifications/cancelled" not in server.methods


async def test_a_broken_stream_resumes_where_it_was(tmp_path: Path) -> None:
    async def begin(reply: Reply) -> None:
        await reply.stream()
        await reply.event("", id="e-1", retry="10")
        await reply.end()

    async def resume(reply: Reply) -> None:
        if reply.seen.headers.get("last-event-id") != "e-1":
            await reply.body(b"", 405)
            return
        asked = server.all("tools/call")[0].message["id"]
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "id": asked, "result": TEXT}, id="e-2")
        await reply.end()

    async with legacy(call=begin, GET=resume) as server, relay_for(tmp_path, server) as relay:
        assert (await call(relay))["result"]["content"] == TEXT["content"]


async def test_a_change_notified_on_the_servers_own_stream_reaches_clients(tmp_path: Path) -> None:
    tell = asyncio.Event()

    async def stream(reply: Reply) -> None:
        await reply.stream()
        await tell.wait()
        server.on["tools/list"] = result({"tools": [{**TOOL, "name": "new"}]})
        await reply.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await reply.is_gone.wait()

    async with legacy(GET=stream) as server, relay_for(tmp_path, server) as relay:
        await relay.has_read("far")
        tell.set()
        async with asyncio.timeout(BOUND_S):
            while [tool["name"] for tool in (await relay.has_read("far"))["tools"]] != ["new"]:
                await pause()


async def test_a_server_whose_own_stream_is_refused_after_it_worked_is_greeted_again(tmp_path: Path) -> None:
    """A restart while there is no call."""

    async def once(reply: Reply) -> None:
        await reply.stream()
        await reply.event("", retry="10")
        await reply.end()

    async with legacy(GET=[once, status(404), hang]) as server, relay_for(tmp_path, server):
        await server.until_seen("initialize", 2)


async def test_an_address_that_knows_only_the_old_transport_is_spoken_to_in_it(tmp_path: Path) -> None:
    streams: list[Reply] = []

    async def stream(reply: Reply) -> None:
        streams.append(reply)
        await reply.stream()
        await reply.chunk(b"event: endpoint\ndata: /post\n\n")
        await reply.is_gone.wait()

    async def post(reply: Reply) -> None:
        message = reply.seen.message
        if reply.seen.path == "/mcp":
            await reply.body(b"", 405)
            return
        await reply.accepted()
        if message.get("method") == "tools/call" and message["params"]["arguments"].get("refuse"):
            return
        answers: dict[str, Any] = {
            "initialize": {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {}}
        }
        answers |= {"tools/call": TEXT, "tools/list": {"tools": [TOOL]}}
        if "id" in message and message["method"] in answers:
            found = {"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}
            await streams[-1].event(found)
        elif "id" in message:
            await streams[-1].event({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "?"}})

    methods = ("server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call")
    on = {"GET": stream, **dict.fromkeys(methods, post)}
    async with Upstream(on) as server, relay_for(tmp_path, server) as relay:
        assert (await call(relay))["result"]["content"] == TEXT["content"]
        # One message that is refused fails alone.
        server.on["tools/call"] = [status(413, b"too much"), post]
        error = (await call(relay))["error"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == ("upstream_failed", "no")
        assert "result" in await call(relay)
        assert len(streams) == 1
        streams[-1].cut()
        await server.until(lambda: len(streams) == 2)
        assert "result" in await call(relay)


async def test_an_endpoint_of_another_origin_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabrelay.peers.upstreams.transports.http.ENDPOINT_S", 0.2)

    async def stream(reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"event: endpoint\ndata: http://127.0.0.1:1/post\n\n")
        await reply.is_gone.wait()

    more = {"transport": "sse", "away_wait_s": 1.0}
    async with Upstream({"GET": stream}) as server, relay_for(tmp_path, server, **more) as relay:
        error = (await call(relay))["error"]
        assert error["code"] == -31010 and "origin" in error["message"]
        assert set(server.methods) == {"GET"}
