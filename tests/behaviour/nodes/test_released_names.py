"""Names that a browser without tabs and calls releases to pages at another relay of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tabserver.wire.events import Received
from tests.behaviour.test_released_names import LOCALHOST, NUMBER, OTHER, TAB, becomes, why_refused, worker
from tests.support.relay_pair import Pair, meeting

TAKEN = "It is free when that page is closed."


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with meeting(tmp_path, away_wait_s=1, grace_s=60, allow_origins=(OTHER,)) as pair:
        yield pair


async def test_a_page_of_the_same_port_gets_the_name_when_the_browser_at_another_relay_has_no_tab(pair: Pair) -> None:
    async with worker(pair.a, LOCALHOST, "a") as first:
        await first.report(TAB)
        await becomes(pair.a, "online")
        assert TAKEN in await why_refused(worker(pair.b, NUMBER, "b"))
        await first.report()
        await becomes(pair.a, "idle")
        async with worker(pair.b, NUMBER, "b") as second:
            await first.until(lambda: first.close_code == 4409)
            for relay in (pair.a, pair.b):
                assert (await relay.call("notes", "echo")).json()["result"]
            assert (len(first.calls), len(second.calls)) == (0, 2)
            assert TAKEN in await why_refused(worker(pair.a, LOCALHOST, "a"))


async def test_a_page_of_another_origin_waits_for_the_grace_at_each_relay(tmp_path: Path, pair: Pair) -> None:
    async with worker(pair.a, LOCALHOST, "a") as first:
        await first.report()
        await becomes(pair.a, "idle")
        assert TAKEN in await why_refused(worker(pair.b, OTHER, "b"))
        assert first.close_code is None


async def test_after_the_grace_a_page_of_another_origin_gets_the_name_at_another_relay(tmp_path: Path) -> None:
    async with (
        meeting(tmp_path, grace_s=0.0, allow_origins=(OTHER,)) as pair,
        worker(pair.a, LOCALHOST, "a") as first,
    ):
        await first.report()
        await becomes(pair.a, "idle")
        async with worker(pair.b, OTHER, "b") as second:
            assert (await pair.a.call("notes", "echo")).json()["result"]
            assert len(second.calls) == 1


async def test_a_call_through_any_relay_keeps_the_name_without_a_tab(pair: Pair) -> None:
    waiting: list[Received[str]] = []
    async with worker(pair.a, LOCALHOST, "a") as first:
        first.on_call = lambda worker, event, message: waiting.append(event)
        await first.report()
        await becomes(pair.a, "idle")
        running = asyncio.create_task(pair.b.call("notes", "slow"))
        await first.until(lambda: bool(waiting))
        assert TAKEN in await why_refused(worker(pair.b, NUMBER, "b"))
        assert first.close_code is None
        running.cancel()


async def test_a_relay_that_stops_takes_no_name_of_another(pair: Pair) -> None:
    async with worker(pair.a, LOCALHOST, "a") as first:
        await first.report()
        await becomes(pair.a, "idle")
        pair.b.drain.is_on = True
        assert "The relay is stopping." in await why_refused(worker(pair.b, NUMBER, "b"))
        pair.b.drain.is_on = False
        assert (await pair.b.call("notes", "echo")).json()["result"]
        assert len(first.calls) == 1
