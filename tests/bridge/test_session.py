"""Sessions of the handshake era: created, kept, and opened again when the server has lost them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.bridge_harness import InProcessBridge, request
from tests.support.fake_upstream import Reply, Upstream, result, status

HANDSHAKE = ["initialize", "notifications/initialized"]


class Forgetful(Upstream):
    """Accepts only the last session that it has created; `forget` makes it accept none."""

    def __init__(self, on: Any, code: int = 404, body: bytes = b"") -> None:
        super().__init__(on)
        self.given = 0
        self.refusal = (code, body)
        self.session = None

    def forget(self) -> None:
        self.session = None

    async def _handle(self, reply: Reply) -> None:
        if reply.seen.method == "initialize":
            self.given += 1
            self.session = f"s-{self.given}"
        elif reply.seen.headers.get("mcp-session-id") != self.session:
            await reply.body(self.refusal[1], self.refusal[0])
            return
        await super()._handle(reply)


async def test_the_first_session_id_counts_wherever_it_comes_from() -> None:
    async def give(reply: Reply) -> None:
        await reply.result({}, Mcp_Session_Id="late")

    async def other(reply: Reply) -> None:
        await reply.result({}, Mcp_Session_Id="other")

    on = {"a": status(400, b"", Mcp_Session_Id="wrong"), "b": give, "c": other}
    async with Upstream(on, session=None) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        for method in ("a", "b", "c", "ping"):
            await bridge.ask(method)
        sent = {seen.method: seen.headers.get("mcp-session-id") for seen in server.seen}
        assert sent == {**dict.fromkeys([*HANDSHAKE, "a", "b"]), "c": "late", "ping": "late"}


async def test_an_error_without_a_session_id_does_not_end_the_session() -> None:
    async with Upstream({"a": status(500)}) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await bridge.ask("a")
        await bridge.ask("ping")
        assert server.seen[-1].headers["mcp-session-id"] == "s-1"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (404, b""),
        (404, b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"gone"},"id":null}'),
        (400, b"No valid Session"),
    ],
)
async def test_a_forgotten_session_is_opened_again_and_the_message_sent_again(code: int, body: bytes) -> None:
    async with Forgetful({"tools/call": result("done")}, code, body) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await server.until_seen("notifications/initialized")
        server.forget()
        assert (await bridge.ask("tools/call", id="c"))["result"] == "done"
        assert server.methods == [*HANDSHAKE, "tools/call", *HANDSHAKE, "tools/call"]
        again = server.all("initialize")[1].message
        first = server.all("initialize")[0].message
        assert again["params"] == first["params"] and again["id"] != first["id"]
        assert server.seen[-1].headers["mcp-session-id"] == "s-2"
        assert bridge.is_silent, "the client is not notified"


async def test_many_calls_that_find_the_session_gone_share_a_new_one() -> None:
    async with Forgetful({"x": result("done")}) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await server.until_seen("notifications/initialized")
        server.forget()
        for number in range(8):
            await bridge.send(request("x", id=number))
        assert {(await bridge.next())["id"] for _ in range(8)} == set(range(8))
        assert server.given == 2


async def test_settings_of_the_old_session_are_sent_to_the_new_one() -> None:
    on = {name: result({}) for name in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe", "x")}
    async with Forgetful(on) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await bridge.ask("logging/setLevel", {"level": "debug"})
        await bridge.ask("logging/setLevel", {"level": "error"})
        for uri in ("a:1", "a:2"):
            await bridge.ask("resources/subscribe", {"uri": uri})
        await bridge.ask("resources/unsubscribe", {"uri": "a:1"})
        server.forget()
        server.seen.clear()
        await bridge.ask("x")
        told = [seen.message.get("params") for seen in server.seen if "/" in seen.method][1:]
        assert server.methods == ["x", *HANDSHAKE, "logging/setLevel", "resources/subscribe", "x"]
        assert told == [{"level": "error"}, {"uri": "a:2"}]
        assert bridge.is_silent


async def test_a_message_is_sent_again_once_and_then_refused() -> None:
    async with Upstream({"x": status(404)}) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        error = (await bridge.ask("x"))["error"]
        assert (error["code"], error["data"]["status"]) == (-32001, 404)
        assert server.methods == [*HANDSHAKE, "x", *HANDSHAKE, "x"]


async def test_when_no_new_session_can_be_opened_the_client_gets_the_reason_and_the_next_request_tries_again() -> None:
    async with Forgetful({"x": result("done")}) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await server.until_seen("notifications/initialized")
        server.forget()
        server.on["initialize"] = status(403, b"closed")
        error = (await bridge.ask("x"))["error"]
        assert "No new session" in error["message"] and "403" in error["message"]
        del server.on["initialize"]
        assert (await bridge.ask("x"))["result"] == "done"


async def test_without_a_session_a_404_is_a_refusal() -> None:
    async with Upstream({"x": status(404)}, session=None) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        assert (await bridge.ask("x"))["error"]["data"]["status"] == 404
        assert server.methods == [*HANDSHAKE, "x"]


async def test_an_answer_to_a_question_of_the_old_session_is_not_for_the_new_one() -> None:
    async with Forgetful({"x": result("done")}) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await server.until_seen("notifications/initialized")
        server.forget()
        await bridge.send({"jsonrpc": "2.0", "id": "q", "result": {}})
        await server.until_seen("initialize", 2)
        assert (await bridge.ask("x"))["result"] == "done"
        assert len(server.all("answer")) == 1


# -- a stream that breaks and is resumed -------------------------------------------------------------------------------


async def test_a_broken_stream_resumes_where_it_broke() -> None:
    async def begin(reply: Reply) -> None:
        await reply.stream()
        await reply.event("", id="e-1", retry="250")
        await reply.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}, id="e-2")
        await reply.chunk(b'id: e-3\ndata: {"half')
        reply.cut()

    async def middle(reply: Reply) -> None:
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}, id="e-4")
        await reply.end()

    async def finish(reply: Reply) -> None:
        await reply.stream()
        await reply.event({"jsonrpc": "2.0", "id": 9, "result": "done"}, id="e-5")
        await reply.end()

    on: Any = {"tools/call": begin, "GET": [middle, status(503), finish]}
    async with Upstream(on) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        await bridge.send(request("tools/call", {}, 9))
        methods = [(await bridge.next()).get("method") for _ in range(2)]
        assert methods == ["notifications/progress"] * 2
        assert (await bridge.next())["result"] == "done"
        gets = server.all("GET")
        assert [seen.headers["last-event-id"] for seen in gets] == ["e-2", "e-4", "e-4"]
        assert all(seen.headers["mcp-session-id"] == "s-1" for seen in gets)
        assert len(server.all("tools/call")) == 1
        assert bridge.clock.sleeps == [0.25, 0.25, 0.25]  # type: ignore[attr-defined]


async def test_a_server_without_get_ends_the_wait() -> None:
    async def begin(reply: Reply) -> None:
        await reply.stream()
        await reply.event("", id="e-1")
        await reply.end()

    async with Upstream({"tools/call": begin}) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask("tools/call"))["error"]["data"]["status"] == 405
        assert server.methods == ["tools/call", "GET"]


async def test_resuming_ends_after_ten_failures() -> None:
    async def begin(reply: Reply) -> None:
        await reply.stream()
        await reply.event("", id="e-1")
        await reply.end()

    async with Upstream({"tools/call": begin, "GET": status(500)}) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask("tools/call"))["error"]["code"] == -32001
        assert len(server.all("GET")) == 10


async def test_questions_of_the_server_and_their_answers_cross() -> None:
    asked = {"jsonrpc": "2.0", "id": "q-1", "method": "sampling/createMessage", "params": {"x": 1}}
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def call(reply: Reply) -> None:
        await reply.stream()
        await reply.event(asked)
        await reply.answer({"got": await answered})
        await reply.end()

    async def take(reply: Reply) -> None:
        await reply.accepted()
        answered.set_result(reply.seen.message)

    async with Upstream({"tools/call": call, "answer": take}) as server, InProcessBridge(server.url) as bridge:
        await bridge.initialize()
        assert await bridge.ask("tools/call", id=2) == asked
        reply = {"jsonrpc": "2.0", "id": "q-1", "result": {"role": "assistant"}}
        await bridge.send(reply)
        assert (await bridge.next())["result"] == {"got": reply}
        assert server.all("answer")[0].headers["mcp-session-id"] == "s-1"
