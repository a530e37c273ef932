"""Malformed and unexpected messages of editors, agents and other programs: no other program is affected."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from typing import Any

import pytest

from tabrelay.acp import child, line_reader, local_port
from tabrelay.acp.dialects import G4
from tests.support.acp_harness import ACP, WAIT_S, ConductorHarness, McpProgram, NoRelay, ScriptedComponent, is_free
from tests.support.waiting import until

BOM = b"\xef\xbb\xbf"


async def is_well(stage: ConductorHarness) -> None:
    """Whether lines pass in both directions."""
    stage.editor.send(method="are you there", params={})
    while b"are you there" not in await stage.agent.line():
        pass
    stage.agent.send(method="yes", params={})
    while b'"yes"' not in await stage.editor.line():
        pass


async def connected(stage: ConductorHarness, id: str = "c1") -> McpProgram:
    """An agent's MCP connection to a server of the editor."""
    await stage.greet()
    [server] = await stage.open(ACP)
    plug = await stage.plug(server)
    asked = await stage.editor.next()
    stage.editor.send(id=asked["id"], result={"connectionId": id})
    return plug


# -- lines ------------------------------------------------------------------------------------------------------------


async def test_a_byte_order_mark_is_ignored() -> None:
    async with ConductorHarness(NoRelay("notes")) as stage:
        stage.editor.raw(BOM + b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}')
        assert (await stage.agent.line()).startswith(BOM + b"{")
        stage.agent.raw(BOM + b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}')
        said = json.loads((await stage.editor.line()).removeprefix(BOM))
        assert said["result"]["agentCapabilities"] == {"mcpCapabilities": {"acp": True}}
        stage.editor.raw(BOM + b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"mcpServers":[]}}')
        [server] = json.loads((await stage.agent.line()).removeprefix(BOM))["params"]["mcpServers"]
        assert server["name"] == "notes"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-le", "latin-1"])
async def test_a_line_in_another_encoding_passes_unchanged(encoding: str) -> None:
    line = '{"id":1,"method":"session/new","params":{"mcpServers":[],"x":"ü"}}'.encode(encoding)
    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet()
        stage.editor.raw(line)
        assert await stage.agent.line() == line.strip()
        stage.agent.raw(line)
        assert await stage.editor.line() == line
        await is_well(stage)


async def test_half_of_a_surrogate_pair_written_as_bytes_passes_unchanged() -> None:
    line = b'{"id":1,"method":"session/new","params":{"mcpServers":[],"x":"\xed\xa0\x80"}}'
    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet()
        stage.editor.raw(line)
        assert await stage.agent.line() == line


@pytest.mark.parametrize("depth", [500, 950, 990, 1010, 1023, 5000])
async def test_however_deep_a_request_is_it_passes(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet()
        stage.editor.raw(f'{{"id":1,"method":"session/new","params":{{"mcpServers":[],"x":{deep}}}}}'.encode())
        assert deep.encode() in await stage.agent.line()
        stage.agent.raw(f'{{"id":1,"result":{{"sessionId":"s1","x":{deep}}}}}'.encode())
        assert deep.encode() in await stage.editor.line()
        await is_well(stage)


@pytest.mark.parametrize("said", [b"1.0", b"1", b"1e0"])
@pytest.mark.parametrize("answered", [b"1", b"1.0"])
async def test_a_number_is_the_same_id_however_it_is_written(said: bytes, answered: bytes) -> None:
    """Lua writes 1.0 where JavaScript answers 1."""
    async with ConductorHarness() as stage:
        await stage.greet()
        stage.editor.raw(b'{"id":%s,"method":"session/new","params":{"mcpServers":[%s]}}' % (said, _json(ACP)))
        [server] = (await stage.agent.next())["params"]["mcpServers"]
        stage.agent.raw(b'{"id":%s,"result":{"sessionId":"s1"}}' % answered)
        assert await stage.editor.line() == b'{"id":%s,"result":{"sessionId":"s1"}}' % answered
        await stage.plug(server)
        assert (await stage.editor.next())["params"]["_meta"] == {"tabrelay/sessionId": "s1"}


@pytest.mark.parametrize("servers", [{"notes": {"command": "x"}}, "none", 5, True])
async def test_servers_that_are_no_list_are_the_agents_to_refuse(servers: Any) -> None:
    line = _json({"id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": servers}})
    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet()
        stage.editor.raw(line)
        assert await stage.agent.line() == line


