"""Routing of lines between editor, proxies and agent. Pure: lines in, effects out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tabrelay.acp.message import AcpMessage
from tabrelay.acp.router import (
    AbandonSession,
    CloseSession,
    Effect,
    ForwardMcp,
    OpenSession,
    ResolveRequest,
    ResolveSession,
    Router,
    SendDown,
    SendUp,
)
from tests.support.acp_harness import ACP, URL, ConductorHarness

STDIO = '{"name":"files","command":"/bin/x","args":[],"env":[],"odd":1.50E+2,"_meta":{"\\u0061":[ ]}}'


class Rules:
    """A router whose own connections and requests the test defines."""

    def __init__(self) -> None:
        self.ours: set[Any] = set()
        self.asked: set[Any] = set()
        owns, asked = self._owns, self._asked
        self.router = Router(owns, owns, asked, asked)

    def _owns(self, message: AcpMessage) -> bool:
        return message.params.get("connectionId") in self.ours or message.params.get("serverId") in self.ours

    def _asked(self, message: AcpMessage) -> bool:
        return message.id in self.asked

    def above(self, **message: Any) -> list[Effect]:
        return self.router.from_editor(line(**message))

    def below(self, **message: Any) -> list[Effect]:
        return self.router.from_agent(line(**message))


def line(**message: Any) -> AcpMessage:
    return AcpMessage.read(json.dumps({"jsonrpc": "2.0", **message}).encode())


def shown(effects: list[Effect]) -> list[Any]:
    return [json.loads(effect.raw) if isinstance(effect, SendUp | SendDown) else type(effect) for effect in effects]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","_meta":{"a":1.0}},"odd":[ 1 ]}',
        b'{"id":12345678901234567890123,"method":"_vendor/thing"}',
        b'{"method":"session/cancel","params":{"sessionId":"s"}}',
        b'{"jsonrpc":"2.0","id":"x","result":{"outcome":{"outcome":"cancelled"}}}',
        b'{"method":"$/cancel_request","params":{"requestId":3}}',
        b"not json",
        b"[]",
        b"\xff\xfe",
    ],
)
def test_lines_pass_unchanged_in_both_directions(raw: bytes) -> None:
    rules = Rules()
    assert rules.router.from_editor(AcpMessage.read(raw)) == [SendDown(raw)]
    assert rules.router.from_agent(AcpMessage.read(raw)) == [SendUp(raw)]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"protocolVersion": 1},
            {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": True}}},
        ),
        (
            {"protocolVersion": 1, "agentCapabilities": {"loadSession": True, "mcpCapabilities": {"http": True}}},
            {
                "protocolVersion": 1,
                "agentCapabilities": {"loadSession": True, "mcpCapabilities": {"http": True, "acp": True}},
            },
        ),
        (
            {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": False}}},
            {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": True}}},
        ),
        (
            {"protocolVersion": 1, "agentCapabilities": None},
            {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": True}}},
        ),
        (
            {"protocolVersion": 2, "capabilities": {"session": {"mcp": {"stdio": {}}}}},
            {"protocolVersion": 2, "capabilities": {"session": {"mcp": {"stdio": {}, "acp": {}}}}},
        ),
    ],
)
def test_the_editor_always_gets_the_capability_for_servers_over_acp(result: Any, expected: Any) -> None:
    rules = Rules()
    assert shown(rules.above(id=0, method="initialize", params={})) == [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
    ]
    [said] = shown(rules.below(id=0, result=result))
    assert said["result"] == expected
    assert not rules.router.is_native


@pytest.mark.parametrize(
    "result",
    [
        {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"acp": True, "http": True}}},
        {"protocolVersion": 2, "capabilities": {"session": {"mcp": {"acp": {}, "http": {}}}}},
    ],
)
def test_an_agent_that_takes_servers_over_acp_is_known_and_its_answer_passes(result: Any) -> None:
    rules = Rules()
    rules.above(id=0, method="initialize")
    message = line(id=0, result=result)
    assert rules.router.from_agent(message) == [SendUp(message.raw)]
    assert rules.router.is_native and rules.router.takes_http


@pytest.mark.parametrize(
    ("result", "name"),
    [
        ({"protocolVersion": 1, "agentInfo": {"name": "OpenCode", "version": "1"}}, "OpenCode"),
        ({"protocolVersion": 2, "info": {"name": "pi", "version": "1"}}, "pi"),
        ({"protocolVersion": 1, "agentInfo": None}, ""),
        ({"protocolVersion": 1, "agentInfo": {"name": 5}}, ""),
    ],
)
def test_an_agent_is_called_what_it_calls_itself(result: Any, name: str) -> None:
    rules = Rules()
    rules.above(id=0, method="initialize")
    rules.below(id=0, result=result)
    assert rules.router.agent == name


def test_only_the_answer_to_initialize_is_changed() -> None:
    rules = Rules()
    rules.above(id=0, method="initialize")
    error = line(id=0, error={"code": -32000, "message": "no"})
    assert rules.router.from_agent(error) == [SendUp(error.raw)]
    later = line(id=0, result={"protocolVersion": 1})
    assert rules.router.from_agent(later) == [SendUp(later.raw)]


@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume", "session/fork"])
def test_servers_over_acp_are_found_in_every_request_that_opens_a_session(method: str) -> None:
    rules = Rules()
    raw = (
        f'{{"id":1,"method":"{method}","params":{{"sessionId":"old","mcpServers":'
        f'[{STDIO}, {json.dumps(URL)} ,{json.dumps(ACP)}],"cwd":"/","x":1.0}}}}'
    ).encode()
    [effect] = rules.router.from_editor(AcpMessage.read(raw))
    assert isinstance(effect, OpenSession)
    found = effect.opening.declared
    assert {place: (one.style, one.id, one.name) for place, one in found.items()} == {
        1: ("url", "acp:7d0", "tab"),
        2: ("acp", "7d0", "tab"),
    }
    rewritten = effect.opening.rewritten({1: '{"one":1}', 2: '{"two":2}'}, ['{"three":3}']).decode()
    assert f'"mcpServers":[{STDIO},{{"one":1}},{{"two":2}},{{"three":3}}],"cwd":"/","x":1.0' in rewritten
    assert effect.opening.rewritten({}, []) == raw, "with nothing to change, nothing changes"
    assert effect.opening.session == (None if method == "session/fork" else "old")


def test_servers_are_added_where_none_were_declared() -> None:
    [effect] = Rules().above(id=1, method="session/resume", params={"sessionId": "s"})
    assert isinstance(effect, OpenSession)
    assert json.loads(effect.opening.rewritten({}, ["{}"]))["params"] == {"sessionId": "s", "mcpServers": [{}]}


@pytest.mark.parametrize("server", [URL | {"headers": [{"name": "a", "value": "b"}]}, {"type": "acp", "name": "tab"}])
def test_a_contradictory_declaration_is_refused(server: Any) -> None:
    rules = Rules()
    [refused] = shown(rules.above(id=1, method="session/new", params={"mcpServers": [server]}))
    assert (refused["id"], refused["error"]["code"]) == (1, -32602)
    assert '"tab"' in refused["error"]["message"]
    assert rules.router.agent_gone("gone") == [], "it was answered already"


def test_the_session_is_known_before_the_editor_receives_it() -> None:
    rules = Rules()
    [effect] = rules.above(id=1, method="session/new", params={"mcpServers": []})
    settled, up = rules.below(id=1, result={"sessionId": "s1"})
    assert (
        isinstance(effect, OpenSession) and settled == ResolveSession(effect.opening, "s1") and isinstance(up, SendUp)
    )


def test_a_loaded_session_has_the_id_of_its_request() -> None:
    rules = Rules()
    rules.above(id=1, method="session/load", params={"sessionId": "s9", "mcpServers": []})
    settled, _ = rules.below(id=1, result=None)
    assert isinstance(settled, ResolveSession) and settled.session == "s9"


def test_a_fork_has_the_id_that_the_agent_gives_it() -> None:
    rules = Rules()
    rules.above(id=1, method="session/fork", params={"sessionId": "old", "mcpServers": []})
    settled, _ = rules.below(id=1, result={"sessionId": "new"})
    assert isinstance(settled, ResolveSession) and settled.session == "new"


def test_a_refused_session_is_abandoned() -> None:
    rules = Rules()
    rules.above(id=1, method="session/new", params={"mcpServers": []})
    abandoned, up = rules.below(id=1, error={"code": -32000, "message": "auth"})
    assert isinstance(abandoned, AbandonSession) and isinstance(up, SendUp)


def test_a_session_is_closed_when_the_agent_agrees() -> None:
    rules = Rules()
    rules.above(id=1, method="session/close", params={"sessionId": "s1"})
    rules.above(id=2, method="session/close", params={"sessionId": "s2"})
    assert rules.below(id=1, result={})[0] == CloseSession("s1")
    assert [type(effect) for effect in rules.below(id=2, error={"code": 1, "message": "no"})] == [SendUp]


@pytest.mark.parametrize("method", ["session/new", "session/prompt", "initialize", "session/close"])
def test_an_id_that_still_opens_a_session_is_not_taken_for_another_request(method: str) -> None:
    rules = Rules()
    [first] = rules.above(id=1, method="session/new", params={"mcpServers": []})
    [refused] = shown(rules.above(id=1, method=method, params={"mcpServers": [], "sessionId": "x"}))
    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    settled, _ = rules.below(id=1, result={"sessionId": "s1"})
    assert isinstance(first, OpenSession) and settled == ResolveSession(first.opening, "s1")
    assert [type(effect) for effect in rules.above(id=1, method="session/new", params={})] == [OpenSession]


def test_editor_and_agent_may_use_the_same_ids() -> None:
    rules = Rules()
    rules.above(id=1, method="session/new", params={"mcpServers": []})
    asked = line(id=1, method="fs/read_text_file", params={})
    assert rules.router.from_agent(asked) == [SendUp(asked.raw)]
    answer = line(id=1, result={"content": "x"})
    assert rules.router.from_editor(answer) == [SendDown(answer.raw)]
    assert [type(one) for one in rules.below(id=1, result={"sessionId": "s"})] == [ResolveSession, SendUp]


def test_ids_of_different_types_are_different_ids() -> None:
    rules = Rules()
    rules.above(id=1, method="session/new", params={"mcpServers": []})
    assert [type(effect) for effect in rules.below(id="1", result={"sessionId": "x"})] == [SendUp]
    assert [type(effect) for effect in rules.below(id=1, result={"sessionId": "x"})] == [ResolveSession, SendUp]


def test_answers_to_the_conductor_go_to_no_other_program() -> None:
    rules = Rules()
    rules.asked.add("relay:1")
    assert [type(effect) for effect in rules.above(id="relay:1", result={})] == [ResolveRequest]
    assert [type(effect) for effect in rules.below(id="relay:1", result={})] == [ResolveRequest]
    assert [type(effect) for effect in rules.below(id="relay:2", result={})] == [SendUp]


@pytest.mark.parametrize("method", ["mcp/message", "_mcp/message", "_mcp/request", "mcp/connect", "mcp/disconnect"])
def test_mcp_messages_of_others_pass_a_native_agent_untouched(method: str) -> None:
    rules = Rules()
    rules.router.is_native = True
    rules.ours.add("ours")
    message = line(id=5, method=method, params={"connectionId": "c", "serverId": "s"})
    assert rules.router.from_editor(message) == [SendDown(message.raw)]
    assert rules.router.from_agent(message) == [SendUp(message.raw)]
    mine = line(id=5, method=method, params={"connectionId": "ours"})
    assert rules.router.from_editor(mine) == [ForwardMcp(mine, True)]
    assert rules.router.from_agent(mine) == [ForwardMcp(mine, False)]


def test_every_waiting_request_gets_an_error_when_the_agent_is_gone() -> None:
    rules = Rules()
    rules.above(id="p", method="session/prompt", params={})
    rules.above(id=2, method="session/new", params={"mcpServers": []})
    rules.above(id=3, method="session/list", params={})
    rules.below(id=3, result={})
    effects = rules.router.agent_gone("The agent is gone.")
    assert isinstance(effects[0], AbandonSession)
    assert [message["id"] for message in shown(effects[1:])] == ["p", 2]
    assert rules.router.agent_gone("again") == []


async def test_updates_and_answers_of_an_agent_arrive_in_the_order_in_which_it_sent_them() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        await stage.open(ACP)
        stage.editor.send(id=5, method="session/prompt", params={"sessionId": "s1"})
        assert (await stage.agent.next())["id"] == 5
        sent = []
        for number in range(500):
            stage.agent.send(method="session/update", params={"n": number})
            sent.append(number)
        stage.agent.send(id=5, result={"stopReason": "end_turn"})
        stage.agent.send(method="session/update", params={"n": -1})
        got = [await stage.editor.next() for _ in range(502)]
        assert [one.get("params", {}).get("n", "answer") for one in got] == [*sent, "answer", -1]


async def test_the_session_is_settled_while_later_lines_wait_their_turn() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        [server] = await stage.ask_for_session(ACP)
        stage.agent.send(id=1, result={"sessionId": "s1"})
        stage.agent.send(method="session/update", params={"sessionId": "s1"})
        assert (await stage.editor.next())["id"] == 1
        assert (await stage.editor.next())["method"] == "session/update"
        await stage.plug(server)
        assert (await stage.editor.next())["params"]["_meta"] == {"tabrelay/sessionId": "s1"}


async def test_a_slow_agent_makes_the_editor_wait_and_not_the_conductor_grow() -> None:
    async with ConductorHarness() as stage:
        await stage.greet()
        stage.agent.reads.clear()
        for number in range(50):
            stage.editor.send(id=number, method="session/list")
        stage.agent.send(method="session/update", params={})
        assert (await stage.editor.next())["method"] == "session/update", "the other direction must go on"
        assert stage.editor.chunks_in.qsize() >= 48, "more was read than could be passed on"
        stage.agent.reads.set()
        assert [(await stage.agent.next())["id"] for _ in range(50)] == list(range(50))


async def test_nothing_is_started_before_the_editors_first_message() -> None:
    async with ConductorHarness(proxies=1) as stage:
        assert not stage.agent.is_started and not stage.proxies[0].is_started
        stage.editor.send(id=0, method="initialize", params={})
        assert (await stage.proxies[0].next())["method"] == "proxy/initialize"
        assert stage.agent.is_started
