"""Servers that the editor provides, for an agent that can only start programs: dialects G1 to G3, and failures."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from tabrelay.acp import editor_connection, line_writer
from tabrelay.acp.dialects import G1, G2, G3, Dialect
from tests.support.acp_harness import (
    ACP,
    SESSION,
    URL,
    WAIT_S,
    ConductorHarness,
    NoRelay,
    ScriptedComponent,
    is_free,
    modern,
)


async def connect(stage: ConductorHarness, connection: str = "c1") -> Any:
    """Answer the conductor's `connect`; returns it."""
    asked = await stage.editor.next()
    spelling = "connectionId" if asked["method"] == "mcp/connect" else "connection_id"
    stage.editor.send(id=asked["id"], result={spelling: connection})
    return asked


async def test_the_first_shape_from_connect_to_disconnect() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(URL)
        assert (server["name"], server["command"], server["args"][0]) == ("tab", "/opt/tabrelay", "mcp")
        plug = await stage.plug(server)
        asked = await connect(stage)
        assert asked["method"] == "_mcp/connect"
        assert asked["params"] == {"acp_url": "acp:7d0", "session_id": "s1", "_meta": SESSION}
        plug.send(id=5, method="tools/call", params={"name": "x", "big": 12345678901234567890123})
        call = await stage.editor.next()
        assert call["method"] == "_mcp/request"
        assert call["params"]["connectionId"] == "c1"
        assert call["params"]["params"]["big"] == 12345678901234567890123
        stage.editor.send(id=call["id"], result={"content": []})
        assert await plug.next() == {"jsonrpc": "2.0", "id": 5, "result": {"content": []}}
        plug.send(method="notifications/initialized")
        note = await stage.editor.next()
        assert (note["method"], note["params"]["method"]) == ("_mcp/notification", "notifications/initialized")
        assert "id" not in note
        plug.close()
        gone = await stage.editor.next()
        assert gone == {"jsonrpc": "2.0", "method": "_mcp/disconnect", "params": {"connection_id": "c1"}}


async def test_the_second_shape_is_found_by_the_first_request() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(URL)
        plug = await stage.plug(server)
        await connect(stage)
        plug.send(id="a", method="initialize", params={})
        refused = await stage.editor.next()
        assert refused["method"] == "_mcp/request"
        stage.editor.send(id=refused["id"], error={"code": -32601, "message": "Method not found"})
        again = await stage.editor.next()
        assert (again["method"], again["params"]["method"]) == ("_mcp/message", "initialize")
        stage.editor.send(id=again["id"], result={"ok": True})
        assert await plug.next() == {"jsonrpc": "2.0", "id": "a", "result": {"ok": True}}
        plug.send(method="notifications/initialized")
        assert (await stage.editor.next())["method"] == "_mcp/message"


async def test_an_unknown_method_of_the_server_is_not_taken_for_another_shape() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(URL)
        plug = await stage.plug(server)
        await connect(stage)
        plug.send(id=1, method="server/discover", params=modern())
        for method in ("_mcp/request", "_mcp/message"):
            asked = await stage.editor.next()
            assert asked["method"] == method
            stage.editor.send(id=asked["id"], error={"code": -32601, "message": "no such method"})
        assert (await plug.next())["error"] == {"code": -32601, "message": "no such method"}
        plug.send(id=2, method="initialize", params={})
        asked = await stage.editor.next()
        assert asked["method"] == "_mcp/request"
        stage.editor.send(id=asked["id"], result={})
        assert (await plug.next())["id"] == 2


async def test_the_third_shape_from_connect_to_disconnect() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        asked = await connect(stage)
        assert (asked["method"], asked["params"]) == ("mcp/connect", {"serverId": "7d0", "_meta": SESSION})
        plug.send(id=1, method="tools/list", params={})
        call = await stage.editor.next()
        assert call["method"] == "mcp/message"
        assert call["params"] == {"connectionId": "c1", "method": "tools/list", "params": {}, "_meta": SESSION}
        error = {"code": -32042, "message": "later", "data": {"why": [1.0, None]}}
        stage.editor.send(id=call["id"], error=error)
        assert await plug.next() == {"jsonrpc": "2.0", "id": 1, "error": error}
        plug.close()
        gone = await stage.editor.next()
        assert (gone["method"], gone["params"]) == ("mcp/disconnect", {"connectionId": "c1"})
        stage.editor.send(id=gone["id"], result={})
        stage.editor.send(id=99, method="ping")
        assert (await stage.agent.next())["id"] == 99, "the answer to the disconnect went to the agent"


