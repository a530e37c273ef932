"""Ownership of a name: it belongs to the principal of the browser that holds it, at the handshake, at the hello, and
during grace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tabserver.wire.events import ByeReceived, Received
from tabserver.wire.frames import Greeting
from tabserver.wire.link import Link
from tests.support.hook.tap import FAKE_BUILD
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=20, grace_s=60, instances=("shared",)) as relay:
        yield relay


def stranger(relay: RunningRelay, server: str = "notes", inst: str = "w2") -> SyntheticWorker:
    """A worker of another principal."""
    return SyntheticWorker(relay.url, relay.tokens.issue_for_page(None, None, ("serve",)), server, inst=inst)


async def dial_without_greeting(worker: SyntheticWorker) -> None:
    """Completes the handshake and sends no hello."""
    later, worker.link = worker.link, Link.dialer(Greeting(worker.url.rpartition("/")[2], "quiet", FAKE_BUILD))
    worker.link.connected = lambda now: None  # type: ignore[method-assign]
    await worker.dial()
    worker.link = later


async def is_away(relay: RunningRelay) -> bool:
    [row] = [row for row in (await relay.http.get("/-/status")).json()["servers"] if row["name"] == "notes"]
    return bool(row["state"] == "offline")


async def greet(worker: SyntheticWorker) -> None:
    worker.link.connected(0.0)
    await worker.flush()


@pytest.mark.parametrize("server", ["notes", "shared"])
async def test_a_name_that_was_taken_after_the_handshake_is_refused_at_the_hello(
    relay: RunningRelay, server: str
) -> None:
    late = stranger(relay, server)
    await dial_without_greeting(late)
    async with SyntheticWorker(relay.url, relay.token, server) as holder:
        await greet(late)
        await late.until(lambda: late.close_code == 4403)
        [bye] = [event for event in late.seen if isinstance(event, ByeReceived)]
        assert bye.code == 4403 and "another origin or token" in bye.reason and bye.retry_ms is None
        assert (await relay.call(server, "echo")).json()["result"]
        assert (len(holder.calls), late.calls) == (1, [])


@pytest.mark.parametrize("has_call", [False, True])
async def test_a_name_is_kept_for_its_principal_during_the_grace(relay: RunningRelay, has_call: bool) -> None:
    early = stranger(relay, inst="early")
    await dial_without_greeting(early)
    holder = SyntheticWorker(relay.url, relay.token, "notes")
    waiting: list[Received[str]] = []
    async with holder:
        running = None
        if has_call:
            holder.on_call = lambda worker, event, message: waiting.append(event)
            running = asyncio.create_task(relay.call("notes", "slow"))
            await holder.until(lambda: bool(waiting))
        await holder.cut()
        await until(lambda: is_away(relay))
        # At the handshake.
        with pytest.raises(InvalidStatus) as refused:
            await stranger(relay).dial()
        assert refused.value.response.status_code == 403
        # And at the hello, for one whose handshake was accepted before.
        await greet(early)
        await early.until(lambda: early.close_code == 4403)
        assert [event.retry_ms for event in early.seen if isinstance(event, ByeReceived)] == [3000]
        holder.on_call = SyntheticWorker.echo
        following = asyncio.create_task(relay.call("notes", "echo"))
        await holder.dial()
        if running is not None:
            holder.answer(waiting[0], {"content": []})
            await holder.flush()
            assert (await running).json()["result"]
        assert (await following).json()["result"]
        assert early.calls == []


async def test_a_name_is_free_for_others_when_its_browser_sent_bye(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as first:
        first.link.bye(1000, "closing", 0.0)
        await first.flush()
        await first.hang_up()
        await until(lambda: is_away(relay))
    async with stranger(relay) as second:
        assert (await relay.call("notes", "echo")).json()["result"]
        assert len(second.calls) == 1


async def test_a_browser_that_sent_bye_keeps_its_name_while_it_has_a_call(relay: RunningRelay) -> None:
    waiting: list[Received[str]] = []
    async with SyntheticWorker(relay.url, relay.token, "notes") as holder:
        holder.on_call = lambda worker, event, message: waiting.append(event)
        running = asyncio.create_task(relay.call("notes", "slow"))
        await holder.until(lambda: bool(waiting))
        holder.link.bye(1000, "closing", 0.0)
        await holder.flush()
        await holder.hang_up()
        await until(lambda: is_away(relay))
        with pytest.raises(InvalidStatus):
            await stranger(relay).dial()
        await holder.dial()
        holder.answer(waiting[0], {"content": []})
        await holder.flush()
        assert (await running).json()["result"]


async def test_a_name_is_free_for_others_after_the_grace(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, grace_s=0.2) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as first:
            await first.cut()
            # It is offline from the cut on, and its session is there until the grace is over.
            await until(lambda: not relay.app._app._app._browser_endpoint.browsers())
        async with stranger(relay):
            assert (await relay.call("notes", "echo")).json()["result"]
