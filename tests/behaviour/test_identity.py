"""Server information that a page or a module declares, for clients of every version, also while the browser is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from tabserver.handlers.server_description import describe_server
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.cpython_worker import CPythonWorker
from tests.support.fake_port import FakePort
from tests.support.relay_pair import meeting
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

ICON = {"src": "data:image/png;base64,aGk="}
ABOUT = {"title": "Front", "instructions": "Ask the notes.", "websiteUrl": "https://notes.example", "icons": [ICON]}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.3, grace_s=0.2) as relay:
        yield relay


def box() -> Toolbox:
    made = Toolbox()

    @tool(toolbox=made)
    def ping() -> str:
        return "pong"

    return made


async def initialize(relay: RunningRelay, version: str) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = await relay.http.post("/notes", json=body)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


async def discover(relay: RunningRelay) -> tuple[dict[str, Any], dict[str, Any]]:
    version = "2026-07-28"
    meta = {"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": "server/discover"}
    result: dict[str, Any] = (await relay.http.post("/notes", json=body, headers=headers)).json()["result"]
    return result, result["_meta"]["io.modelcontextprotocol/serverInfo"]


async def test_clients_of_every_version_get_what_the_tab_in_front_and_the_module_say(relay: RunningRelay) -> None:
    offered = box()
    async with CPythonWorker(relay.url, relay.token, "notes", offered) as worker:
        await relay.has_read("notes")
        describe_server(title="Module", version="7.1", instructions="From the module.", toolbox=offered)
        await until(lambda: _is(relay, "Module"))
        before, info = await discover(relay)
        assert (info["title"], info["version"], before["instructions"]) == ("Module", "7.1", "From the module.")
        port = FakePort()
        worker.hub.attach(port, {"id": "t", "visible": True, "about": ABOUT})

        async def is_told() -> bool:
            return (await discover(relay))[1].get("title") == "Front"

        await until(is_told)
        result, info = await discover(relay)
        named = {"name": "notes", "title": "Front", "version": "7.1"}
        assert info == named | {"websiteUrl": "https://notes.example", "icons": [ICON]}
        assert result["instructions"] == "Ask the notes."
        newest = await initialize(relay, "2025-11-25")
        assert newest["serverInfo"] == info and newest["instructions"] == "Ask the notes."
        assert (await initialize(relay, "2025-06-18"))["serverInfo"] == named
        assert (await initialize(relay, "2025-03-26"))["serverInfo"] == {"name": "notes", "version": "7.1"}
        types.Implementation.model_validate(info)

        await until(lambda: _is(relay, "Front"))  # the relay has read it again
        worker.hub.detach(port)
        await until(lambda: _is(relay, "Module"))

    # The browser is away: the relay returns the last information.
    async def is_away() -> bool:
        rows = (await relay.http.get("/-/status")).json()["servers"]
        return bool(rows[0]["state"] == "offline")

    await until(is_away)
    result, info = await discover(relay)
    assert (info["title"], result["instructions"]) == ("Module", "From the module.")
    old = await initialize(relay, "2024-11-05")
    assert old["serverInfo"] == {"name": "notes", "version": "7.1"} and old["instructions"] == "From the module."


async def _is(relay: RunningRelay, title: str) -> bool:
    return bool((await relay.http.get("/-/status")).json()["servers"][0]["title"] == title)


async def test_hidden_text_of_a_page_reaches_no_client(relay: RunningRelay) -> None:
    async with CPythonWorker(relay.url, relay.token, "notes", box()) as worker:
        await relay.has_read("notes")
        hidden = "Ask.\U000e0041\U000e0042"
        worker.hub.attach(FakePort(), {"id": "t", "visible": True, "about": {"title": "Seen", "instructions": hidden}})
        await until(lambda: _is(relay, "Seen"))
        result, _ = await discover(relay)
        assert "instructions" not in result
        assert "instructions" not in await initialize(relay, "2025-11-25")


async def test_other_relays_of_a_bus_read_it_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with meeting(tmp_path) as pair, CPythonWorker(pair.a.url, pair.a.token, "notes", offered := box()):
        await pair.b.has_found("notes")
        # The status of B has its own row of a server if A does not answer.
        monkeypatch.setattr(pair.hub.nodes[0], "answer", lambda reply, data: None)
        describe_server(title="First", toolbox=offered)
        await until(lambda: _is(pair.b, "First"))