async def test_a_draft_name_of_the_server_id_is_understood_and_sent_back() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open({"type": "acp", "name": "tab", "acpId": "x9"})
        await stage.plug(server)
        assert (await connect(stage))["params"] == {"serverId": "x9", "acpId": "x9", "_meta": SESSION}


async def test_what_the_server_asks_reaches_its_own_connection() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plugs = [await stage.plug(server)]
        await connect(stage, "c1")
        plugs.append(await stage.plug(server))
        await connect(stage, "c2")
        inner = {"connectionId": "c2", "method": "elicitation/create", "params": {"message": "?"}}
        stage.editor.send(id=40, method="mcp/message", params=inner)
        asked = await plugs[1].next()
        assert (asked["method"], asked["params"]) == ("elicitation/create", {"message": "?"})
        plugs[1].send(id=asked["id"], result={"action": "decline"})
        assert await stage.editor.next() == {"jsonrpc": "2.0", "id": 40, "result": {"action": "decline"}}
        stage.editor.send(method="mcp/message", params={"connectionId": "c1", "method": "notifications/x"})
        assert (await plugs[0].next())["method"] == "notifications/x"


@pytest.mark.parametrize("declared", [URL, ACP], ids=["g1", "g3"])
async def test_messages_of_the_server_after_an_answer_do_not_overtake_it(declared: Any) -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(declared)
        plug = await stage.plug(server)
        await connect(stage)
        plug.send(id=1, method="initialize", params={})
        call = await stage.editor.next()
        method = "_mcp/notification" if declared is URL else "mcp/message"
        note = {"connectionId": "c1", "method": "notifications/tools/list_changed"}
        lines = [{"id": call["id"], "result": {}}, {"method": method, "params": note}]
        # In one piece, so that there is nothing to wait for between the two.
        stage.editor.raw(b"\n".join(json.dumps({"jsonrpc": "2.0", **line}).encode() for line in lines))
        assert (await plug.next()).get("id") == 1
        assert (await plug.next())["method"] == "notifications/tools/list_changed"


async def test_messages_for_no_connection_are_refused_or_ignored() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        stage.editor.send(method="mcp/message", params={"connectionId": "unknown", "method": "x"})
        stage.editor.send(id=3, method="mcp/message", params={"connectionId": "unknown", "method": "x"})
        refused = await stage.editor.next()
        assert (refused["id"], refused["error"]["code"]) == (3, -32602)
        assert stage.agent.is_silent


async def test_a_question_that_is_cancelled_becomes_a_cancellation_of_mcp() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        stage.editor.send(id=41, method="mcp/message", params={"connectionId": "c1", "method": "roots/list"})
        asked = await plug.next()
        stage.editor.send(method="$/cancel_request", params={"requestId": 41})
        said = await plug.next()
        assert (said["method"], said["params"]) == ("notifications/cancelled", {"requestId": asked["id"]})
        assert (await stage.editor.next())["error"]["code"] == -32800


async def test_a_call_that_is_cancelled_is_cancelled_at_the_editor() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        plug.send(id=1, method="tools/call", params={"name": "slow"})
        call = await stage.editor.next()
        plug.send(method="notifications/cancelled", params={"requestId": 1, "reason": "bored"})
        inner = (await stage.editor.next())["params"]
        assert (inner["method"], inner["params"]) == (
            "notifications/cancelled",
            {"requestId": call["id"], "reason": "bored"},
        )
        assert (await stage.editor.next())["method"] == "$/cancel_request"
        stage.editor.send(id=call["id"], result={"too": "late"})
        stage.editor.send(id=50, method="x")
        assert (await stage.agent.next())["id"] == 50, "a late answer went to the agent"


async def test_the_session_id_is_there_from_the_beginning_if_it_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor_connection, "SESSION_S", WAIT_S)
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.ask_for_session(URL)
        await stage.plug(server)
        # Later messages were handled, so the first one is waiting.
        assert await (await stage.plug(server, nonce="guess")).line() == b""
        assert stage.editor.is_silent
        stage.agent.send(id=1, result={"sessionId": "s1"})
        said = [await stage.editor.next(), await stage.editor.next()]
        assert [one["params"]["session_id"] for one in said if one.get("method") == "_mcp/connect"] == ["s1"]