@pytest.mark.parametrize(
    "entry", [None, 5, "x", [], {}, {"name": None}, {"type": ["acp"]}, {"url": 5}, {"url": ["acp:"]}]
)
async def test_entries_that_are_no_servers_stay_where_they_are(entry: Any) -> None:
    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet()
        first, second, third = await stage.ask_for_session(entry, ACP)
        assert first == entry and second["name"] == "tab" and third["name"] == "notes"


@pytest.mark.parametrize("params", [b"null", b"[]", b"5", b"", b'{"mcpServers":null}'])
async def test_a_session_without_params_gets_its_servers(params: bytes) -> None:
    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet()
        stage.editor.raw(b'{"id":1,"method":"session/new"%s}' % (b',"params":' + params if params else b""))
        assert (await stage.agent.next())["params"]["mcpServers"][0]["name"] == "notes"


# -- responses with a null member --------------------------------------------------------------------------------------


async def test_an_error_that_is_null_is_none() -> None:
    """Some libraries write both members of every response."""
    async with ConductorHarness() as stage:
        stage.editor.send(id=0, method="initialize", params={})
        await stage.agent.next()
        stage.agent.send(id=0, result={"protocolVersion": 1}, error=None)
        assert "agentCapabilities" in (await stage.editor.next())["result"]
        [server] = await stage.ask_for_session(ACP)
        stage.agent.send(id=1, result={"sessionId": "s1"}, error=None)
        assert (await stage.editor.next())["id"] == 1
        plug = await stage.plug(server)
        asked = await stage.editor.next()
        assert asked["params"]["_meta"] == {"tabrelay/sessionId": "s1"}
        stage.editor.send(id=asked["id"], result={"connectionId": "c"}, error=None)
        plug.send(id=1, method="tools/list")
        call = await stage.editor.next()
        stage.editor.send(id=call["id"], result={"tools": []}, error=None)
        assert await plug.next() == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}
        stage.editor.send(id=5, method="mcp/message", params={"connectionId": "c", "method": "roots/list"})
        plug.send(id=(await plug.next())["id"], result={"roots": []}, error=None)
        assert await stage.editor.next() == {"jsonrpc": "2.0", "id": 5, "result": {"roots": []}}
        stage.editor.send(id=6, method="session/close", params={"sessionId": "s1"})
        await stage.agent.next()
        stage.agent.send(id=6, result={}, error=None)
        assert await plug.line() == b""


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.mark.parametrize(
    "answer", [{"result": {"result": {"ok": 1}, "error": None}}, {"result": {"result": {"ok": 1}}, "error": None}]
)
async def test_an_error_that_is_null_is_none_in_an_envelope_too(answer: Any) -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        plug.send(id=1, method="tools/list", params={"_meta": META})
        stage.editor.send(id=(await stage.editor.next())["id"], **answer)
        assert (await plug.next())["result"] == {"ok": 1}


@pytest.mark.parametrize("error", ["no", 5, [], {"code": "x"}])
async def test_an_agent_of_the_handshake_era_receives_errors_for_malformed_errors(error: Any) -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        plug.send(id=1, method="initialize", params={"protocolVersion": "2025-06-18", "capabilities": {}})
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
        stage.editor.send(id=(await stage.editor.next())["id"], result={"result": found})
        assert (await plug.next())["id"] == 1
        plug.send(id=2, method="tools/list")
        stage.editor.send(id=(await stage.editor.next())["id"], error=error)
        assert (await plug.next())["error"]["code"] == -33002


async def handshake(stage: ConductorHarness, **capabilities: Any) -> McpProgram:
    """An agent of the handshake era at a server that uses envelopes."""
    await stage.greet()
    [server] = await stage.open(ACP)
    plug = await stage.plug(server)
    plug.send(id=1, method="initialize", params={"protocolVersion": "2025-06-18", "capabilities": {}})
    found = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "resultType": "complete"}
    stage.editor.send(id=(await stage.editor.next())["id"], result={"result": found})
    assert (await plug.next())["id"] == 1
    return plug


