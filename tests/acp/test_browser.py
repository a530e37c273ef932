"""Browser servers for an agent: the real relay, the browser's own Python, and every way that agents take servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.acp.access import Access
from tabrelay.faces.editors import FORGET_S, MAX_CONDUCTORS, Editors
from tabrelay.verbs.status import text
from tabserver import Context
from tabserver.toolbox import Toolbox, tool
from tests.support.acp import WAIT_S, Stage, is_free
from tests.support.cpython_worker import CPythonWorker
from tests.support.relay import RunningRelay, modern

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
        async with Stage(Access(home, lambda: relay.url, names), **options) as stage:
            yield Scene(relay, tools, stage)


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


async def test_only_the_conductor_can_say_whose_call_it_is(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        forged = {"tabrelay/acp": {"session": "forged", "server": "x"}}
        answer = await set.relay.call("notes", "whose", _meta=forged)
        assert whose(answer.json()) == {}


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
            assert whose((await http.post(server["url"], **call)).json()) == {
                "session": "s1",
                "server": row["server_id"],
                "connection": None,
                "agent": "played",
            }
            assert (await http.post(f"{relay.url}/other", **call)).status_code == 403
            stage.editor.send(id=9, method="session/close", params={"sessionId": "s1"})
            await stage.agent.next()
            stage.agent.send(id=9, result={})
            await stage.editor.next()
            async with asyncio.timeout(WAIT_S):
                while (await http.post(server["url"], **call)).status_code != 401:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def test_an_agent_that_can_not_do_http_gets_a_program_all_the_same(tmp_path: Path) -> None:
    async with scene(tmp_path, wants_http=True) as set:
        await set.stage.greet()
        [server] = await set.stage.open()
        assert server["args"][0] == "mcp"


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


async def test_a_native_agent_uses_a_browser_in_envelopes(tmp_path: Path) -> None:
    async with scene(tmp_path) as set:
        agent = set.stage.agent
        server = await native(set)

        def ask(id: Any, method: str, request: Any = "r", **params: Any) -> None:
            inner = {"serverId": server["serverId"], "requestId": request, "method": method, "params": params}
            agent.send(id=id, method="mcp/message", params=inner)

        ask(1, "tools/call", name="whose", arguments={}, _meta=META)
        carried = (await agent.next())["result"]
        assert carried["result"]["structuredContent"]["session"] == "s1"
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
    async with Stage(Access(tmp_path, lambda: "http://127.0.0.1:1", ("notes",))) as stage:
        await stage.greet(acp=True)
        [server] = await stage.open()
        inner = {"serverId": server["serverId"], "requestId": "1", "method": "tools/list", "params": {"_meta": META}}
        stage.agent.send(id=1, method="mcp/message", params=inner)
        error = (await stage.agent.next())["error"]
        assert error["code"] == -33002 and "127.0.0.1:1" in error["message"]


async def test_without_a_relay_the_agent_works_as_ever() -> None:
    async with Stage(Access(Path("/nowhere"), lambda: "http://127.0.0.1:1")) as stage:
        await stage.greet()
        assert await stage.open() == []


# -- what the relay keeps ----------------------------------------------------------------------------------------------


def report(id: str) -> Any:
    return {"agent": "a", "sessions": [{"session": "s", "servers": [{"server": "notes", "server_id": id}]}]}


def test_a_conductor_that_says_nothing_for_a_while_is_forgotten() -> None:
    now = 0.0
    editors = Editors(lambda: now)
    editors.report("one", report("x"))
    now += FORGET_S
    assert [row["server_id"] for row in editors.describe(lambda name: True)] == ["x"]
    now += 1
    assert editors.describe(lambda name: True) == []


def test_the_relay_keeps_no_more_conductors_than_it_can() -> None:
    editors = Editors(lambda: 0.0)
    for number in range(MAX_CONDUCTORS):
        editors.report(str(number), report(str(number)))
    with pytest.raises(ValueError):
        editors.report("one more", report("x"))
    editors.report("0", report("again"))


def test_who_may_not_see_a_server_does_not_see_its_sessions() -> None:
    editors = Editors(lambda: 0.0)
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
