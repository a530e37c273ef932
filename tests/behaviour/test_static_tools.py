"""Static tools before any browser connects: listed from the relay's settings, and called like any other tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.settings import ConfigError, Settings
from tabserver.wire import jsonrpc
from tabserver.wire.events import Welcomed
from tabserver.wire.static_tools import STATIC_NAMES, STATIC_TOOLS
from tests.support.link_worker import ECHO_TOOL, SyntheticWorker
from tests.support.running_relay import RunningRelay

SERVERS: dict[str, Any] = {"servers": ("notes", "other"), "static_tools": ("notes",), "away_wait_s": 0.1}


async def listed(relay: RunningRelay, server: str = "notes") -> list[list[str]]:
    """The names of the tools, for a modern client and for a session that begins now."""
    modern = await relay.http.post(f"/{server}", **relay.modern("tools/list"))
    _, headers = await relay.initialize(server)
    legacy = await relay.http.post(f"/{server}", json=jsonrpc.request(1, "tools/list"), headers=headers)
    return [[tool["name"] for tool in each.json()["result"]["tools"]] for each in (modern, legacy)]


@pytest.mark.requirement("static-tools")
async def test_a_client_that_connects_before_any_browser_finds_them_on_its_server_only(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, **SERVERS) as relay:
        for names in await listed(relay):
            assert names == [tool["name"] for tool in STATIC_TOOLS]
        assert await listed(relay, "other") == [[], []]
        discovered = await relay.http.post("/notes", **relay.modern("server/discover"))
        assert "tools" in discovered.json()["result"]["capabilities"]


@pytest.mark.requirement("static-tools")
async def test_while_the_browser_is_away_they_are_called_like_any_tool(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, **SERVERS) as relay:
        answer = (await relay.call("notes", "tool_call", {"name": "draw"})).json()
        assert answer["error"]["data"]["reason"] == "server_offline"
        _, headers = await relay.initialize("notes")
        call = jsonrpc.request(1, "tools/call", {"name": "tabs_list", "arguments": {}})
        answer = (await relay.http.post("/notes", json=call, headers=headers)).json()
        assert answer["error"]["data"]["reason"] == "server_offline"


async def test_the_worker_learns_whether_its_server_has_them(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, **SERVERS) as relay:
        for server, has_them in (("notes", True), ("other", False)):
            async with SyntheticWorker(relay.url, relay.token, server) as worker:
                [welcome] = [event for event in worker.seen if isinstance(event, Welcomed)]
                assert welcome.static_tools is has_them


@pytest.mark.requirement("static-tools")
async def test_the_record_of_a_server_follows_the_present_setting(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, **SERVERS) as relay:
        worker = SyntheticWorker(relay.url, relay.token, "notes")
        worker.tools = [*STATIC_TOOLS, ECHO_TOOL]
        async with worker:
            await relay.has_read("notes")
    for static_tools, expected in (((), ["echo"]), (("notes",), [*(tool["name"] for tool in STATIC_TOOLS), "echo"])):
        async with RunningRelay(tmp_path, **SERVERS | {"static_tools": static_tools}) as relay:
            assert await listed(relay) == [expected, expected]


def test_a_name_that_has_them_is_known_from_the_start() -> None:
    assert Settings.from_args({"static_tools": ["notes"]}, env={}).servers == ("notes",)


def test_plain_pages_can_not_have_them() -> None:
    with pytest.raises(ConfigError, match='"notes" is open to plain pages'):
        Settings(plain=("notes",), static_tools=("notes",))


def test_their_names_are_what_users_read_in_the_documentation() -> None:
    assert {"tabs_list", "tools_list", "tool_call", "tab_pin"} == STATIC_NAMES
