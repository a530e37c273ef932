"""Forwarding between stdin, the server and stdout: messages are unchanged, and every request is answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tabrelay.bridge import bridge
from tabrelay.bridge.outbound import OutboundLimits
from tests.support.bridge_harness import InProcessBridge, request, until
from tests.support.fake_upstream import Reply, Upstream, cut, hang, result, status
from tests.support.waiting import BOUND_S


async def test_a_message_arrives_byte_for_byte_and_so_does_its_answer() -> None:
    params = b'{"big":123456789012345678901234567890,"u":"\\u00e4\\ud800 \xc3\xa4","far":1e400}'
    body = b'{"jsonrpc":"2.0", "id":"a", "method":"x/y", "params":' + params + b"}"
    back = b'{"jsonrpc":"2.0","result":{"big":123456789012345678901234567890,"unknown":[1.0]},"id":"a"}'

    async def answer(reply: Reply) -> None:
        await reply.body(back, type="Application/JSON; charset=utf-8")

    async with Upstream({"x/y": answer}) as server, InProcessBridge(server.url) as bridge:
        await bridge.write(body + b"\n")
        assert await bridge.line() == back
        [seen] = server.seen
        assert seen.body == body
        assert seen.headers["accept"] == "application/json, text/event-stream"
        assert seen.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in seen.headers and "mcp-protocol-version" not in seen.headers


@pytest.mark.parametrize("id", [0, 7, -1, "7", "", "ünï", 9007199254740993])
async def test_ids_keep_their_type(id: Any) -> None:
    async with Upstream() as server, InProcessBridge(server.url) as bridge:
        assert await bridge.ask("ping", id=id) == {"jsonrpc": "2.0", "id": id, "result": {}}


async def test_what_is_not_json_is_answered_and_the_next_line_is_read() -> None:
    async with Upstream() as server, InProcessBridge(server.url) as bridge:
        await bridge.write(b'{"id":1,\n[]\n7\n{"id":5}\n\n\r\n')
        answers = [await bridge.next() for _ in range(4)]
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [
            (None, -32700),
            (None, -32600),
            (None, -32600),
            (5, -32600),
        ]
        assert (await bridge.ask("ping"))["result"] == {}
        assert server.methods == ["ping"]


async def test_a_clients_answer_that_is_too_long_is_an_error_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "MAX_LINE", 10_000)
    async with Upstream() as server, InProcessBridge(server.url) as here:
        await here.send({"jsonrpc": "2.0", "id": 3, "result": {"text": "x" * 20_000}})
        assert (await here.ask("ping"))["id"] == 1
        assert server.methods == ["answer", "ping"]
        said = json.loads(server.seen[0].body)
        assert (said["id"], said["error"]["code"]) == (3, -32603)
        assert here.is_silent


async def test_a_notification_and_an_answer_yield_no_line() -> None:
    async with Upstream() as server, InProcessBridge(server.url) as bridge:
        await bridge.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await bridge.send({"jsonrpc": "2.0", "id": 3, "result": {}})
        assert (await bridge.ask("ping"))["id"] == 1
        assert server.methods == ["notifications/roots/list_changed", "answer", "ping"]
        assert bridge.is_silent


async def test_the_agreed_version_goes_with_every_later_message_and_never_with_initialize() -> None:
    async with Upstream(version="2025-06-18") as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.initialize())["result"]["protocolVersion"] == "2025-06-18"
        await bridge.ask("ping")
        await bridge.initialize()
        first, initialized, ping, second, _ = await server_saw(server, 5)
        for opening in (first, second):
            assert opening.method == "initialize"
            assert "mcp-protocol-version" not in opening.headers and "mcp-session-id" not in opening.headers
        for later in (initialized, ping):
            assert later.headers["mcp-protocol-version"] == "2025-06-18"
            assert later.headers["mcp-session-id"] == "s-1"


async def server_saw(server: Upstream, count: int) -> Any:
    await server.until(lambda: len(server.seen) >= count)
    return server.seen


async def test_headers_of_the_users_go_along_but_never_in_the_place_of_the_protocols() -> None:
    given = {"x-api-key": "k", "accept": "text/html", "mcp-session-id": "mine", "mcp-protocol-version": "2025-03-26"}
    async with Upstream() as server, InProcessBridge(server.url, headers=given) as bridge:
        await bridge.initialize()
        await bridge.ask("ping")
        opening, _, ping = await server_saw(server, 3)
        assert opening.headers["x-api-key"] == ping.headers["x-api-key"] == "k"
        assert ping.headers["accept"] == "application/json, text/event-stream"
        assert (ping.headers["mcp-session-id"], ping.headers["mcp-protocol-version"]) == ("s-1", "2025-11-25")
        assert "mcp-protocol-version" not in opening.headers


async def test_a_slow_call_holds_up_nothing() -> None:
    done = asyncio.Event()

    async def slow(reply: Reply) -> None:
        await done.wait()
        await reply.result("slow")

    async with Upstream({"tools/call": slow}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(request("tools/call", {"name": "slow"}, 1))
        assert (await bridge.ask("ping", id=2))["id"] == 2
        done.set()
        assert (await bridge.next())["id"] == 1
        assert server.methods == ["tools/call", "ping"]


async def test_messages_are_sent_in_the_order_of_their_arrival() -> None:
    async with Upstream({"n": result({})}) as server, InProcessBridge(server.url) as bridge:
        for number in range(40):
            await bridge.send(request("n", {"number": number}, number))
        answers = {(await bridge.next())["id"] for _ in range(40)}
        assert answers == set(range(40))
        assert [seen.message["params"]["number"] for seen in server.seen] == list(range(40))


async def test_no_message_overtakes_initialize() -> None:
    may_answer = asyncio.Event()

    async def slow(reply: Reply) -> None:
        await may_answer.wait()
        await reply.result({"protocolVersion": "2025-11-25"})

    async with Upstream({"initialize": slow}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(request("initialize", {}, 0))
        await bridge.send(request("ping", id=1))
        await server.until_seen("initialize")
        assert server.methods == ["initialize"]
        may_answer.set()
        assert [(await bridge.next())["id"] for _ in range(2)] == [0, 1]


async def test_serial_means_one_request_at_a_time_but_answers_and_cancellations_pass() -> None:
    asked = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}
    answered = asyncio.Event()

    async def asks(reply: Reply) -> None:
        await reply.stream()
        await reply.event(asked)
        await answered.wait()
        await reply.answer("done")
        await reply.end()

    async def note(reply: Reply) -> None:
        await reply.accepted()
        answered.set()

    async with (
        Upstream({"tools/call": asks, "answer": note}) as server,
        InProcessBridge(server.url, is_serial=True) as bridge,
    ):
        await bridge.send(request("tools/call", {}, 1))
        await bridge.send(request("ping", id=2))
        assert await bridge.next() == asked
        assert server.methods == ["tools/call"]
        await bridge.send({"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}})
        assert [(await bridge.next())["id"] for _ in range(2)] == [1, 2]
        assert server.methods == ["tools/call", "answer", "ping"]


# -- answers of every shape --------------------------------------------------------------------------------------------


async def test_an_array_becomes_one_line_per_element_and_keeps_its_numbers() -> None:
    async def answer(reply: Reply) -> None:
        ids = [part["id"] for part in reply.seen.message if "id" in part]
        texts = [f'{{"jsonrpc":"2.0","id":{id},"result":{{"n":1e400,"m":[1,{{}}]}}}}' for id in ids]
        await reply.body(f"[ {', '.join(texts)}\n]".encode(), type="application/json")

    async with Upstream({"batch": answer}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send([request("a", id=1), request("b", id=2), {"jsonrpc": "2.0", "method": "notifications/x"}])
        lines = [await bridge.line(), await bridge.line()]
        assert lines == [b'{"jsonrpc":"2.0","id":%d,"result":{"n":1e400,"m":[1,{}]}}' % id for id in (1, 2)]


async def test_every_request_of_an_array_that_fails_gets_an_error() -> None:
    async with Upstream({"batch": status(500, b"no")}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send([request("a", id=1), request("b", id="2")])
        answers = [await bridge.next(), await bridge.next()]
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32001), ("2", -32001)]


async def test_json_over_several_lines_becomes_one() -> None:
    async def answer(reply: Reply) -> None:
        await reply.body(
            b'{\r\n  "jsonrpc": "2.0",\n  "id": 1,\n  "result": {"a": "b c"}\n}\n', type="application/json"
        )

    async with Upstream({"x": answer}) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask("x"))["result"] == {"a": "b c"}


async def test_events_come_out_as_they_arrive() -> None:
    may_end = asyncio.Event()

    async def steps(reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b": hello\n\n")
        await reply.event(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}, event="message"
        )
        await reply.event("not json")
        await reply.event({"jsonrpc": "2.0", "method": "notifications/other"}, event="something-else")
        await may_end.wait()
        await reply.chunk(b'data: {"jsonrpc":"2.0","id":1,\r\ndata: "result":"done"}\r\n\r\n')
        await reply.end()

    async with Upstream({"tools/call": steps}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(request("tools/call"))
        assert (await bridge.next())["method"] == "notifications/progress"
        may_end.set()
        assert await bridge.next() == {"jsonrpc": "2.0", "id": 1, "result": "done"}
        assert bridge.is_silent


async def test_a_character_split_over_two_chunks_survives() -> None:
    text = 'data: {"jsonrpc":"2.0","id":1,"result":"ä€𝄞"}\n\n'.encode()

    async def bytewise(reply: Reply) -> None:
        await reply.stream()
        for byte in text:
            await reply.chunk(bytes([byte]))
            await asyncio.sleep(0)
        await reply.end()

    async with Upstream({"x": bytewise}) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask("x"))["result"] == "ä€𝄞"


async def test_the_last_event_need_not_be_complete() -> None:
    async def answer(reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b'data: {"jsonrpc":"2.0","id":1,"result":"x"}')
        await reply.end()

    async with Upstream({"x": answer}) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask("x"))["result"] == "x"


async def test_a_stream_that_stays_open_after_the_answer_is_left() -> None:
    left = asyncio.Event()

    async def lingering(reply: Reply) -> None:
        await reply.stream()
        await reply.answer("x")
        await reply.is_gone.wait()
        left.set()

    async with Upstream({"x": lingering}) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask("x"))["result"] == "x"
        async with asyncio.timeout(BOUND_S):
            await left.wait()


async def test_an_event_over_the_limit_ends_the_stream_and_the_request_gets_an_error() -> None:
    gone = asyncio.Event()

    async def flood(reply: Reply) -> None:
        await reply.stream()
        await reply.event("ok", id="1")
        await reply.chunk(b"data: ")
        try:
            while not reply.is_gone.is_set():
                await reply.chunk(b"x" * 65536)
                await asyncio.sleep(0)
        finally:
            gone.set()

    limits = OutboundLimits(timeout_ms=10_000, max_event=1 << 20)
    async with Upstream({"x": flood}) as server, InProcessBridge(server.url, limits=limits) as bridge:
        error = (await bridge.ask("x"))["error"]
        assert error["code"] == -32000
        assert "1 MiB" in error["message"] and "--max-buffer" in error["message"]
        async with asyncio.timeout(BOUND_S):
            await gone.wait()
        assert server.methods == ["x"]
        assert (await bridge.ask("ping"))["result"] == {}


def test_the_limit_is_eight_mebibytes_and_the_timeout_five_minutes() -> None:
    assert OutboundLimits() == OutboundLimits(timeout_ms=300_000, max_event=8 * 1024 * 1024)


async def stream_without_answer(reply: Reply) -> None:
    await reply.stream()
    await reply.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    await reply.end()


async def stream_cut(reply: Reply) -> None:
    await reply.stream()
    await reply.chunk(b"data: {")
    reply.cut()


async def html(reply: Reply) -> None:
    await reply.body(b"<html>", type="text/html")


async def other_id(reply: Reply) -> None:
    await reply.json({"jsonrpc": "2.0", "id": "1", "result": {}})


NO_ANSWER = [
    pytest.param(status(202), "202", id="202"),
    pytest.param(status(204), "204", id="204"),
    pytest.param(status(200, b"", Content_Type="application/json"), "nothing", id="empty"),
    pytest.param(status(200, b"{oops", Content_Type="application/json"), "no JSON-RPC message", id="bad-json"),
    pytest.param(html, "text/html", id="html"),
    pytest.param(other_id, "another request", id="other-id"),
    pytest.param(stream_without_answer, "No valid JSON-RPC response in SSE stream", id="stream-end"),
    pytest.param(stream_cut, "upstream request failed", id="stream-cut"),
    pytest.param(cut, "upstream request failed", id="cut"),
]


@pytest.mark.parametrize(("handler", "words"), NO_ANSWER)
async def test_a_request_that_gets_no_answer_gets_an_error(handler: Any, words: str) -> None:
    async with Upstream({"tools/call": handler}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(request("tools/call", {"name": "x"}))
        answer = await bridge.next()
        if "method" in answer:
            answer = await bridge.next()
        assert (answer["id"], answer["error"]["code"]) == (1, -32000)
        assert words in answer["error"]["message"]
        assert answer["error"]["data"].keys() == {"reason", "code", "help"}
        assert server.methods == ["tools/call"]
        assert (await bridge.ask("ping"))["result"] == {}


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_refusal_has_status_and_the_beginning_of_the_body() -> None:
    body = "é".encode() * 60_000
    async with Upstream({"x": status(418, body)}) as server, InProcessBridge(server.url) as bridge:
        error = (await bridge.ask("x"))["error"]
        assert error["code"] == -32001
        assert error["message"].endswith("upstream returned 418")
        assert error["data"] == {"status": 418, "body": "é" * 500, "help": "TR503"}


async def test_a_server_that_knows_only_the_transport_before_is_named_as_that() -> None:
    async with Upstream({"initialize": status(405)}) as server, InProcessBridge(server.url) as bridge:
        error = (await bridge.ask("initialize", {}))["error"]
        assert (error["code"], error["data"]["status"]) == (-32001, 405)
        assert "HTTP+SSE" in error["message"] and "tabrelay serve -c" in error["message"]


async def test_a_refusal_in_the_servers_own_words_gets_the_requests_id() -> None:
    words = {"code": -32602, "message": "No such thing", "data": {"uri": "x"}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": words}).encode()
    async with (
        Upstream({"x": status(400, body), "y": status(200, body)}) as server,
        InProcessBridge(server.url) as bridge,
    ):
        assert await bridge.ask("x", id="me") == {"jsonrpc": "2.0", "id": "me", "error": words}
        assert await bridge.ask("y", id=2) == {"jsonrpc": "2.0", "id": 2, "error": words}


async def test_a_notification_that_is_refused_sends_nothing_to_the_client() -> None:
    async with Upstream({"notifications/x": status(400)}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send({"jsonrpc": "2.0", "method": "notifications/x"})
        assert (await bridge.ask("ping"))["result"] == {}
        assert bridge.is_silent


async def test_a_redirect_is_followed_on_the_same_origin_only_and_with_the_message() -> None:
    async with Upstream(session=None) as other, Upstream() as server, InProcessBridge(server.url) as bridge:
        away = status(307, Location=other.url)
        server.on["a"] = [status(307, Location="/moved"), result("here")]
        server.on["b"] = [away]
        server.on["c"] = [status(302, Location="/moved")]
        server.on["d"] = [status(307, Location="/mcp")]
        assert (await bridge.ask("a"))["result"] == "here"
        assert [seen.path for seen in server.all("a")] == ["/mcp", "/moved"]
        error = (await bridge.ask("b"))["error"]
        assert error["code"] == -32001 and other.url in error["message"]
        assert (await bridge.ask("c"))["error"]["data"]["status"] == 302
        assert (await bridge.ask("d"))["error"]["data"]["status"] == 307
        assert len(server.all("d")) == 6
        assert other.seen == []


# -- time --------------------------------------------------------------------------------------------------------------


async def silent_stream(reply: Reply) -> None:
    await reply.stream()
    await reply.is_gone.wait()


@pytest.mark.parametrize("handler", [hang, silent_stream], ids=["no-head", "silent-stream"])
async def test_silence_ends_with_an_error_after_the_timeout(handler: Any) -> None:
    limits = OutboundLimits(timeout_ms=700)
    async with Upstream({"tools/list": handler}) as server, InProcessBridge(server.url, limits=limits) as bridge:
        error = (await bridge.ask("tools/list"))["error"]
        assert error["code"] == -32000
        assert "upstream timed out after 700 ms" in error["message"]
        await server.until_seen("tools/list")
        assert server.methods == ["tools/list"]


async def test_a_stream_that_goes_on_may_take_longer_than_the_timeout() -> None:
    async def drip(reply: Reply) -> None:
        await reply.stream()
        for _ in range(8):
            await reply.chunk(b": still here\n\n")
            await asyncio.sleep(0.5)  # the server's pace: together longer than the timeout
        await reply.answer("late")
        await reply.end()

    limits = OutboundLimits(timeout_ms=2000)
    async with Upstream({"x": drip}) as server, InProcessBridge(server.url, limits=limits) as bridge:
        assert (await bridge.ask("x"))["result"] == "late"


# -- cancellation ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_of_the_handshake_era_is_cancelled_at_the_server_and_its_late_answer_is_dropped() -> (
    None
):
    may_answer, has_answered = asyncio.Event(), asyncio.Event()

    async def slow(reply: Reply) -> None:
        await reply.stream()
        await may_answer.wait()
        await reply.answer("too late")
        await reply.end()
        has_answered.set()

    async def note(reply: Reply) -> None:
        may_answer.set()
        await has_answered.wait()
        await reply.accepted()

    on = {"tools/call": slow, "notifications/cancelled": note}
    async with Upstream(on) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await bridge.send(request("tools/call", {}, 5))
        await server.until_seen("tools/call")
        await bridge.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        [seen] = await server.until_seen("notifications/cancelled")
        assert seen.message["params"] == {"requestId": 5}
        assert (await bridge.ask("ping", id=6))["id"] == 6
        assert bridge.is_silent


async def test_too_many_requests_at_a_time_are_refused_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabrelay.bridge.bridge.MAX_RUNNING", 4)
    may_answer = asyncio.Event()

    async def slow(reply: Reply) -> None:
        await may_answer.wait()
        await reply.result({})

    async with Upstream({"x": slow}) as server, InProcessBridge(server.url) as bridge:
        for number in range(5):
            await bridge.send(request("x", id=number))
        answer = await bridge.next()
        assert (answer["id"], answer["error"]["code"]) == (4, -32603)
        may_answer.set()
        assert {(await bridge.next())["id"] for _ in range(4)} == {0, 1, 2, 3}


async def test_an_id_that_is_used_again_means_the_new_request() -> None:
    async with Upstream({"x": [hang, result("second")]}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(request("x", id=1))
        await server.until_seen("x")
        assert (await bridge.ask("x", id=1))["result"] == "second"
        assert bridge.is_silent


async def test_a_bug_leaves_no_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Upstream() as server, InProcessBridge(server.url) as bridge:
        monkeypatch.setattr(bridge.bridge._forwarder, "_deliver", None)
        answer = await bridge.ask("ping")
        assert answer["error"]["code"] == -32603
        monkeypatch.undo()
        assert (await bridge.ask("ping"))["result"] == {}


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_at_the_end_of_input_what_is_on_its_way_arrives_and_the_session_is_ended() -> None:
    may_answer = asyncio.Event()

    async def slow(reply: Reply) -> None:
        await may_answer.wait()
        await reply.result("done")

    async with Upstream({"tools/call": slow, "DELETE": status(200)}) as server:
        async with InProcessBridge(server.url) as bridge:
            await bridge.initialize()
            await bridge.send(request("tools/call", {}, 5))
            await server.until_seen("tools/call")
            bridge.close()
            may_answer.set()
            assert (await bridge.next())["result"] == "done"
        [ended] = server.all("DELETE")
        assert ended.headers["mcp-session-id"] == "s-1"


async def test_what_does_not_arrive_is_left_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabrelay.bridge.bridge.FINISH_S", 0.1)
    async with Upstream({"x": hang, "DELETE": hang}) as server:
        async with InProcessBridge(server.url) as bridge:
            await bridge.send(request("x"))
            await server.until_seen("x")
        assert bridge.is_silent


async def test_it_ends_when_its_output_is_closed() -> None:
    async with Upstream({"x": hang}) as server, InProcessBridge(server.url) as bridge:
        await bridge.send(request("x"))
        await server.until_seen("x")
        bridge.output.broken.set()
        await until(bridge.task.done)
