"""Ownership of a name across relays: it belongs to the principal of the browser that holds it, at every relay of a
bus."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tabrelay.peers.nodes.locator import _is_better
from tabrelay.peers.nodes.remote_peer import BrowserLocation, RemotePeer
from tabserver.wire.events import ByeReceived
from tests.behaviour.test_reserved_names import dial_without_greeting, greet, is_away, stranger
from tests.support.relay_pair import Pair, meeting
from tests.support.waiting import BOUND_S, pause


@pytest.mark.parametrize("server", ["notes", "shared"])
async def test_a_name_that_was_taken_at_another_relay_after_the_handshake_is_refused_at_the_hello(
    pair: Pair, server: str
) -> None:
    late = stranger(pair.b, server)
    await dial_without_greeting(late)
    async with pair.worker(pair.a, server) as holder:
        await pair.b.has_found(server)
        await greet(late)
        await late.until(lambda: late.close_code == 4403)
        assert (await pair.b.call(server, "echo")).json()["result"]
        assert (len(holder.calls), late.calls) == (1, [])


async def test_a_name_is_kept_for_its_principal_at_every_relay_during_the_grace(tmp_path: Path) -> None:
    async with meeting(tmp_path, away_wait_s=20.0, grace_s=60.0) as pair:
        early = stranger(pair.b, inst="early")
        await dial_without_greeting(early)
        async with pair.worker(pair.a, "notes") as holder:
            await pair.b.has_found("notes")
            await holder.cut()
            async with asyncio.timeout(BOUND_S):
                while not (await is_away(pair.a) and await is_away(pair.b)):
                    await pause()
            for relay in (pair.a, pair.b):
                with pytest.raises(InvalidStatus) as refused:
                    await stranger(relay).dial()
                assert refused.value.response.status_code == 403
            await greet(early)
            await early.until(lambda: early.close_code == 4403)
            assert [event.retry_ms for event in early.seen if isinstance(event, ByeReceived)] == [3000]
            following = asyncio.create_task(pair.b.call("notes", "echo"))
            await holder.dial()
            assert (await following).json()["result"]
            assert (len(holder.calls), early.calls) == (1, [])


async def test_a_name_is_free_at_another_relay_when_its_browser_sent_bye(tmp_path: Path) -> None:
    async with meeting(tmp_path, away_wait_s=20.0, grace_s=60.0) as pair:
        async with pair.worker(pair.a, "notes") as first:
            await pair.b.has_found("notes")
            first.link.bye(1000, "closing", 0.0)
            await first.flush()
            await first.hang_up()
            async with asyncio.timeout(BOUND_S):
                while not (await is_away(pair.a) and await is_away(pair.b)):
                    await pause()
        async with stranger(pair.b) as second:
            assert (await pair.a.call("notes", "echo")).json()["result"]
            assert len(second.calls) == 1


@pytest.mark.parametrize(
    ("principal", "state", "is_reserved", "is_adopted"),
    [
        ("other", "up", True, False),
        ("other", "up", False, True),
        ("same", "up", True, True),
        ("same", "away", True, False),
    ],
)
async def test_a_third_relay_takes_a_browser_in_its_grace_for_the_holder(
    principal: str, state: str, is_reserved: bool, is_adopted: bool
) -> None:
    known = RemotePeer.__new__(RemotePeer)
    known.location = BrowserLocation("notes", "node-a", 1, "w1", "same")
    known.is_connected, known.is_reserved = False, is_reserved
    newer = BrowserLocation("notes", "node-b", 2 if principal == "other" else 0, "w2", principal)
    assert _is_better(newer, {"state": state, "reserved": True}, known) is is_adopted
