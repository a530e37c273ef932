"""The list of a server's legacy sessions, as the console gets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.faces.mcp.session_routes import MAX_ROWS
from tests.faces.mcp.test_sessions import CALLER, Wall, sessions
from tests.support.console_page import Notes, client_of
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
async def relay(tmp_path: Path, notes: Notes) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", notes.box):
        await relay.has_read("notes")
        yield relay


async def listed(relay: RunningRelay, token: str = "") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    response = await relay.http.get("/-/console/sessions?server=notes", headers=headers)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_a_session_is_listed_with_client_version_token_age_and_open_calls(
    relay: RunningRelay, notes: Notes
) -> None:
    assert await listed(relay) == {"sessions": [], "total": 0}
    async with client_of(relay, "modern"), client_of(relay, "old", mode="legacy") as client:
        calling = asyncio.create_task(client.call_tool("waiting", {}))

        async def is_open() -> bool:
            [row] = (await listed(relay))["sessions"]
            return bool(row["open"] == 1)

        await until(is_open)
        [row] = (await listed(relay))["sessions"]
        assert 0 <= row.pop("idle_s") <= row.pop("age_s") < 60
        assert isinstance(row.pop("is_listening"), bool)
        assert row.pop("principal").startswith("token:")
        assert row == {"client": {"name": "old", "version": "1.2"}, "era": "2025-11-25", "open": 1}
        notes.go.set()
        await calling
        assert [row["open"] for row in (await listed(relay))["sessions"]] == [0]


async def test_no_row_has_a_session_id_and_a_secret_in_a_name_is_hidden(relay: RunningRelay) -> None:
    client = {"name": f"Bearer {relay.token}", "version": 7}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    headers = {"Authorization": f"Bearer {relay.tokens.issue_named('ci', ['call'], None)}"}
    id = (await relay.http.post("/notes", json=body, headers=headers)).headers["mcp-session-id"]
    text = (await relay.http.get("/-/console/sessions?server=notes")).text
    assert '"token:ci"' in text and '"2025-06-18"' in text
    assert id not in text and relay.token not in text


async def test_of_many_sessions_the_hundred_that_were_used_last_are_listed(relay: RunningRelay) -> None:
    _, first = await relay.initialize("notes", "2025-03-26")
    for _ in range(MAX_ROWS + 1):
        await relay.initialize("notes")
    found = await listed(relay)
    assert len(found["sessions"]) == MAX_ROWS == 100 and found["total"] == 102
    assert {row["era"] for row in found["sessions"]} == {"2025-11-25"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert (await relay.http.post("/notes", json=ping, headers=first)).is_success
    assert (await listed(relay))["sessions"][0]["era"] == "2025-03-26"


async def test_a_token_for_other_servers_gets_no_sessions_and_one_that_only_calls_is_refused(
    relay: RunningRelay,
) -> None:
    await relay.initialize("notes")
    assert (await listed(relay))["total"] == 1
    other = relay.tokens.issue_named("reader", ["manage"], ["other"])
    assert await listed(relay, other) == {"sessions": [], "total": 0}
    caller = relay.tokens.issue_named("caller", ["call"], None)
    headers = {"Authorization": f"Bearer {caller}"}
    assert (await relay.http.get("/-/console/sessions?server=notes", headers=headers)).status_code == 403


def test_the_age_of_a_session_goes_on_at_the_next_relay_process(tmp_path: Path) -> None:
    wall = Wall()
    table = sessions(tmp_path, wall)
    session = table.open("notes", "c", CALLER)
    wall.now += 100
    assert table.times_of(session) == (100, 100)
    table.flush()
    again = sessions(tmp_path, wall)
    found = again.find(session.id, "notes", CALLER.principal)
    wall.now += 5
    assert again.times_of(found) == (105, 5)
    # An id has the whole second, which may be a later one.
    wall.now = 1_000_200.6
    late = again.open("notes", "d", CALLER)
    wall.now += 1
    assert again.times_of(late) == (1, 1)
