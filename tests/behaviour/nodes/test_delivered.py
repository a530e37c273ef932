"""The `delivered` field of errors when a browser's outcome can't be queried.

Callers retry when the error states that nothing was delivered. So no call that a browser has received gets that error,
whatever the reason for which the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tabrelay.bus import envelope
from tabrelay.bus.bus import BusDown
from tabserver import tool
from tabserver.handlers.toolbox import Toolbox
from tabserver.wire.events import Received
from tests.support.cpython_worker import CPythonWorker
from tests.support.link_worker import SyntheticWorker
from tests.support.relay_pair import Pair, answer_of, ending, meeting
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until


class Gates:
    """A tool that runs until the test lets it end, by its argument; counts its runs."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self.opened = (asyncio.Event(), asyncio.Event())
        self.box = Toolbox()

        @tool(toolbox=self.box)
        async def slow(gate: int = 0) -> str:
            self.runs[gate] += 1
            await self.opened[gate].wait()
            return f"done {gate}"


def text_of(response: Any) -> str:
    return str(answer_of(response)["result"]["content"][0]["text"])


async def test_a_call_that_runs_outlives_a_bus_that_is_lost_again_at_once(pair: Pair) -> None:
    gates = Gates()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", gates.box), pair.worker(pair.a, "here"):
        call = asyncio.create_task(pair.a.call("notes", "slow"))
        await until(lambda: gates.runs[0] == 1)
        pair.hub.cut()
        pair.hub.restore(pair.hub.nodes[0])
        pair.hub.cut()
        await pair.a.call("here", "echo")  # by then the relay has tried to send it again
        pair.hub.restore()
        gates.opened[0].set()
        assert text_of(await call) == "done 0"
        assert gates.runs[0] == 1


async def test_a_call_that_a_full_bus_did_not_take_again_is_asked_again_when_it_does(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates, bus = Gates(), pair.hub.nodes[0]
    send, refused = bus.send, []

    def refuse(subject: str, data: bytes, *more: Any) -> Any:
        if envelope.unpack(data)[0]["op"] == "call":
            refused.append(data)
            raise BusDown("The bus accepts no more data.")
        return send(subject, data, *more)

    async with CPythonWorker(pair.b.url, pair.b.token, "notes", gates.box):
        call = asyncio.create_task(pair.a.call("notes", "slow"))
        await until(lambda: gates.runs[0] == 1)
        pair.hub.cut()
        gates.opened[0].set()
        await until(lambda: pair.b.drain.exchanges.count == 0)  # the answer can't be sent
        monkeypatch.setattr(bus, "send", refuse)
        pair.hub.restore()
        await until(lambda: bool(refused))
        monkeypatch.undo()
        assert text_of(await call) == "done 0"
        assert gates.runs[0] == 1


async def test_a_call_whose_browser_left_while_the_bus_was_down_has_an_unknown_outcome(tmp_path: Path) -> None:
    async with meeting(tmp_path, away_wait_s=0.5, grace_s=0.3) as pair, pair.worker(pair.b, "notes") as worker:
        worker.on_call = lambda *_: None
        call = asyncio.create_task(pair.a.call("notes", "echo"))
        await until(lambda: len(worker.calls) == 1)
        pair.hub.cut()
        await worker.hang_up()
        await until(lambda: pair.b.drain.exchanges.count == 0)  # it has ended at the browser's relay
        pair.hub.restore()
        assert ending(await call) == ("browser_gone", "unknown")


async def insist(relay: RunningRelay, gates: Gates, gate: int) -> Any:
    """There is room for one call, and the relays may read the catalogue at any time."""
    while True:
        response = await relay.call("notes", "slow", {"gate": gate})
        if gates.runs[gate] or ending(response) != ("busy", "no"):
            return response


async def test_a_browser_that_is_full_of_calls_is_asked_again_what_became_of_one(tmp_path: Path) -> None:
    gates = Gates()
    async with (
        meeting(tmp_path, in_flight_server=1) as pair,
        CPythonWorker(pair.b.url, pair.b.token, "notes", gates.box),
    ):
        for relay in (pair.b, pair.a):
            await relay.has_found("notes")
        call = asyncio.create_task(insist(pair.a, gates, 0))
        await until(lambda: gates.runs[0] == 1)
        pair.hub.cut()
        gates.opened[0].set()
        await until(lambda: pair.b.drain.exchanges.count == 0)  # the answer can't be sent
        other = asyncio.create_task(insist(pair.b, gates, 1))
        await until(lambda: gates.runs[1] == 1)
        pair.hub.restore()
        assert text_of(await call) == "done 0"
        assert gates.runs[0] == 1
        gates.opened[1].set()
        assert text_of(await other) == "done 1"


async def test_a_call_is_not_sent_to_a_worker_that_came_later_and_is_away_when_the_relay_learns_of_it(
    pair: Pair,
) -> None:
    async def is_away() -> bool:
        rows = (await pair.b.http.get("/-/status")).json()["servers"]
        return [row["state"] for row in rows if row["name"] == "notes"] == ["offline"]

    async with pair.worker(pair.b, "notes") as first:
        first.on_call = lambda *_: None
        call = asyncio.create_task(pair.a.call("notes", "echo"))
        await until(lambda: len(first.calls) == 1)
        pair.hub.cut()
        async with pair.worker(pair.b, "notes", inst="w2") as second:
            await first.until(lambda: first.close_code == 4409)
            await second.cut()
            await until(is_away)
            pair.hub.restore()
            assert ending(await call) == ("browser_gone", "unknown")
            await second.dial()
            assert "result" in answer_of(await pair.a.call("notes", "echo"))
            assert len(second.calls) == 1


async def test_a_call_that_finds_no_room_in_its_browsers_next_session_has_an_unknown_outcome(tmp_path: Path) -> None:
    """The first calls were acknowledged one by one; in the new session all are sent at once."""
    held: list[int] = []

    def hold(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        number = message["params"]["arguments"]["n"]
        if number is None:
            worker.echo(event, message)
        else:
            held.append(number)

    async with RunningRelay(tmp_path, replay_messages=8) as relay:
        first = SyntheticWorker(relay.url, relay.token, "notes")
        async with first:
            first.on_call = hold
            await relay.has_read("notes")
            calls = []
            for number in range(12):
                calls.append(asyncio.create_task(relay.call("notes", "echo", {"n": number})))
                await until(lambda: len(held) == len(calls))
                assert "result" in answer_of(await relay.call("notes", "echo", {"n": None}))
            await first.cut()
            second = SyntheticWorker(relay.url, relay.token, "notes")
            second.on_call = hold
            async with second:
                await until(lambda: any(call.done() for call in calls))
                lost = [call for call in calls if call.done()]
                assert {ending(call.result()) for call in lost} == {("browser_gone", "unknown")}
                for call in calls:
                    call.cancel()
