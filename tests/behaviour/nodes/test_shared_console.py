"""A console of several relays on a bus: it has the calls of all of them, and acts on each at the relay that has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tabrelay.faces.nodes import shared_console
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.console import OpenConsole, open_console
from tests.support.cpython_worker import CPythonWorker
from tests.support.relay_pair import Pair, meeting
from tests.support.waiting import BOUND_S


def offer(box: Toolbox) -> None:
    @tool(toolbox=box)
    def echo(text: str, password: str = "") -> str:
        return f"{text} {password}".strip()

    @tool(toolbox=box)
    async def waiting() -> str:
        await asyncio.Event().wait()
        return "never"


@asynccontextmanager
async def served(home: Path, **settings: Any) -> AsyncIterator[Pair]:
    """The browser is at the first relay; the calls of the tests reach the second."""
    box = Toolbox()
    offer(box)
    async with meeting(home, **settings) as pair, CPythonWorker(pair.a.url, pair.a.token, "notes", box):
        await pair.a.has_read("notes")
        yield pair


async def second_captures(pair: Pair, console: OpenConsole) -> str:
    """Wait until the second relay captures; returns its name."""
    there = console.hello["relays"][1]["name"]
    async with asyncio.timeout(BOUND_S):
        while console.find(relay=there) is None:
            await pair.b.http.post("/notes", **pair.b.modern("tools/list"))
            await asyncio.sleep(0.02)
    return str(there)


async def test_a_console_has_the_calls_of_the_other_relay_with_their_details(tmp_path: Path) -> None:
    async with served(tmp_path, inspect=True) as pair:
        await pair.b.call("notes", "echo", {"text": "before the console"})
        async with open_console(pair.a) as console:
            here, there = [relay["name"] for relay in console.hello["relays"]]
            before = await console.row(name="echo", state="done", peer="node")
            assert console.hello["relay"]["name"] == here and before["relay"] == there
            await pair.b.call("notes", "echo", {"text": "second", "password": "hunter22"})
            await console.until(lambda: len([row for row in console.rows.values() if row["peer"] == "node"]) == 2)
            row = next(row for row in reversed(console.rows.values()) if row["peer"] == "node")
            detail = await console.detail(id=row["id"])
            assert detail["request"]["params"]["arguments"] == {"text": "second", "password": "[redacted]"}
            assert detail["row"]["relay"] == there and detail["spans"]
            await pair.a.call("notes", "echo", {"text": "here"})
            own = await console.row(name="echo", relay=here, state="done", by="client", peer="browser")
            ids = [row["id"], own["id"], before["id"], "unknown-1"]
            details = (await pair.a.http.post("/-/console/details", json={"ids": ids})).json()["details"]
            assert [each["row"]["id"] for each in details] == ids[:3]


async def test_a_call_of_the_other_relay_is_sent_again_and_cancelled_there(tmp_path: Path) -> None:
    async with served(tmp_path) as pair, open_console(pair.a) as console:
        there = await second_captures(pair, console)
        await pair.b.call("notes", "echo", {"text": "again", "password": "hunter22"})
        first = await console.row(name="echo", relay=there, state="done")
        sent = await pair.a.http.post("/-/console/run", json={"of": first["id"]})
        assert sent.status_code == 202
        again = await console.row(id=sent.json()["id"], state="done")
        assert again["relay"] == there and again["by"] == "console"
        # What is hidden in the console was sent as in the original.
        detail = await console.detail(id=again["id"])
        assert detail["response"]["result"]["content"][0]["text"] == "again hunter22"
        calling = asyncio.create_task(pair.b.call("notes", "waiting"))
        running = await console.row(name="waiting", relay=there, state="running")
        # Only calls of a console are cancelled by it.
        refused = await pair.a.http.post(f"/-/console/calls/{running['id']}/cancel")
        assert refused.status_code == 404
        own = (await pair.a.http.post("/-/console/run", json={"of": running["id"]})).json()["id"]
        await console.row(id=own, state="running")
        assert (await pair.a.http.post(f"/-/console/calls/{own}/cancel")).status_code == 204
        await console.row(id=own, state="cancelled")
        calling.cancel()


async def test_a_breakpoint_holds_calls_of_all_relays_until_the_console_closes(tmp_path: Path) -> None:
    async with served(tmp_path) as pair:
        async with open_console(pair.a) as console:
            await second_captures(pair, console)
            wanted = {"breakpoints": [{"at": "call", "name": "echo"}]}
            assert (await pair.a.http.put("/-/console/breakpoints", json=wanted)).json()["breakpoints"]
            first = asyncio.create_task(pair.b.call("notes", "echo", {"text": "as sent"}))
            await console.until(lambda: console.find(name="echo", held=True))
            [held] = (await pair.a.http.get("/-/console/breakpoints")).json()["held"]
            shown = (await pair.a.http.get(f"/-/console/held/{held['id']}")).json()
            assert shown["params"]["arguments"] == {"text": "as sent"}
            edited = {"do": "release", "params": {"name": "echo", "arguments": {"text": "as edited"}}}
            assert (await pair.a.http.post(f"/-/console/held/{held['id']}", json=edited)).status_code == 204
            assert "as edited" in (await first).text
            second = asyncio.create_task(pair.b.call("notes", "echo", {"text": "left alone"}))
            await console.until(lambda: console.find(name="echo", held=True))
        # No console is open any more.
        assert "left alone" in (await second).text


async def test_a_token_for_some_servers_gets_no_rows_of_others_from_another_relay(tmp_path: Path) -> None:
    async with served(tmp_path, servers=("drawings",), away_wait_s=0.1) as pair:
        token = pair.a.tokens.issue_named("one", ["manage", "call"], ["drawings"])
        async with open_console(pair.a) as all_rows, open_console(pair.a, token=token) as some:
            await second_captures(pair, all_rows)
            await pair.b.call("notes", "echo", {"text": "of another server"})
            row = await all_rows.row(name="echo", state="done")
            await pair.b.call("drawings", "echo", {"text": "x"})
            await some.row(server="drawings")
            assert all(each["server"] == "drawings" for each in some.rows.values())
            headers = {"Authorization": f"Bearer {token}"}
            refused = await pair.a.http.get(f"/-/console/calls/{row['id']}", headers=headers)
            assert refused.status_code == 404


async def test_a_relay_that_no_longer_asks_for_rows_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_console, "LEASE_S", 0.3)
    monkeypatch.setattr(shared_console, "REPEAT_S", 3600.0)
    async with served(tmp_path, console_linger_s=0.0) as pair, open_console(pair.a) as console:
        there = await second_captures(pair, console)
        last = console.find(relay=there)

        async def captured() -> bool:
            """Does the second relay capture? Only a call that it has captured can be sent again."""
            assert last is not None
            return (await pair.a.http.post("/-/console/run", json={"of": last["id"]})).status_code == 202

        async with asyncio.timeout(BOUND_S):
            while await captured():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
