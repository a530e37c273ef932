"""Names that a browser without tabs and calls releases, and the status of a server
that only its worker can answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tabserver.wire.events import Received
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

LOCALHOST = "http://localhost:5173"
NUMBER = "http://127.0.0.1:5173"
OTHER = "https://app.example"
TAB = {"id": "t1", "title": "Notes", "visible": True}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=1, grace_s=60, allow_origins=(OTHER,)) as relay:
        yield relay


def worker(relay: RunningRelay, origin: str, inst: str) -> SyntheticWorker:
    token = relay.tokens.issue_for_page(origin, "notes", ("serve",))
    return SyntheticWorker(relay.url, token, "notes", origin=origin, inst=inst)


async def row(relay: RunningRelay) -> dict[str, Any]:
    rows: list[dict[str, Any]] = (await relay.http.get("/-/status")).json()["servers"]
    return next(row for row in rows if row["name"] == "notes")


async def becomes(relay: RunningRelay, state: str) -> dict[str, Any]:
    async def is_so() -> bool:
        return bool((await row(relay))["state"] == state)

    await until(is_so)
    return await row(relay)


async def why_refused(one: SyntheticWorker) -> str:
    with pytest.raises(InvalidStatus) as refused:
        await one.dial()
    return (refused.value.response.body or b"").decode()


async def test_a_server_is_online_while_a_tab_can_answer_idle_without_one_and_offline_without_a_browser(
    relay: RunningRelay,
) -> None:
    async with worker(relay, LOCALHOST, "a") as browser:
        await browser.report(TAB)
        assert (await becomes(relay, "online"))["tabs"] == [{"id": "t1", "title": "Notes", "visible": True}]
        await browser.report()
        idle = await becomes(relay, "idle")
        assert idle["tabs"] == [] and idle["since_s"] is not None and idle["last_seen_s"] is None
        await browser.report(TAB | {"awake": False})
        await until(lambda: _has_tab(relay))
        assert (await row(relay))["state"] == "idle"
        await browser.report(TAB)
        await becomes(relay, "online")
    await becomes(relay, "offline")
    metrics = (await relay.http.get("/-/metrics")).text
    assert 'tabrelay_servers{kind="browser",state="idle"} 0' in metrics


async def _has_tab(relay: RunningRelay) -> bool:
    return bool((await row(relay))["tabs"])


async def test_a_page_of_the_same_port_gets_the_name_as_soon_as_the_browser_has_no_tab(relay: RunningRelay) -> None:
    async with worker(relay, LOCALHOST, "a") as first:
        await first.report(TAB)
        await becomes(relay, "online")
        second = worker(relay, NUMBER, "b")
        assert "It is free when that page is closed." in await why_refused(second)
        await first.report(returning=True)
        await becomes(relay, "idle")
        assert "It is free when that page is closed." in await why_refused(second)
        await first.report()
        await _dial_until_accepted(second)
        async with second:
            await first.until(lambda: first.close_code == 4409)
            assert (await relay.call("notes", "echo")).json()["result"]
            assert len(second.calls) == 1


async def _dial_until_accepted(one: SyntheticWorker) -> None:
    async def is_accepted() -> bool:
        try:
            await one.dial()
        except InvalidStatus:
            return False
        await one.hang_up()
        return True

    await until(is_accepted)


async def test_a_page_of_another_origin_waits_for_the_grace(relay: RunningRelay) -> None:
    async with worker(relay, LOCALHOST, "a") as first:
        await first.report()
        await becomes(relay, "idle")
        assert "It is free when that page is closed." in await why_refused(worker(relay, OTHER, "b"))


async def test_after_the_grace_a_page_of_another_origin_gets_the_name(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, grace_s=0.2, allow_origins=(OTHER,)) as relay,
        worker(relay, LOCALHOST, "a") as first,
    ):
        await first.report()
        await becomes(relay, "idle")
        await _dial_until_accepted(worker(relay, OTHER, "b"))


@pytest.mark.parametrize("kind", ["call", "parked"])
async def test_a_browser_with_a_call_keeps_its_name_without_a_tab(relay: RunningRelay, kind: str) -> None:
    waiting: list[Received[str]] = []
    async with worker(relay, LOCALHOST, "a") as first:
        first.on_call = lambda worker, event, message: waiting.append(event)
        await first.report(**({"parked": 1} if kind == "parked" else {}))
        await becomes(relay, "idle")
        running = None
        if kind == "call":
            running = asyncio.create_task(relay.call("notes", "slow"))
            await first.until(lambda: bool(waiting))
        assert "It is free when that page is closed." in await why_refused(worker(relay, NUMBER, "b"))
        if running is not None:
            running.cancel()
