"""Calls of a browser that left another relay: each ends with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.bus import envelope
from tabrelay.bus.bus import BusMessage
from tabserver.wire.events import Closed, Received
from tests.support.relay_pair import Pair, Stream, ending, meeting
from tests.support.running_relay import RunningRelay, modern
from tests.support.waiting import until


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Pair]:
    """Relays with short deadlines."""
    async with meeting(tmp_path, away_wait_s=0.5, call_deadline_s=30.0, bus_beat_s=0.4, grace_s=0.3) as pair:
        yield pair


def cut_off(pair: Pair) -> None:
    """Cuts the second relay off the bus without a message."""
    pair.hub.cut()
    pair.hub.restore(pair.hub.nodes[0])


async def has_no_browser(relay: RunningRelay) -> bool:
    """Whether the relay has no browser and does not wait for one to reconnect."""
    rows = (await relay.http.get("/-/status")).json()["nodes"]
    return [row["browsers"] for row in rows if row["is_this"]] == [0]


async def test_a_call_is_lost_with_its_relay_although_a_later_one_was_refused_before(hasty: Pair) -> None:
    async with hasty.worker(hasty.b, "notes") as worker:
        worker.on_call = lambda *_: None
        first = asyncio.create_task(hasty.a.call("notes", "echo"))
        await until(lambda: len(worker.calls) == 1)
        cut_off(hasty)
        assert ending(await hasty.a.call("notes", "echo")) == ("server_offline", "no")
        assert ending(await first) == ("browser_gone", "unknown")


async def test_a_listener_is_notified_of_a_lost_relay_although_a_later_call_was_refused_before(hasty: Pair) -> None:
    async with hasty.worker(hasty.b, "notes") as worker:
        await hasty.a.has_found("notes")
        listens: list[object] = []
        worker.on_listen = listens.append
        body = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        stream = Stream(hasty.a, "POST", "notes", **body)
        await until(lambda: len(listens) == 1)
        cut_off(hasty)
        assert ending(await hasty.a.call("notes", "echo")) == ("server_offline", "no")
        assert (await stream.end())["error"]["data"]["reason"] == "browser_gone"


async def test_calls_that_are_refused_one_after_the_other_all_get_an_error(
    hasty: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser left while there was no bus: all calls are sent to its relay before the first one is refused."""
    async with hasty.worker(hasty.b, "notes") as worker:
        await hasty.a.call("notes", "echo")
        hasty.hub.cut()
        await worker.hang_up()
        await until(lambda: has_no_browser(hasty.b))
        hasty.hub.restore()
        said: list[tuple[BusMessage, Any]] = []
        monkeypatch.setattr(hasty.hub, "deliver", lambda message, on_no_node: said.append((message, on_no_node)))
        calls = [asyncio.create_task(hasty.a.call("notes", "echo")) for _ in range(3)]
        await until(lambda: sum(envelope.unpack(message.data)[0]["op"] == "call" for message, _ in said) == 3)
        monkeypatch.undo()
        for message, on_no_node in said:
            hasty.hub.deliver(message, on_no_node)
        assert [ending(await call) for call in calls] == [("server_offline", "no")] * 3


async def test_a_call_that_was_given_up_while_it_was_nowhere_is_stopped_when_its_browser_is_found_again(
    tmp_path: Path,
) -> None:
    async with meeting(tmp_path, away_wait_s=0.5, bus_beat_s=30.0) as pair, pair.worker(pair.b, "notes") as worker:
        asked: list[Received[str]] = []
        worker.on_call = lambda _worker, event, _message: asked.append(event)
        left = asyncio.create_task(pair.a.call("notes", "echo"))
        await until(lambda: len(asked) == 1)
        cut_off(pair)
        assert ending(await pair.a.call("notes", "echo")) == ("server_offline", "no")
        left.cancel()
        await until(lambda: pair.a.drain.exchanges.count == 0)  # its relay has noticed
        pair.hub.restore()
        channel = asked[0].channel
        await until(lambda: any(isinstance(event, Closed) and event.channel == channel for event in worker.seen))
        assert len(asked) == 1