async def test_the_session_id_is_waited_for_a_moment_and_sent_when_it_comes() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.ask_for_session(URL)
        before = time.monotonic()
        plug = await stage.plug(server)
        asked = await connect(stage)
        waited = time.monotonic() - before
        assert waited >= 0.25, "agents that answer at once would be unknown to the server that they connect to"
        assert waited < 10, "agents that connect before they answer would be held up"
        assert asked["params"] == {"acp_url": "acp:7d0", "session_id": None}
        plug.send(id=1, method="tools/list")
        first = await stage.editor.next()
        assert "_meta" not in first["params"]
        stage.editor.send(id=first["id"], result={})
        await plug.next()
        stage.agent.send(id=1, result={"sessionId": "s1"})
        assert (await stage.editor.next())["id"] == 1
        plug.send(id=2, method="tools/list")
        assert (await stage.editor.next())["params"]["_meta"] == SESSION


async def test_the_ports_accept_before_the_agent_receives_the_session() -> None:
    came: list[socket.socket] = []

    class Eager(ScriptedComponent):
        """Connects as soon as it knows the address: the conductor's loop has not run since."""

        async def write(self, line: bytes) -> None:
            for server in json.loads(line).get("params", {}).get("mcpServers", ()):
                came.append(socket.create_connection(("127.0.0.1", int(server["args"][-1])), WAIT_S))
            await super().write(line)

    async with ConductorHarness(NoRelay("notes"), agent=Eager()) as stage:
        await stage.greet()
        servers = await stage.open(ACP)
        assert len(came) == len(servers) == 2
        for line in came:
            line.close()


@pytest.mark.parametrize(
    ("method", "session"), [("session/load", "old"), ("session/resume", "old"), ("session/fork", "s2")]
)
async def test_a_resumed_session_has_its_servers_too(method: str, session: str) -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.ask_for_session(ACP, method=method, sessionId="old")
        early = await stage.plug(server)
        # Only a fork has an id that is not known yet.
        about = (await connect(stage, "early"))["params"].get("_meta", {}).get("tabrelay/sessionId")
        assert about == (None if method == "session/fork" else "old")
        stage.agent.send(id=1, result={"sessionId": "s2"} if method == "session/fork" else {})
        assert (await stage.editor.next())["id"] == 1
        await stage.plug(server)
        assert (await connect(stage, "late"))["params"]["_meta"] == {"tabrelay/sessionId": session}
        early.send(id=1, method="ping")
        assert (await stage.editor.next())["params"]["_meta"] == {"tabrelay/sessionId": session}


async def test_a_session_that_is_loaded_again_leaves_none_of_its_old_ports() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [old] = await stage.open(ACP)
        plug = await stage.plug(old)
        await connect(stage)
        [new] = await stage.ask_for_session(ACP, method="session/load", id=2, sessionId="s1")
        plug.send(id=1, method="ping")
        assert (await stage.editor.next())["method"] == "mcp/message", "the old ones go when the new ones are there"
        stage.agent.send(id=2, result=None)
        assert (await stage.editor.until(lambda message: message.get("id") == 2))["result"] is None
        assert await plug.line() == b""
        assert await is_free(int(old["args"][-1]))
        await stage.plug(new)
        assert (await stage.editor.until(lambda message: message.get("method") == "mcp/connect"))["id"]


async def test_sessions_that_are_opened_at_once_are_distinguished_in_any_order_of_answers() -> None:
    ids: list[Any] = [1, 2, "1"]
    async with ConductorHarness() as stage:
        await stage.greet()
        servers = [(await stage.ask_for_session(ACP, id=id))[0] for id in ids]
        plugs = [await stage.plug(server) for server in servers]
        for number in range(3):
            await connect(stage, f"c{number}")
        for id in reversed(ids):
            stage.agent.send(id=id, result={"sessionId": f"session {id!r}"})
            assert (await stage.editor.next())["id"] == id
        seen = []
        for plug in plugs:
            plug.send(id=0, method="ping")
            seen.append((await stage.editor.next())["params"]["_meta"]["tabrelay/sessionId"])
        assert seen == [f"session {id!r}" for id in ids]


