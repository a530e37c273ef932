"""A relay that stops: the outcome for its callers and browsers. The relay runs as a real process."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.errors import RelayUnavailable
from tabrelay.routing.catalogue_store import CatalogueStore
from tabrelay.routing.drain import Drain
from tabrelay.routing.registry import Registry
from tabserver.wire.events import ByeReceived, Closed, Received
from tests.support.cpython_dialer import RemoteWorker
from tests.support.demo import Demo
from tests.support.link_worker import DONE, SyntheticWorker
from tests.support.running_relay import ACCEPT, modern
from tests.support.waiting import BOUND_S

WORKERS = 30


@asynccontextmanager
async def process(home: Path, **settings: float) -> AsyncIterator[tuple[Demo, httpx2.AsyncClient]]:
    """The relay, and an HTTP client for it."""
    async with Demo(home, verb="demo", **settings) as demo:
        headers = {"Authorization": f"Bearer {demo.token}", "Accept": ACCEPT}
        base = f"http://127.0.0.1:{demo.port}"
        async with httpx2.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=30) as http:
            yield demo, http


def worker_of(demo: Demo, server: str = "demo", inst: str = "w1") -> SyntheticWorker:
    return SyntheticWorker(f"http://127.0.0.1:{demo.port}", demo.token, server, inst=inst)


async def call(http: httpx2.AsyncClient, server: str = "demo") -> Any:
    return (await http.post(f"/{server}", **modern("tools/call", {"name": "slow", "arguments": {}}))).json()


async def draining(http: httpx2.AsyncClient) -> httpx2.Response:
    """Poll until the relay reports that it stops; each answer takes an iteration of both event loops."""
    async with asyncio.timeout(BOUND_S):
        while (response := await http.get("/-/healthz")).status_code == 200:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.02)
    return response


def keep(worker: SyntheticWorker) -> list[Received[str]]:
    """Answer no call until the test does."""
    waiting: list[Received[str]] = []
    worker.on_call = lambda worker, event, message: waiting.append(event)
    return waiting


def goodbyes(worker: SyntheticWorker) -> list[ByeReceived]:
    return [event for event in worker.seen if isinstance(event, ByeReceived)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_call_in_flight_is_answered_before_the_relay_stops(tmp_path: Path, number: signal.Signals) -> None:
    async with (
        process(tmp_path, drain_pause_s=1, drain_spread_s=4) as (demo, http),
        worker_of(demo) as busy,
        worker_of(demo, "idle") as idle,
    ):
        waiting = keep(busy)
        running = asyncio.create_task(call(http))
        await busy.until(lambda: bool(waiting))
        demo.signal(number)
        response = await draining(http)
        assert (response.status_code, response.json()["status"]) == (503, "draining")
        # The idle browser is notified at once; the other one when its caller has been answered.
        await idle.until(lambda: idle.close_code is not None)
        assert (idle.close_code, [bye.reason for bye in goodbyes(idle)]) == (1012, ["stop"])
        assert not goodbyes(busy)
        refused = (await call(http))["error"]
        assert (refused["code"], refused["data"]["reason"]) == (-31015, "relay_unavailable")
        assert (refused["data"]["delivered"], refused["data"]["retryable"]) == ("no", True)
        assert len(waiting) == 1
        busy.answer(waiting[0], {"content": []})
        await busy.flush()
        assert (await running)["result"] == DONE
        await busy.until(lambda: busy.close_code is not None)
        assert busy.close_code == 1012
        for bye in [*goodbyes(idle), *goodbyes(busy)]:
            assert bye.retry_ms is not None and 1000 <= bye.retry_ms <= 5000
        assert await demo.ended() == 0
        assert not [line for line in demo.log if "Traceback" in line]


async def test_a_call_that_takes_too_long_gets_an_error_and_the_relay_stops(tmp_path: Path) -> None:
    async with process(tmp_path, drain_s=0.3) as (demo, http), worker_of(demo) as worker:
        waiting = keep(worker)
        running = asyncio.create_task(call(http))
        await worker.until(lambda: bool(waiting))
        demo.signal()
        error = (await running)["error"]
        assert (error["code"], error["data"]["delivered"], error["data"]["retryable"]) == (-31012, "unknown", False)
        await worker.until(lambda: worker.close_code is not None)
        # The browser that still works on it gets a cancellation, and then a close frame.
        assert [event.why for event in worker.seen if isinstance(event, Closed)] == ["the relay is stopping"]
        assert [bye.reason for bye in goodbyes(worker)] == ["stop"]
        assert await demo.ended() == 0


async def test_a_second_signal_stops_the_relay_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, drain_s=600) as (demo, http), worker_of(demo) as worker:
        waiting = keep(worker)
        running = asyncio.create_task(call(http))
        await worker.until(lambda: bool(waiting))
        demo.signal()
        await draining(http)
        demo.signal()
        assert await demo.ended() == 0
        with pytest.raises(httpx2.TransportError):
            await running
        assert not [line for line in demo.log if "Traceback" in line]


async def test_a_call_that_waits_for_a_browser_is_refused_when_the_relay_stops(tmp_path: Path) -> None:
    registry = Registry(CatalogueStore(tmp_path / "servers.json"), declared=["notes"])
    waiting = asyncio.create_task(registry.wait_for_peer("notes", 600))
    await asyncio.wait([waiting], timeout=0)  # one iteration of its loop: it waits now
    registry.close()
    for reached in (waiting, registry.wait_for_peer("notes", 600)):
        with pytest.raises(RelayUnavailable):
            await reached


class Silent(SyntheticWorker):
    """Answers the relay's own requests and no others."""

    def _received(self, event: Received[str]) -> None:
        if "subscriptions/listen" not in event.payload:
            super()._received(event)