@pytest.mark.parametrize("value", [b"1e400", b'"\\ud83d"'])
async def test_what_no_translator_can_read_costs_only_the_call_that_has_it(value: bytes) -> None:
    """Valid JSON: some programs cut a string in the middle of a character."""
    async with ConductorHarness(profile=G4) as stage:
        plug = await handshake(stage, tools={})
        plug.raw(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","arguments":{"x":%s}}}' % value)
        refused = await plug.next()
        assert (refused["id"], refused["error"]["code"]) == (2, -32602)
        plug.raw(b'{"jsonrpc":"2.0","id":"\\ud83d","method":"tools/call","params":{"name":"x"}}')
        assert (await plug.next())["error"]["code"] == -32602
        plug.send(id=3, method="tools/call", params={"name": "x"})
        asked = await stage.editor.next()
        stage.editor.raw(b'{"id":%s,"result":{"result":{"content":[],"x":%s}}}' % (_json(asked["id"]), value))
        failed = await plug.next()
        assert (failed["id"], failed["error"]["code"]) == (3, -32603)
        await is_well(stage)


async def test_a_notice_that_no_translator_can_read_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async with ConductorHarness(profile=G4) as stage:
        plug = await handshake(stage, tools={"listChanged": True})
        listens = await stage.editor.next()
        assert listens["params"]["method"] == "subscriptions/listen"
        about = b'"serverId":"7d0","requestId":%s' % _json(listens["params"]["requestId"])
        for params in (b'{"x":"\\ud83d"}', b"{}"):
            method = b'"method":"notifications/tools/list_changed"'
            stage.editor.raw(b'{"method":"mcp/message","params":{%s,%s,"params":%s}}' % (about, method, params))
        assert (await plug.next())["method"] == "notifications/tools/list_changed"
        assert "can't be translated" in caplog.text


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_an_array_of_messages_is_taken_apart_in_envelopes_too(era: str) -> None:
    async with ConductorHarness(profile=G4) as stage:
        plug = await handshake(stage, tools={})
        meta = {"_meta": META} if era == "modern" else {}
        calls = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": id, **meta}} for id in "ab"]
        plug.raw(_json(calls))
        assert [(await stage.editor.next())["params"]["params"]["name"] for _ in calls] == ["a", "b"]


# -- messages of MCP over ACP ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"params": None}, {"params": [1]}, {"params": {}}, {"params": {"requestId": [1]}}]
)
async def test_a_cancellation_that_names_nothing_is_passed_on(params: Any) -> None:
    async with ConductorHarness() as stage:
        plug = await connected(stage)
        inner = {"connectionId": "c1", "method": "notifications/cancelled", **params}
        stage.editor.send(method="mcp/message", params=inner)
        assert (await plug.next())["method"] == "notifications/cancelled"
        await is_well(stage)


@pytest.mark.parametrize("request_id", [[1], {"a": 1}, None, 1.5])
@pytest.mark.parametrize("method", ["mcp/message", "$/cancel_request", "mcp/disconnect"])
async def test_ids_of_any_type_may_be_named(method: str, request_id: Any) -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        plug.send(id=1, method="tools/list", params={"_meta": META})
        asked = await stage.editor.next()
        params = {"serverId": "7d0", "requestId": request_id, "connectionId": request_id, "method": "x"}
        stage.editor.send(method=method, params=params)
        stage.agent.send(method=method, params=params)
        await is_well(stage)
        stage.editor.send(id=asked["id"], result={"result": {}})
        assert (await plug.next())["id"] == 1


async def test_a_request_in_the_envelope_of_a_notice_is_refused() -> None:
    async with ConductorHarness(profile=G4) as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        plug = await stage.plug(server)
        plug.send(id=1, method="tools/list", params={"_meta": META})
        asked = (await stage.editor.next())["params"]
        params = {"serverId": "7d0", "requestId": asked["requestId"], "method": "ping"}
        stage.editor.send(id=30, method="mcp/message", params=params)
        refused = await stage.editor.next()
        assert (refused["id"], refused["error"]["code"]) == (30, -32602)


# -- lines that are too long -------------------------------------------------------------------------------------------


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "MAX_LINE", 10_000)


LONG = "x" * 20_000


@pytest.mark.usefixtures("_short")
async def test_an_editors_answer_that_is_too_long_is_an_error_for_the_agent_and_not_for_the_editor() -> None:
    """Both start numbering at the same number."""
    async with ConductorHarness() as stage:
        await stage.greet()
        stage.editor.send(id=1, method="session/prompt", params={})
        assert (await stage.agent.next())["id"] == 1
        stage.agent.send(id=1, method="fs/read_text_file", params={})
        assert (await stage.editor.next())["id"] == 1
        stage.editor.send(id=1, result={"content": LONG})
        failed = await stage.agent.next()
        assert failed["id"] == 1 and "20" in failed["error"]["message"]
        stage.agent.send(id=1, result={"stopReason": "end_turn"})
        assert (await stage.editor.next())["result"] == {"stopReason": "end_turn"}