async def test_lines_may_come_in_pieces_of_any_size_and_with_any_ends() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        line = '{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"ü€😀"}}'.encode()
        for end in (b"\n", b"\r\n", b"\n\n \n"):
            for byte in line + end:
                stage.editor.chunks_in.put_nowait(bytes([byte]))
            assert await stage.agent.line() == line


async def test_two_servers_have_ports_of_their_own_and_one_session() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        one, two = await stage.open(ACP, ACP | {"name": "second", "serverId": "8"})
        assert one["args"][-1] != two["args"][-1] and one["env"] != two["env"]
        for number, server in enumerate((one, two)):
            await stage.plug(server)
            asked = await connect(stage, f"c{number}")
            assert asked["params"]["_meta"] == SESSION


async def test_a_connection_without_the_nonce_is_closed() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        stranger = await stage.plug(server, nonce="guess")
        assert await stranger.line() == b""
        long = await stage.plug(server, nonce="x" * 200_000)
        assert await long.line() == b""
        assert stage.editor.is_silent
        await stage.plug(server)
        assert (await stage.editor.next())["method"] == "mcp/connect"


async def test_a_bridge_that_crashes_is_one_disconnect_and_leaves_nothing_waiting() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        plug.send(id=1, method="tools/call", params={})
        call = await stage.editor.next()
        plug.writer.transport.abort()
        said = [await stage.editor.next(), await stage.editor.next()]
        assert [one["method"] for one in said] == ["$/cancel_request", "mcp/disconnect"]
        assert said[0]["params"] == {"requestId": call["id"]}
        stage.editor.send(id=60, method="mcp/message", params={"connectionId": "c1", "method": "ping"})
        assert (await stage.editor.next())["error"]["code"] == -32602


async def test_an_editor_that_disconnects_ends_the_connection_without_another_word() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        stage.editor.send(id=61, method="mcp/disconnect", params={"connectionId": "c1"})
        assert (await stage.editor.next()) == {"jsonrpc": "2.0", "id": 61, "result": {}}
        assert await plug.line() == b""
        assert stage.editor.is_silent


async def test_an_editor_that_refuses_to_connect_is_the_end_of_that_connection_only() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        asked = await stage.editor.next()
        stage.editor.send(id=asked["id"], error={"code": -32602, "message": "no such server"})
        assert await plug.line() == b""
        await stage.plug(server)
        assert (await stage.editor.next())["method"] == "mcp/connect"


async def test_lines_that_are_no_messages_are_answered_and_the_connection_goes_on() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        plug.raw(b"{nonsense")
        assert (await plug.next())["error"]["code"] == -32700
        plug.raw(b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]')
        assert [(await stage.editor.next())["params"]["method"] for _ in range(2)] == ["a", "b"]


async def test_the_override_counts_more_than_what_is_declared() -> None:
    async with ConductorHarness(profile=G2) as stage:
        await stage.greet()
        [server] = await stage.open(URL)
        plug = await stage.plug(server)
        assert (await connect(stage))["params"] == {"acp_url": "acp:7d0", "_meta": SESSION}
        plug.send(id=1, method="tools/list")
        assert (await stage.editor.next())["method"] == "_mcp/message"


async def test_a_client_that_does_not_read_is_disconnected_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_writer.LineWriter.__init__, "__defaults__", (0.2,))
    monkeypatch.setattr(line_writer, "MAX_BYTES", 1 << 20)
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        deaf = await stage.plug(server)
        await connect(stage, "deaf")
        other = await stage.plug(server)
        await connect(stage, "other")
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        text = json.dumps({"x": "y" * (1 << 20)})
        for _ in range(32):
            inner = {"connectionId": "deaf", "method": "notifications/x", "params": json.loads(text)}
            stage.editor.send(method="mcp/message", params=inner)
        stage.editor.send(method="mcp/message", params={"connectionId": "other", "method": "notifications/y"})
        assert (await other.next())["method"] == "notifications/y"
        gone = await stage.editor.next()
        assert gone["params"] == {"connectionId": "deaf"}


