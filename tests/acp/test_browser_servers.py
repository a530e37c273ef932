"""Browser servers for an agent: the real relay, the browser's own Python, and every way that agents take servers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tabrelay.acp import conductor, relay_client
from tabrelay.acp.relay_client import RelayClient
from tabrelay.admission.token_store import MAX_NAMED
from tabrelay.admission.tokens import Tokens
from tabrelay.calls.principal import CALL
from tabrelay.cli.main import main
from tabrelay.cli.status import text
from tabrelay.faces.mcp.acp_sessions import MAX_CALLED, MAX_CONDUCTORS, SILENT_S, AcpSessions
from tabserver import Context
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.acp import WAIT_S, NoRelay, Stage, is_free
from tests.support.cpython_worker import CPythonWorker
from tests.support.node import MODULES
from tests.support.relay import RunningRelay, modern
from tests.support.waiting import until

META = modern("x")["json"]["params"]["_meta"]
LEGACY = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}


class Tools(Toolbox):
    def __init__(self) -> None:
        super().__init__()
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()

        @tool(toolbox=self)
        def whose(context: Context) -> dict[str, Any]:
            """Which session calls?"""
            return {} if context.acp is None else context.acp.to_dict()

        @tool(toolbox=self)
        async def hang(context: Context) -> str:
            """Run until cancelled."""
            context.progress(1)
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"


class Scene:
    """A relay with a browser behind it, and a conductor in front."""

    def __init__(self, relay: RunningRelay, tools: Tools, stage: Stage) -> None:
        self.relay, self.tools, self.stage = relay, tools, stage

    async def sessions(self, is_so: Any = bool) -> Any:
        """What the relay knows of sessions, once it is so."""
        async with asyncio.timeout(WAIT_S):
            while not is_so(rows := (await self.relay.http.get("/-/status")).json()["acp"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            return rows


@asynccontextmanager
async def scene(home: Path, *, names: tuple[str, ...] = (), **options: Any) -> AsyncIterator[Scene]:
    tools = Tools()
    async with RunningRelay(home) as relay, CPythonWorker(relay.url, relay.token, "notes", tools):
        await relay.has_read("notes")
        async with Stage(RelayClient(home, lambda: relay.url, names), **options) as stage:
            yield Scene(relay, tools, stage)


def check_schema(value: Any, version: str, name: str) -> None:
    """Against the protocol's own schema, with what is not stable in it."""
    path = MODULES / "@agentclientprotocol" / "sdk" / "schema" / version / "schema.unstable.json"
    schema = {**json.loads(path.read_text()), "$ref": f"#/$defs/{name}"}
    del schema["anyOf"]
    Draft202012Validator(schema).validate(value)


def whose(answer: Any) -> Any:
    return answer["result"]["structuredContent"]