@pytest.mark.usefixtures("_short")
async def test_an_agents_request_that_is_too_long_is_refused_to_the_agent() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        stage.editor.send(id=1, method="session/prompt", params={})
        assert (await stage.agent.next())["id"] == 1
        stage.agent.send(method="fs/write_text_file", id=1, params={"content": LONG})
        refused = await stage.agent.next()
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)
        stage.agent.send(id=1, result={"text": LONG})
        failed = await stage.editor.next()
        assert (failed["id"], failed["error"]["code"]) == (1, -32603)
        stage.editor.send(id=2, method="session/prompt", params={"text": LONG})
        assert (await stage.editor.next())["error"]["code"] == -32600


@pytest.mark.usefixtures("_short")
async def test_a_message_of_an_mcp_client_that_is_too_long_is_refused_or_becomes_an_error_for_the_server() -> None:
    async with ConductorHarness() as stage:
        plug = await connected(stage)
        plug.send(id=1, method="tools/call", params={"text": LONG})
        refused = await plug.next()
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)
        stage.editor.send(id=9, method="mcp/message", params={"connectionId": "c1", "method": "roots/list"})
        plug.send(id=(await plug.next())["id"], result={"roots": LONG})
        failed = await stage.editor.next()
        assert (failed["id"], failed["error"]["code"]) == (9, -32603)


@pytest.mark.usefixtures("_short")
async def test_a_line_of_a_proxy_that_is_too_long_is_refused_or_an_error_for_the_waiting_side() -> None:
    async with ConductorHarness(proxies=1) as stage:
        [proxy] = stage.proxies
        stage.editor.send(id=0, method="initialize", params={})
        await proxy.next()
        proxy.send(id=5, method="proxy/successor", params={"method": "initialize", "params": {"text": LONG}})
        assert (await proxy.next())["error"]["code"] == -32600
        proxy.send(id=0, result={"text": LONG})
        failed = await stage.editor.next()
        assert (failed["id"], failed["error"]["code"]) == (0, -32603)


# -- programs that end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["agent", "proxy"])
async def test_the_editor_is_answered_whichever_part_of_a_chain_dies(who: str) -> None:
    async with ConductorHarness(proxies=2) as stage:
        stage.editor.send(id="a", method="initialize", params={})
        await stage.proxies[0].next()
        (stage.agent if who == "agent" else stage.proxies[1]).die(4)
        failed = await stage.editor.next()
        assert failed["id"] == "a" and "ended with code 4" in failed["error"]["message"]
        assert failed["error"]["message"].startswith("The agent" if who == "agent" else "A proxy")
        assert await stage.ended() == 4
        assert stage.editor.is_silent


class SlowRelayClient(NoRelay):
    """A relay client whose list of servers arrives late."""

    def __init__(self, *servers: str) -> None:
        super().__init__(*servers)
        self.is_asked, self.may_say = asyncio.Event(), asyncio.Event()

    async def servers(self) -> list[str]:
        self.is_asked.set()
        await self.may_say.wait()
        return self.offered


async def test_an_agent_that_dies_while_its_session_is_made_leaves_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = []
    start = local_port.LocalPort.start

    async def noted(self: local_port.LocalPort) -> None:
        await start(self)
        ports.append(self.port)

    monkeypatch.setattr(local_port.LocalPort, "start", noted)
    relay = SlowRelayClient("notes")
    async with ConductorHarness(relay) as stage:
        await stage.greet()
        stage.editor.send(id=1, method="session/new", params={"mcpServers": [ACP]})
        async with asyncio.timeout(WAIT_S):
            await relay.is_asked.wait()
        stage.editor.may_write.clear()
        stage.agent.die(3)
        assert await is_free(ports[0])
        relay.may_say.set()
        await until(lambda: len(ports) == 2)
        assert await is_free(ports[1])
        stage.editor.may_write.set()
        assert (await stage.editor.next())["id"] == 1
        assert await stage.ended() == 3


class MissingProgram(ScriptedComponent):
    async def start(self) -> None:
        raise child.ChildError("There is no such program.")