async def test_the_ports_of_a_session_are_free_when_it_is_closed() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        assert (await stage.agent.next())["method"] == "session/close"
        stage.agent.send(id=9, result={})
        assert (await stage.editor.until(lambda message: message.get("id") == 9))["result"] == {}
        assert await plug.line() == b""
        assert await is_free(int(server["args"][-1]))


async def test_a_session_that_is_refused_leaves_no_port() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.ask_for_session(ACP)
        stage.agent.send(id=1, error={"code": -32000, "message": "auth_required"})
        assert (await stage.editor.next())["error"]["message"] == "auth_required"
        assert await is_free(int(server["args"][-1]))


async def test_an_agent_that_dies_before_it_answers_leaves_no_waiting_request_and_no_port() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.ask_for_session(ACP)
        plug = await stage.plug(server)
        stage.agent.die(3)
        said = await stage.editor.until(lambda message: message.get("id") == 1)
        assert "ended with code 3" in said["error"]["message"]
        assert await plug.line() == b""
        assert await stage.ended() == 3
        assert await is_free(int(server["args"][-1]))
        assert stage.agent.is_ended


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_an_editor_that_does_not_read_delays_nothing_when_the_agent_is_gone(is_stopped: bool) -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        await stage.ask_for_session(ACP)
        stage.editor.may_write.clear()
        stage.agent.die(3)
        if is_stopped:
            stage.conductor.stop()
        assert await stage.ended() in ((0, 3) if is_stopped else (3,))
        assert stage.agent.is_ended


async def test_an_editor_that_disappears_takes_everything_with_it() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        stage.editor.leave()
        assert await stage.ended() == 0
        assert await plug.line() == b""
        assert await is_free(int(server["args"][-1]))
        assert stage.agent.is_ended


async def test_calls_start_in_the_order_in_which_they_were_made() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        for number in range(200):
            plug.send(id=number, method="tools/call", params={"n": number})
        seen = []
        for _ in range(200):
            call = await stage.editor.next()
            seen.append(call["params"]["params"]["n"])
            stage.editor.send(id=call["id"], result={"n": seen[-1]})
        assert seen == list(range(200))
        assert sorted([(await plug.next())["id"] for _ in range(200)]) == list(range(200))


async def test_no_more_calls_are_taken_than_can_run() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        await connect(stage)
        for number in range(150):
            plug.send(id=number, method="tools/call", params={})
        calls = [await stage.editor.next() for _ in range(128)]
        stage.agent.send(method="session/update", params={})
        assert (await stage.editor.next())["method"] == "session/update", "more were taken, or others have to wait"
        stage.editor.send(id=calls[0]["id"], result={})
        assert (await stage.editor.next())["method"] == "mcp/message"


@pytest.mark.parametrize(
    ("profile", "declared", "method", "params"),
    [
        (G1, ACP, "_mcp/connect", {"acp_url": "acp:7d0", "session_id": "s1", "_meta": SESSION}),
        (G2, ACP, "_mcp/connect", {"acp_url": "acp:7d0", "_meta": SESSION}),
        (G3, URL, "mcp/connect", {"serverId": "7d0", "_meta": SESSION}),
    ],
)
async def test_the_override_decides_how_a_server_is_named_however_it_was_declared(
    profile: Dialect, declared: Any, method: str, params: Any
) -> None:
    async with ConductorHarness(profile=profile) as stage:
        await stage.greet()
        [server] = await stage.open(declared)
        await stage.plug(server)
        asked = await stage.editor.next()
        assert (asked["method"], asked["params"]) == (method, params)


@pytest.mark.parametrize("shown", ["_mcp/request", "_mcp/notification", "_mcp/message"])
async def test_a_peer_that_sends_first_shows_its_shape(shown: str) -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(URL)
        plug = await stage.plug(server)
        await connect(stage)
        inner = {"connectionId": "c1", "method": "notifications/x"}
        stage.editor.send(method=shown, params=inner)
        assert (await plug.next())["method"] == "notifications/x"
        plug.send(id=1, method="tools/list")
        asked = await stage.editor.next()
        assert asked["method"] == ("_mcp/message" if shown == "_mcp/message" else "_mcp/request")
        stage.editor.send(id=asked["id"], error={"code": -32601, "message": "no such method of the server's"})
        assert (await plug.next())["error"]["code"] == -32601, "it was asked again in another shape"