async def test_streams_end_as_if_nothing_more_could_come(tmp_path: Path) -> None:
    async with process(tmp_path, drain_s=600) as (demo, http):
        async with Silent(f"http://127.0.0.1:{demo.port}", demo.token, "demo") as worker:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            session = (await http.post("/demo", json=body)).headers["mcp-session-id"]
            request = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l1")
            listening = asyncio.create_task(http.post("/demo", **request))
            async with http.stream("GET", "/demo", headers={"Mcp-Session-Id": session}) as stream:
                lines = stream.aiter_lines()
                assert await anext(lines) == ": ping"
                await worker.until(lambda: any("subscriptions/listen" in str(event) for event in worker.seen))
                demo.signal()
                said = [json.loads(line[6:]) async for line in lines if line.startswith("data: {")]
                # It may still receive the list that the browser has just sent, but no error and no answer.
                assert {message.get("method") for message in said} <= {"notifications/tools/list_changed"}
            result = (await listening).json()["result"]
            assert result["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l1"}
        # Nothing delayed the relay: it did not wait for its deadline.
        assert await demo.ended() == 0


async def test_a_browser_that_lost_its_socket_may_bring_the_result_while_the_relay_drains(tmp_path: Path) -> None:
    async with process(tmp_path) as (demo, http), worker_of(demo) as worker:
        waiting = keep(worker)
        running = asyncio.create_task(call(http))
        await worker.until(lambda: bool(waiting))
        await worker.cut()
        demo.signal()
        await draining(http)
        worker.answer(waiting[0], {"content": []})
        await worker.dial()
        assert (await running)["result"] == DONE
        await worker.until(lambda: worker.close_code == 1012)
        assert await demo.ended() == 0