async def test_every_connected_browser_becomes_a_server_of_the_session(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        stage, relay = set.stage, set.relay
        await stage.greet()
        async with CPythonWorker(relay.url, relay.token, "more", Tools()):
            await relay.has_read("more")
            mine = {"name": "more", "command": "/bin/mine", "args": [], "env": []}
            first = await stage.open(mine, session="s1")
            second = await stage.open(session="s2", id=2)
        assert [one["name"] for one in first] == ["more", "more-browser", "notes"]
        assert first[0] == mine
        assert [one["name"] for one in second] == ["more", "notes"]
        ids = [row["server_id"] for row in await set.sessions(lambda rows: len(rows) == 4)]
        assert len({*ids}) == 4, "each session has ids of its own"
        async with asyncio.timeout(WAIT_S):
            while "more" in [one["name"] for one in await stage.open(session="s3", id=3)]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # until the relay has noticed that the browser is gone


async def test_servers_that_are_named_are_offered_also_without_a_browser(tmp_path: Path) -> None:
    async with scene(tmp_path, names=("away",)) as set:
        await set.stage.greet()
        assert [one["name"] for one in await set.stage.open()] == ["away"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_agent_calls_a_browser_tool_and_the_tool_knows_the_session(tmp_path: Path, era: str) -> None:
    meta = {"_meta": META} if era == "modern" else {}
    async with scene(tmp_path) as set:
        stage = set.stage
        await stage.greet()
        [server] = await stage.ask_for_session()
        plug = await stage.plug(server)
        if era == "legacy":
            plug.send(id=0, method="initialize", params=LEGACY)
            assert (await plug.next())["result"]["serverInfo"]["name"]
            plug.send(method="notifications/initialized")
        # Before the agent has said which session it is: agents do that.
        plug.send(id=1, method="tools/call", params={"name": "whose", "arguments": {}, **meta})
        early = whose(await plug.until(lambda one: one.get("id") == 1))
        assert early["session"] is None
        stage.agent.send(id=1, result={"sessionId": "s1"})
        assert (await stage.editor.next())["id"] == 1
        forged = {**meta.get("_meta", {}), "tabrelay/acp": {"session": "forged", "server": "x"}}
        plug.send(id=2, method="tools/call", params={"name": "whose", "arguments": {}, "_meta": forged})
        late = whose(await plug.until(lambda one: one.get("id") == 2))
        [row] = await set.sessions(lambda rows: rows and rows[0]["connections"])
        assert late == {
            "session": "s1",
            "server": row["server_id"],
            "connection": row["connections"][0],
            "agent": "played",
        }
        assert (row["session"], row["server"], row["how"], row["is_used"]) == ("s1", "notes", "stdio", True)
        shown = text((await set.relay.http.get("/-/status")).json())
        assert all(word in shown for word in ("SESSION", "s1", row["server_id"], row["connections"][0]))
        plug.close()
        [row] = await set.sessions(lambda rows: not rows[0]["connections"])
        assert row["is_used"]


async def test_a_page_that_is_closed_and_opened_again_is_the_same_server_of_a_session(tmp_path: Path) -> None:
    call = {"name": "whose", "arguments": {}, "_meta": META}
    async with (
        RunningRelay(tmp_path, away_wait_s=0.1, grace_s=0.1) as relay,
        Stage(RelayClient(tmp_path, lambda: relay.url)) as stage,
    ):
        await stage.greet()
        async with CPythonWorker(relay.url, relay.token, "notes", Tools()):
            await relay.has_read("notes")
            [server] = await stage.open()
            plug = await stage.plug(server)
            plug.send(id=1, method="tools/call", params=call)
            assert whose(await plug.next())["session"] == "s1"
        async with asyncio.timeout(WAIT_S):
            refused: Any = {}
            while "error" not in refused:  # the relay may not have noticed yet
                plug.send(id=2, method="tools/call", params=call)
                refused = await plug.until(lambda one: one.get("id") == 2)
        assert refused["error"]["data"]["reason"] in ("server_offline", "browser_gone")
        async with CPythonWorker(relay.url, relay.token, "notes", Tools()):
            await relay.has_read("notes")
            plug.send(id=3, method="tools/call", params=call)
            assert whose(await plug.until(lambda one: one.get("id") == 3))["session"] == "s1"


async def test_a_relay_that_is_restarted_during_a_session_receives_its_report_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "REPORT_S", 0.1)
    call = {"name": "whose", "arguments": {}, "_meta": META}
    url = ""
    async with Stage(RelayClient(tmp_path, lambda: url)) as stage:
        await stage.greet()
        for number in range(2):
            async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
                url = relay.url
                await relay.has_read("notes")
                if number == 0:
                    [server] = await stage.open()
                    plug = await stage.plug(server)
                seen = Scene(relay, Tools(), stage)
                assert [row["session"] for row in await seen.sessions()] == ["s1"]
                plug.send(id=number, method="tools/call", params=call)
                assert whose(await plug.next())["session"] == "s1"


async def test_a_token_that_is_replaced_during_a_session_is_read_anew(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        await set.stage.greet()
        [server] = await set.stage.open()
        plug = await set.stage.plug(server)
        old = set.relay.token
        assert main(["token", "revoke", "default", "--home", str(tmp_path)]) == 0
        async with httpx2.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {old}"}) as http:
            async with asyncio.timeout(WAIT_S):
                while (await http.get(f"{set.relay.url}/-/status")).status_code != 401:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        plug.send(id=1, method="tools/list", params={"_meta": META})
        answer = await plug.next()
        # The browser's token is gone too, but the agent's call got in: the list is kept for it.
        assert answer["id"] == 1 and "tools" in answer["result"]


async def test_only_the_conductor_can_say_whose_call_it_is(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        forged = {"tabrelay/acp": {"session": "forged", "server": "x"}}
        answer = await set.relay.call("notes", "whose", _meta=forged)
        assert whose(answer.json()) == {}


async def test_the_status_calls_an_agent_what_it_calls_itself(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        set.stage.editor.send(id=0, method="initialize", params={})
        await set.stage.agent.next()
        set.stage.agent.send(id=0, result={"protocolVersion": 1, "agentInfo": {"name": "opencode", "version": "1"}})
        await set.stage.editor.next()
        await set.stage.open()
        assert [row["agent"] for row in await set.sessions()] == ["opencode"]


async def test_the_status_says_so_when_an_agent_ignores_its_servers(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        await set.stage.greet()
        await set.stage.open()
        [row] = await set.sessions()
        assert not row["is_used"]
        assert "never came" in text((await set.relay.http.get("/-/status")).json())
        set.stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        await set.stage.agent.next()
        set.stage.agent.send(id=9, result={})
        await set.stage.editor.next()
        assert await set.sessions(lambda rows: rows == []) == []


class Slow(NoRelay):
    """A relay that takes its time with one report, when it is told to."""

    def __init__(self, *servers: str) -> None:
        super().__init__(*servers)
        self.is_slow = False
        self.is_asked, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def report(self, agent: str, sessions: list[dict[str, Any]]) -> None:
        if self.is_slow:
            self.is_slow = False
            self.is_asked.set()
            await self.may_go_on.wait()
        await super().report(agent, sessions)


async def test_the_last_report_to_the_relay_is_the_current_state() -> None:
    relay = Slow("notes")
    async with Stage(relay) as stage, asyncio.timeout(WAIT_S):
        await stage.greet()
        [server] = await stage.open()
        relay.is_slow = True
        await stage.plug(server)
        await relay.is_asked.wait()
        await stage.ask_for_session(id=2)
        stage.agent.send(id=2, result={"sessionId": "s2"})
        for _ in range(100):  # whatever may happen meanwhile, happens
            await asyncio.sleep(0)
        relay.may_go_on.set()
        assert (await stage.editor.next())["id"] == 2
        await until(lambda: len(relay.reports) == 3)
        assert [row["session"] for row in relay.reports[-1]] == ["s1", "s2"]


async def test_a_conductor_that_ends_is_forgotten_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        await set.stage.greet()
        [server] = await set.stage.open()
        assert await set.sessions()
        set.stage.editor.leave()
        assert await set.stage.ended() == 0
        assert await set.sessions(lambda rows: rows == []) == []
        assert await is_free(int(server["args"][-1]))


async def test_over_http_an_agent_gets_the_relays_address_and_a_token_for_that_server(tmp_path: Path) -> None:
    async with scene(tmp_path, wants_http=True) as set:
        stage, relay = set.stage, set.relay
        await stage.greet(http=True)
        [server] = await stage.open()
        assert (server["type"], server["url"]) == ("http", f"{relay.url}/notes")
        headers = {one["name"]: one["value"] for one in server["headers"]}
        assert relay.token not in json.dumps(server)
        call = modern("tools/call", {"name": "whose", "arguments": {}})
        call["headers"] |= headers | {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
            [row] = await set.sessions()
            assert not row["is_used"]
            assert whose((await http.post(server["url"], **call)).json()) == {
                "session": "s1",
                "server": row["server_id"],
                "connection": None,
                "agent": "played",
            }
            status = (await relay.http.get("/-/status")).json()
            assert status["acp"] == [{**row, "is_used": True}] and "over HTTP" in text(status)
            assert (await http.post(f"{relay.url}/other", **call)).status_code == 403
            stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
            await stage.agent.next()
            stage.agent.send(id=9, result={})
            await stage.editor.next()
            async with asyncio.timeout(WAIT_S):
                while (await http.post(server["url"], **call)).status_code != 401:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


def fill(home: Path, life_s: float) -> None:
    """As many tokens as there may be, made for agents."""
    Tokens(home).issue_named("acp-0", (CALL,), ("notes",), life_s)
    file = home / "tokens.json"
    [row] = json.loads(file.read_text())["grants"]
    rows = [{**row, "sha256": f"{number:064x}", "name": f"acp-{number}"} for number in range(MAX_NAMED)]
    file.write_text(json.dumps({"grants": rows}))


@pytest.mark.parametrize("problem", ["full", "locked", "no folder"])
async def test_an_agent_for_which_no_token_can_be_made_gets_a_program(tmp_path: Path, problem: str) -> None:
    home = tmp_path / "home"
    if problem == "full":
        fill(home, 3600)
    elif problem == "locked":
        (home / ".lock").mkdir(parents=True)
    else:
        home.touch()
    async with Stage(NoRelay("notes", home=home), wants_http=True) as stage:
        await stage.greet(http=True)
        [server] = await stage.open()
        assert server["args"][0] == "mcp"


async def test_tokens_of_agents_that_are_over_leave_their_places_to_others(tmp_path: Path) -> None:
    fill(tmp_path, -1)
    async with Stage(NoRelay("notes", home=tmp_path), wants_http=True) as stage:
        await stage.greet(http=True)
        [server] = await stage.open()
        assert server["type"] == "http"
        assert len(Tokens(tmp_path).issued()) == 1


async def test_a_token_that_can_not_be_revoked_does_not_keep_its_session_open(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Stage(NoRelay("notes", home=home), wants_http=True) as stage:
        await stage.greet(http=True)
        [server] = await stage.open()
        assert server["type"] == "http"
        home.rename(tmp_path / "elsewhere")
        home.touch()
        stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        await stage.agent.next()
        stage.agent.send(id=9, result={})
        assert (await stage.editor.next())["id"] == 9
        await stage.open(session="s2", id=10)


async def test_an_agent_that_can_not_do_http_gets_a_program_all_the_same(tmp_path: Path) -> None:
    async with scene(tmp_path, wants_http=True) as set:
        await set.stage.greet()
        [server] = await set.stage.open()
        assert server["args"][0] == "mcp"


@pytest.mark.parametrize(
    ("can", "kind"),
    [
        ({"stdio": {}, "http": {}}, "stdio"),
        ({"stdio": {}}, "stdio"),
        ({"http": {}}, "http"),
        ({"stdio": {}, "http": {}, "acp": {}}, "acp"),
        ({"stdio": None}, None),
        ({}, None),
    ],
)
async def test_an_agent_of_acp_2_gets_the_kind_of_server_that_it_says_it_takes(
    tmp_path: Path, can: Any, kind: str | None
) -> None:
    async with scene(tmp_path) as set:
        stage = set.stage
        greeted = await stage.greet_with({"session": {"mcp": can}}, version=2)
        assert greeted["result"]["capabilities"]["session"]["mcp"] == {**can, "acp": {}}
        theirs = {"type": "acp", "name": "theirs", "serverId": "t"}
        stage.editor.send(id=1, method="session/new", params={"cwd": "/", "mcpServers": [theirs]})
        asked = (await stage.agent.next())["params"]
        check_schema(asked, "v2", "NewSessionRequest")
        # What the agent can not use at all, it is the agent's to say something to.
        assert (asked["mcpServers"][0] == theirs) == (kind != "stdio")
        assert [one["type"] for one in asked["mcpServers"][1:]] == ([] if kind is None else [kind])
        stage.agent.send(id=1, result={"sessionId": "s1"})
        assert (await stage.editor.next())["id"] == 1


@pytest.mark.parametrize("can", [{}, {"http": True}, {"acp": True}])
async def test_what_an_agent_of_acp_1_gets_is_what_the_protocol_has(tmp_path: Path, can: Any) -> None:
    async with scene(tmp_path, wants_http=True) as set:
        await set.stage.greet(**can)
        theirs = {"type": "acp", "name": "theirs", "serverId": "t"}
        check_schema({"cwd": "/", "mcpServers": await set.stage.open(theirs)}, "v1", "NewSessionRequest")


# -- agents that take MCP over ACP themselves --------------------------------------------------------------------------


async def native(set: Scene, *servers: Any) -> Any:
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
        assert (await set.stage.editor.next())["id"] == 6, "it is nobody's here, so it is the editor's"


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
    async with Stage(RelayClient(tmp_path, lambda: "http://127.0.0.1:1", ("notes",))) as stage:
        await stage.greet(acp=True)
        [server] = await stage.open()
        inner = {"serverId": server["serverId"], "requestId": "1", "method": "tools/list", "params": {"_meta": META}}
        stage.agent.send(id=1, method="mcp/message", params=inner)
        error = (await stage.agent.next())["error"]
        assert error["code"] == -33002 and "127.0.0.1:1" in error["message"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_without_a_relay_the_agent_works_as_ever_and_the_user_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Stage(RelayClient(Path("/nowhere"), lambda: "http://127.0.0.1:1")) as stage:
        await stage.greet()
        assert warnings(caplog) == [], "an editor that only looks whether the agent is there needs no relay"
        assert await stage.open() == []
        assert await stage.open(session="s2", id=2) == []
    [said] = warnings(caplog)
    assert said.startswith("No relay answers at http://127.0.0.1:1") and "tabrelay demo" in said


async def test_a_relay_that_is_started_later_serves_the_sessions_that_come_after(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1"
    async with Stage(RelayClient(tmp_path, lambda: url)) as stage:
        await stage.greet()
        assert await stage.open() == []
        async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
            url = relay.url
            await relay.has_read("notes")
            [server] = await stage.open(session="s2", id=2)
            plug = await stage.plug(server)
            plug.send(id=1, method="tools/call", params={"name": "whose", "arguments": {}, "_meta": META})
            assert whose(await plug.next())["session"] == "s2"


async def test_a_relay_that_does_not_know_the_token_is_said_to_refuse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path / "one") as set, Stage(RelayClient(tmp_path / "two", lambda: set.relay.url)) as stage:
        Tokens(tmp_path / "two").master()
        await stage.greet()
        assert await stage.open() == []
        assert "does not know this token" in caplog.text and "--home" in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        "5",
        "[]",
        "no JSON",
        "{}",
        '{"servers": 5}',
        '{"servers": [1, null, {}, {"kind": "browser", "state": "online"}]}',
    ],
)
async def test_another_program_at_the_relays_port_does_no_harm(tmp_path: Path, said: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said.encode()))
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, Stage(RelayClient(tmp_path, lambda: f"http://127.0.0.1:{port}")) as stage:
        await stage.greet()
        assert await stage.open() == []


async def test_a_program_at_the_relays_port_that_sends_nothing_delays_a_session_only_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_client, "REQUEST_S", 0.2)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        with suppress(ConnectionError):
            while True:  # never so slow that a wait for the next byte would end
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

    other = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, Stage(RelayClient(tmp_path, lambda: f"http://127.0.0.1:{port}")) as stage:
        await stage.greet()
        assert await stage.open() == []


# -- what the relay keeps ----------------------------------------------------------------------------------------------


def report(id: str) -> Any:
    return {"agent": "a", "sessions": [{"session": "s", "servers": [{"server": "notes", "server_id": id}]}]}


def test_a_conductor_that_says_nothing_for_a_while_is_forgotten() -> None:
    now = 0.0
    editors = AcpSessions(lambda: now)
    editors.report("one", report("x"))
    now += SILENT_S
    assert [row["server_id"] for row in editors.describe(lambda name: True)] == ["x"]
    now += 1
    assert editors.describe(lambda name: True) == []


def test_the_relay_keeps_no_more_conductors_than_it_can() -> None:
    editors = AcpSessions(lambda: 0.0)
    for number in range(MAX_CONDUCTORS):
        editors.report(str(number), report(str(number)))
    with pytest.raises(ValueError):
        editors.report("one more", report("x"))
    editors.report("0", report("again"))


def test_the_relay_remembers_no_more_of_those_who_called_than_it_can() -> None:
    editors = AcpSessions(lambda: 0.0)
    for number in range(MAX_CALLED + 1):
        editors.add_acp_meta(f"id{number} c", {"id": 1, "method": "x", "params": {}})
    editors.add_acp_meta("x" * 5000, {"id": 1, "method": "x", "params": {}})
    for id, is_used in (("id0", False), ("id1", True), (f"id{MAX_CALLED}", True), ("x" * 256, False)):
        editors.report("one", report(id))
        assert [row["is_used"] for row in editors.describe(lambda name: True)] == [is_used], id


def test_who_may_not_see_a_server_does_not_see_its_sessions() -> None:
    editors = AcpSessions(lambda: 0.0)
    editors.report("one", report("x"))
    assert editors.describe(lambda name: name != "notes") == []


@pytest.mark.parametrize("told", [None, [], {}, {"sessions": 1}, {"sessions": [{"servers": [{}] * 3}, 5, None]}])
async def test_a_report_that_is_none_does_no_harm(tmp_path: Path, told: Any) -> None:
    async with RunningRelay(tmp_path) as relay:
        answer = await relay.http.put("/-/acp/x", json=told)
        assert answer.status_code in (200, 400)
        assert (await relay.http.get("/-/status")).json()["acp"] == []
        stranger = await relay.http.put("/-/acp/x", json=told, headers={"Authorization": "Bearer no"})
        assert stranger.status_code == 401
