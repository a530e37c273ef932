"""Faults that the console injects: a link is cut and resumed, its messages are delayed for a time; off by default."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.settings import Settings
from tabrelay.peers.browsers.link_faults import DelayingWriter, LinkFaults
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.console import OpenConsole, open_console
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

Row = dict[str, Any]


class FaultyServer:
    """`go` lets the tool `waiting` end; `runs` counts its runs."""

    def __init__(self, relay: RunningRelay, console: OpenConsole) -> None:
        self.relay, self.console = relay, console
        self.go = asyncio.Event()
        self.runs = 0

    async def inject(self, status: int = 204, **body: Any) -> str:
        response = await self.relay.http.post("/-/console/faults", json=body)
        assert response.status_code == status, response.text
        return str(response.json()["error"]) if status != 204 else ""

    async def called(self) -> float:
        """Seconds that a call of `echo` takes."""
        began = time.monotonic()
        response = await self.relay.call("notes", "echo", {"text": "one"})
        assert response.json()["result"]["content"][0]["text"] == "one"
        return time.monotonic() - began


@asynccontextmanager
async def served(home: Path, **settings: Any) -> AsyncIterator[FaultyServer]:
    box = Toolbox()

    @tool(toolbox=box)
    def echo(text: str) -> str:
        return text

    @tool(toolbox=box)
    async def waiting() -> str:
        faulty.runs += 1
        await faulty.go.wait()
        return "gone"

    async with RunningRelay(home, **settings) as relay, CPythonWorker(relay.url, relay.token, "notes", box):
        await relay.has_read("notes", lambda row: len(row["tools"]) == 2)
        async with open_console(relay) as console:
            faulty = FaultyServer(relay, console)
            yield faulty


async def test_a_cut_link_is_resumed_and_the_call_runs_once(tmp_path: Path) -> None:
    async with served(tmp_path, faults=True) as notes:
        assert notes.console.hello["faults"] is True
        calling = asyncio.create_task(notes.relay.call("notes", "waiting", {}))
        await notes.console.row(name="waiting", state="running")
        await notes.inject(server="notes", kind="cut")
        await notes.called()  # it waits until the browser is connected again
        notes.go.set()
        assert (await calling).json()["result"]["content"][0]["text"] == "gone"
        detail = await notes.console.detail(name="waiting", state="done")
        assert [event["kind"] for event in detail["events"]] == ["cut", "resumed"] and notes.runs == 1


async def test_messages_are_delayed_in_order_until_the_delay_ends(tmp_path: Path) -> None:
    async with served(tmp_path, faults=True) as notes:
        await notes.inject(server="notes", kind="delay", ms=300, for_s=200)
        times = await asyncio.gather(*(notes.called() for _ in range(5)))
        assert min(times) >= 0.3
        await notes.inject(server="notes", kind="delay", ms=0, for_s=0)
        await notes.called()


class UpLink:
    server = "notes~one"
    is_up = True

    def __init__(self) -> None:
        self.cuts: list[str] = []

    def cut(self, reason: str) -> None:
        self.cuts.append(reason)


def test_a_delay_ends_by_itself_and_is_of_one_server() -> None:
    now, link = [0.0], UpLink()
    faults = LinkFaults(lambda: [link], clock=lambda: now[0])
    assert faults.delay("notes", 0.5, 10) and not faults.delay("other", 0.5, 10)
    assert (faults.delay_s("notes"), faults.delay_s("other")) == (0.5, 0.0)
    now[0] = 10.0
    assert faults.delay_s("notes") == 0.0
    assert faults.cut("notes") and not faults.cut("other") and len(link.cuts) == 1


async def test_delayed_messages_have_a_limit_and_a_closed_socket_discards_them() -> None:
    sent: asyncio.Queue[str] = asyncio.Queue()

    async def send(message: Any) -> None:
        sent.put_nowait(message["text"])

    writer = DelayingWriter(send, delay_s=lambda: 100.0, queue_bytes=10, timeout_s=BOUND_S)
    running = asyncio.create_task(writer.run())
    for text in ("one-4", "two-4", "three"):
        writer.write([(text, None)])
    assert writer.waiting_bytes == 15  # the first is in the plain queue
    assert await asyncio.wait_for(sent.get(), BOUND_S) == "one-4"
    await asyncio.sleep(0)
    assert writer.waiting_bytes == 10
    await writer.finish()
    await running
    assert sent.empty() and writer.waiting_bytes == 0


async def test_faults_are_refused_unless_the_relay_offers_them(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        assert notes.console.hello["faults"] is False
        assert await notes.inject(403, server="notes", kind="cut") == "faults_off"
    for settings in ({}, {"faults": True, "host": "0.0.0.0"}, {"faults": True, "host": "192.0.2.1"}):
        assert LinkFaults.for_settings(Settings(**settings), list) is None  # type: ignore[arg-type]


async def test_what_can_not_be_injected_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, faults=True) as notes:
        wrong: tuple[Row, ...] = (
            {"kind": "freeze"},
            {"kind": "delay", "ms": 10_001, "for_s": 1},
            {"kind": "delay", "ms": 1, "for_s": 301},
            {"kind": "delay", "ms": -1, "for_s": 1},
            {"kind": "delay", "ms": "1", "for_s": 1},
            {"kind": "cut", "server": 1},
        )
        for body in wrong:
            assert await notes.inject(400, **{"server": "notes", **body}) == "invalid_request"
        assert await notes.inject(409, server="absent", kind="cut") == "server_offline"
        token = notes.relay.tokens.issue_named("other", ["manage"], ["other"])
        headers = {"Authorization": f"Bearer {token}"}
        body = {"server": "notes", "kind": "cut"}
        refused = await notes.relay.http.post("/-/console/faults", json=body, headers=headers)
        assert refused.status_code == 409 and refused.json()["error"] == "server_offline"
        caller = notes.relay.tokens.issue_named("caller", ["call"], None)
        headers = {"Authorization": f"Bearer {caller}"}
        assert (await notes.relay.http.post("/-/console/faults", json=body, headers=headers)).status_code == 403
        await notes.called()


@pytest.mark.parametrize("kind", ["cut", "delay"])
async def test_a_server_without_a_browser_has_no_link_to_disturb(tmp_path: Path, kind: str) -> None:
    async with RunningRelay(tmp_path, faults=True, servers=("notes",)) as relay:
        response = await relay.http.post("/-/console/faults", json={"server": "notes", "kind": kind})
        assert response.status_code == 409 and response.json()["error"] == "server_offline"