async def test_browsers_come_back_from_a_restart_one_by_one(tmp_path: Path) -> None:
    # Long enough for the relay to be back on a busy machine: only then can the spread be kept.
    pause_s, spread_s = 10.0, 3.0
    async with process(tmp_path, drain_pause_s=pause_s, drain_spread_s=spread_s) as (demo, http):
        base = f"http://127.0.0.1:{demo.port}"
        workers = [RemoteWorker(base, demo.token, f"s{number}") for number in range(WORKERS)]
        for worker in workers:
            await worker.transport.start()
        for worker in workers:
            await worker.until("connected")
        async with worker_of(demo) as busy:
            waiting = keep(busy)
            running = [asyncio.create_task(call(http)) for _ in range(8)]
            await busy.until(lambda: len(waiting) == 8)
            demo.signal()
            for worker in workers:
                await worker.until("waiting")
            for event in waiting:
                busy.answer(event, {"content": []})
            await busy.flush()
            assert [(await task)["result"] for task in running] == [DONE] * 8
            assert await demo.ended() == 0
        await demo.start()
        is_up = asyncio.get_running_loop().time()
        for worker in workers:
            await worker.until("connected")
        said = [state.retry_in_ms or 0 for worker in workers for _, state in worker.states if state.state == "waiting"]
        back = [worker.times("connected")[-1] for worker in workers]
        left = [worker.times("waiting")[0] for worker in workers]
        for worker in workers:
            await worker.transport.close()
        assert {state.why for worker in workers for _, state in worker.states if state.state == "waiting"} == {
            "relay_down"
        }
        assert is_up < min(left) + pause_s, "the restart took longer than the pause: this says nothing about the spread"
        assert max(said) - min(said) >= 0.8 * spread_s * 1000
        assert max(back) - min(back) >= 0.8 * spread_s
        assert all(pause_s <= came - went <= pause_s + spread_s + 5 for came, went in zip(back, left, strict=True))
        # One dial before the restart and one after it: none was refused, and none came twice.
        assert {(worker.dialer.dials, worker.dialer.opened) for worker in workers} == {(2, 2)}


class FakeBrowser:
    def __init__(self, in_flight: int = 0) -> None:
        self.in_flight = in_flight
        self.told: list[tuple[int, str, int | None]] = []
        self.left = asyncio.Event()

    def retire(self, code: int, reason: str, retry_ms: int | None = None) -> None:
        self.told.append((code, reason, retry_ms))
        self.left.set()


class FakeRooms:
    def __init__(self, *there: FakeBrowser) -> None:
        self.there = list(there)
        self.steps: list[str] = []

    def close(self) -> None:
        self.steps.append("close")

    def browsers(self) -> list[FakeBrowser]:
        return [browser for browser in self.there if not browser.told]

    def give_up(self, patience_s: float) -> None:
        self.steps.append("give up")


async def test_without_browsers_and_calls_the_drain_is_over_at_once() -> None:
    drain, relay = Drain(patience_s=600, pause_s=1, spread_s=5), FakeRooms()
    drain.attach(relay)
    async with asyncio.timeout(60):
        await drain.run()
    assert relay.steps == ["close"]


@pytest.mark.parametrize("seed", range(20))
async def test_the_delays_fill_the_spread_for_every_random_number(seed: int) -> None:
    browsers = [FakeBrowser() for _ in range(WORKERS)]
    drain = Drain(patience_s=1, pause_s=2, spread_s=10, chance=random.Random(seed))
    drain.attach(FakeRooms(*browsers))
    await drain.run()
    delays = sorted(retry_ms or 0 for browser in browsers for _, _, retry_ms in browser.told)
    assert delays[0] >= 2000 and delays[-1] <= 12_000
    assert max(after - before for before, after in pairwise(delays)) < 2 * 10_000 / WORKERS


async def test_a_browser_with_calls_is_closed_when_they_are_answered() -> None:
    busy, idle = FakeBrowser(in_flight=1), FakeBrowser()
    drain, relay = Drain(patience_s=600, pause_s=1, spread_s=5), FakeRooms(busy, idle)
    drain.attach(relay)
    with drain.exchanges:
        leaving = asyncio.create_task(drain.run())
        await idle.left.wait()
        assert busy.told == []
    await leaving
    assert [code for code, _, _ in busy.told] == [1012]
    assert relay.steps == ["close"]