async def test_a_chain_that_can_not_be_started_is_tried_once_and_every_request_is_answered() -> None:
    async with ConductorHarness(proxies=1) as stage:
        stage.conductor._proxies[0] = MissingProgram()
        lines = [_json({"id": number, "method": "initialize", "params": {}}) for number in (1, 2)]
        stage.editor.raw(b"\n".join(lines))
        assert [(await stage.editor.next())["id"] for _ in lines] == [1, 2]
        assert await stage.ended() == 1
        assert stage.agent.starts == 1 and stage.agent.is_ended


# -- unknown programs at the port --------------------------------------------------------------------------------------


async def test_connections_that_send_nothing_block_no_other_connection() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)

        async def hold() -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", int(server["args"][-1]))
            held.append(writer)

        held: list[asyncio.StreamWriter] = []
        async with asyncio.timeout(WAIT_S):
            for _ in range(local_port.MAX_UNAUTHENTICATED + local_port.MAX_CONNECTIONS):
                await hold()
        for _ in range(3):
            await stage.plug(server)
            assert (await stage.editor.next())["method"] == "mcp/connect"
            await hold()
        for one in held:
            one.close()


async def test_a_program_that_connects_all_the_time_blocks_no_other_connection_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        port = int(server["args"][-1])
        is_over = threading.Event()

        def flood() -> None:
            held: list[socket.socket] = []
            while not is_over.is_set():
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", port), 1))
                if len(held) > 300:
                    held.pop(0).close()
            for one in held:
                one.close()

        flooding = asyncio.create_task(asyncio.to_thread(flood))
        try:
            for _ in range(20):
                await stage.plug(server)
                assert (await stage.editor.next())["method"] == "mcp/connect"
        finally:
            is_over.set()
            await flooding
        assert await (await stage.plug(server, nonce="guess")).line() == b""
        assert caplog.text.count("did not send the nonce") == 1


async def test_an_agent_has_as_many_connections_to_a_server_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_port, "MAX_CONNECTIONS", 2)
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.open(ACP)
        first, _ = [await stage.plug(server), await stage.plug(server)]
        for number in range(2):
            asked = await stage.editor.next()
            stage.editor.send(id=asked["id"], result={"connectionId": f"c{number}"})
        assert await (await stage.plug(server)).line() == b""
        first.close()
        assert (await stage.editor.next())["method"] == "mcp/disconnect"

        async def is_connected() -> bool:
            await stage.plug(server)
            return not stage.editor.is_silent

        await until(is_connected)  # the disconnect is sent before the slot is free
        assert (await stage.editor.next())["method"] == "mcp/connect"


async def test_a_port_that_can_not_be_opened_ends_the_server_and_not_the_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(self: Any) -> None:
        raise OSError(24, "Too many open files")

    async with ConductorHarness(NoRelay("notes")) as stage:
        await stage.greet()
        monkeypatch.setattr(local_port.LocalPort, "start", fail)
        assert await stage.open({"name": "mine", "command": "x", "args": [], "env": []}) == [
            {"name": "mine", "command": "x", "args": [], "env": []}
        ]
        assert "Too many open files" in caplog.text
        await is_well(stage)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


# -- ids ---------------------------------------------------------------------------------------------------------------

LONG_IDS = [_json("i" * 2_000_000), _json("i" * 1025), b"[1]", b"{}", b"[" * 900 + b"]" * 900]


@pytest.mark.parametrize("id", LONG_IDS, ids=["2 MB", "1,025", "array", "object", "deep"])
async def test_an_id_that_can_not_be_repeated_is_refused_to_its_sender_and_reaches_no_other(id: bytes) -> None:
    """The id would be repeated in tables, responses and frames."""
    async with ConductorHarness() as stage:
        plug = await connected(stage)
        line = b'{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":{}}' % id
        for side in (stage.editor, stage.agent):
            side.raw(line)
            while "error" not in (refused := await side.next()):  # the other side's cancellation passes unchanged
                assert refused["method"] == "$/cancel_request"
            assert (refused["id"], refused["error"]["code"]) == (None, -32600)
            side.raw(b'{"jsonrpc":"2.0","id":%s,"result":{}}' % id)
            side.raw(b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}' % id)
        for raw in (line, b"[" + line + b"]"):
            plug.raw(raw)
            refused = await plug.next()
            assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        plug.raw(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}' % id)
        await is_well(stage)
        plug.send(id="i" * 1024, method="ping", params={})
        asked = await stage.editor.next()
        stage.editor.send(id=asked["id"], result={})
        assert (await plug.next())["id"] == "i" * 1024
