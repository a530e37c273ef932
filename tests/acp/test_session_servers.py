"""Servers of an ACP session: browsers as programs or over HTTP, with the real relay and the worker's Python."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.acp import conductor
from tabrelay.acp.relay_client import RelayClient
from tabrelay.admission.token_store import MAX_NAMED
from tabrelay.admission.tokens import Tokens
from tabrelay.calls.principal import CALL
from tabrelay.cli.main import main
from tabrelay.cli.status import text
from tests.support.acp_harness import WAIT_S, ConductorHarness, NoRelay, is_free
from tests.support.acp_relay import LEGACY, META, ConductorWithRelay, Tools, check_schema, scene, whose
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay, modern
from tests.support.waiting import until


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

        async def is_removed() -> bool:
            return "more" not in [one["name"] for one in await stage.open(session="s3", id=3)]

        await until(is_removed)  # the relay detects that the browser is gone


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
        # Before the agent has sent the session's id: real agents do that.
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
        ConductorHarness(RelayClient(tmp_path, lambda: relay.url)) as stage,
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
    async with ConductorHarness(RelayClient(tmp_path, lambda: url)) as stage:
        await stage.greet()
        for number in range(2):
            async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
                url = relay.url
                await relay.has_read("notes")
                if number == 0:
                    [server] = await stage.open()
                    plug = await stage.plug(server)
                seen = ConductorWithRelay(relay, Tools(), stage)
                assert [row["session"] for row in await seen.sessions()] == ["s1"]
                plug.send(id=number, method="tools/call", params=call)
                assert whose(await plug.next())["session"] == "s1"


async def test_a_token_that_is_replaced_during_a_session_is_read_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        await set.stage.greet()
        [server] = await set.stage.open()
        plug = await set.stage.plug(server)
        old = set.relay.token
        assert main(["token", "revoke", "default", "--home", str(tmp_path)]) == 0
        async with httpx2.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {old}"}) as http:

            async def is_refused() -> bool:
                return (await http.get(f"{set.relay.url}/-/status")).status_code == 401

            await until(is_refused)
        plug.send(id=1, method="tools/list", params={"_meta": META})
        answer = await plug.next()
        # The browser's token is gone too, but the agent's call was accepted: the relay keeps the list for it.
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


async def test_the_status_reports_that_an_agent_ignores_its_servers(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        await set.stage.greet()
        await set.stage.open()
        [row] = await set.sessions()
        assert not row["is_used"]
        assert "never connected" in text((await set.relay.http.get("/-/status")).json())
        set.stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        await set.stage.agent.next()
        set.stage.agent.send(id=9, result={})
        await set.stage.editor.next()
        assert await set.sessions(lambda rows: rows == []) == []


class Slow(NoRelay):
    """A relay client that delays one report when a test requests it."""

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
    async with ConductorHarness(relay) as stage, asyncio.timeout(WAIT_S):
        await stage.greet()
        [server] = await stage.open()
        relay.is_slow = True
        await stage.plug(server)
        await relay.is_asked.wait()
        await stage.ask_for_session(id=2)
        stage.agent.send(id=2, result={"sessionId": "s2"})
        for _ in range(100):  # every pending callback runs
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
    async with scene(tmp_path) as set:
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

            async def is_revoked() -> bool:
                return (await http.post(server["url"], **call)).status_code == 401

            await until(is_revoked)


def fill(home: Path, life_s: float) -> None:
    """The largest permitted number of tokens for agents."""
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
    async with ConductorHarness(NoRelay("notes", home=home)) as stage:
        await stage.greet(http=True)
        [server] = await stage.open()
        assert server["args"][0] == "mcp"


async def test_tokens_of_agents_that_are_over_leave_their_places_to_others(tmp_path: Path) -> None:
    fill(tmp_path, -1)
    async with ConductorHarness(NoRelay("notes", home=tmp_path)) as stage:
        await stage.greet(http=True)
        [server] = await stage.open()
        assert server["type"] == "http"
        assert len(Tokens(tmp_path).issued()) == 1


async def test_a_token_that_can_not_be_revoked_does_not_keep_its_session_open(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with ConductorHarness(NoRelay("notes", home=home)) as stage:
        await stage.greet(http=True)
        [server] = await stage.open()
        assert server["type"] == "http"
        home.rename(tmp_path / "moved")
        home.touch()
        stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
        await stage.agent.next()
        stage.agent.send(id=9, result={})
        assert (await stage.editor.next())["id"] == 9
        await stage.open(session="s2", id=10)


@pytest.mark.parametrize(
    ("bridge", "http", "kind"),
    [
        ("auto", False, "stdio"),
        ("auto", True, "http"),
        ("http", False, "http"),
        ("http", True, "http"),
        ("stdio", True, "stdio"),
    ],
)
async def test_the_bridge_is_what_the_agent_advertises_unless_the_user_chose_one(
    tmp_path: Path, bridge: Any, http: bool, kind: str
) -> None:
    async with ConductorHarness(NoRelay("notes", home=tmp_path), bridge=bridge) as stage:
        await stage.greet(http=http)
        [server] = await stage.open()
        assert server.get("type", "stdio") == kind


@pytest.mark.parametrize(
    ("can", "kind"),
    [
        ({"stdio": {}, "http": {}}, "http"),
        ({"stdio": {}}, "stdio"),
        ({"http": {}}, "http"),
        ({"stdio": {}, "http": {}, "acp": {}}, "acp"),
        ({"stdio": None}, None),
        ({}, None),
    ],
)
async def test_an_agent_of_acp_2_gets_the_kind_of_server_that_it_supports(
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
        # If the agent supports none of them, it reports that itself.
        assert (asked["mcpServers"][0] == theirs) == ("acp" in can or not isinstance(can.get("stdio"), dict))
        assert [one["type"] for one in asked["mcpServers"][1:]] == ([] if kind is None else [kind])
        stage.agent.send(id=1, result={"sessionId": "s1"})
        assert (await stage.editor.next())["id"] == 1


@pytest.mark.parametrize("can", [{}, {"http": True}, {"acp": True}])
async def test_what_an_agent_of_acp_1_gets_is_what_the_protocol_has(tmp_path: Path, can: Any) -> None:
    async with scene(tmp_path) as set:
        await set.stage.greet(**can)
        theirs = {"type": "acp", "name": "theirs", "serverId": "t"}
        check_schema({"cwd": "/", "mcpServers": await set.stage.open(theirs)}, "v1", "NewSessionRequest")
