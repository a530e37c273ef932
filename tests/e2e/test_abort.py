"""Aborted work ends cleanly: dials that are no longer needed, handshakes that take too long, cancelled calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
from mcp.client.client import Client
from mcp_types import TextContent
from playwright.async_api import Browser, BrowserContext, Page

from tests.e2e.conftest import chosen_mode, new_profile
from tests.support.chaos_app import FAST_RELAY, FAST_WORKER, STEADY_RELAY, STEADY_WORKER, ChaosApp
from tests.support.chaos_proxy import Direction, Frame
from tests.support.waiting import BOUND_S

HOURS_S = 7200.0

# Ways in which a page may close while its worker connects.
LEAVING = {
    "close": lambda page: page.evaluate("connection.close()"),
    "navigation": lambda page: page.goto("about:blank"),
    "end of the tab": lambda page: page.close(),
}


async def connects_as_usual(stage: ChaosApp, settings: ModuleType, dials: int) -> None:
    """A later tab connects without delay, and no other dial was made meanwhile."""
    before = stage.proxy.sockets_accepted
    assert before == dials
    page = await stage.open(settings.BOOT_TIMEOUT_MS)
    assert stage.proxy.sockets_accepted == before + 1
    assert stage.proxy.held(Direction.UP) == stage.proxy.held(Direction.DOWN) == 1
    async with stage.relay.client() as client:
        await client.call_tool("work", {"key": "later"})
    assert await page.evaluate("runs") == {"later": 1}


@pytest.mark.parametrize("how", LEAVING)
async def test_a_page_that_leaves_during_the_handshake_leaves_no_socket(
    context: BrowserContext, settings: ModuleType, tmp_path: Path, how: str
) -> None:
    async with ChaosApp(tmp_path, context, timing=STEADY_WORKER, **STEADY_RELAY) as stage:
        stage.proxy.conditions[Direction.DOWN].latency_s = HOURS_S
        page = await stage.visit()
        await stage.proxy.until(lambda: len(stage.proxy.sockets) == 1, settings.BOOT_TIMEOUT_MS / 1000)
        await LEAVING[how](page)
        await stage.proxy.until(lambda: stage.proxy.held(Direction.UP) == stage.proxy.held(Direction.DOWN) == 0)
        stage.proxy.conditions[Direction.DOWN].latency_s = 0
        await connects_as_usual(stage, settings, dials=1)


async def test_a_page_that_leaves_between_handshake_and_welcome_leaves_no_socket(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with ChaosApp(tmp_path, context, timing=STEADY_WORKER, **STEADY_RELAY) as stage:
        greeted = asyncio.Event()

        def hold_back_the_welcome(frame: Frame) -> bool:
            if frame.way is Direction.UP and '"t":"hello"' in frame.text:
                stage.proxy.conditions[Direction.DOWN].latency_s = 1.0
                greeted.set()
            return False

        planned = stage.proxy.cut_at(hold_back_the_welcome)
        page = await stage.visit()
        async with asyncio.timeout(settings.BOOT_TIMEOUT_MS / 1000):
            await greeted.wait()
        await page.evaluate("connection.close()")
        await stage.proxy.until(lambda: stage.proxy.held(Direction.UP) == stage.proxy.held(Direction.DOWN) == 0)
        stage.proxy.release(planned)
        stage.proxy.conditions[Direction.DOWN].latency_s = 0
        await connects_as_usual(stage, settings, dials=1)


async def test_a_page_that_closes_before_the_worker_is_up_causes_no_dial(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with ChaosApp(tmp_path, context, timing=STEADY_WORKER, **STEADY_RELAY) as stage:
        # Python starts slowly, so that the page can be closed before it runs.
        stage.proxy.only_websockets = False
        stage.proxy.conditions[Direction.DOWN].bytes_per_s = 1_000_000
        page = await stage.visit()
        attached = "connection.boot !== null && connection.boot.stage !== 'ready'"
        await page.wait_for_function(f"{attached} && (connection.close(), true)")
        stage.proxy.conditions[Direction.DOWN].bytes_per_s = None
        stage.proxy.only_websockets = True
        await connects_as_usual(stage, settings, dials=0)


@pytest.mark.parametrize("slow", ["handshake", "welcome"])
async def test_a_dial_slower_than_the_timeout_is_closed_and_the_next_one_works(
    context: BrowserContext, settings: ModuleType, tmp_path: Path, slow: str
) -> None:
    timing = {**FAST_WORKER, "connect_ms": 1_500}
    async with ChaosApp(tmp_path, context, timing=timing, **FAST_RELAY) as stage:
        conditions = stage.proxy.conditions[Direction.DOWN]

        def hold_back_the_welcome(frame: Frame) -> bool:
            conditions.latency_s = 3.0
            return False

        if slow == "handshake":
            conditions.latency_s = 3.0
        planned = stage.proxy.cut_at(hold_back_the_welcome)
        page = await stage.visit()
        await page.wait_for_function(
            "states.some(({ state, why }) => state === 'waiting' && why === 'timeout')",
            timeout=settings.BOOT_TIMEOUT_MS,
        )
        stage.proxy.release(planned)
        conditions.latency_s = 0
        await page.wait_for_function("connection.state.state === 'connected'")
        # Whatever the outcome of earlier attempts: one socket is left, in the browser and in the relay.
        await stage.proxy.until(lambda: stage.proxy.held(Direction.UP) == stage.proxy.held(Direction.DOWN) == 1)
        assert stage.proxy.sockets_accepted >= 2
        async with stage.relay.client() as client:
            await client.call_tool("work", {"key": "seen"})
        assert await page.evaluate("runs") == {"seen": 1}


# -- cancellation ------------------------------------------------------------------------------------------------------

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture(scope="module")
async def stage(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ChaosApp, Page]]:
    """One tab for all calls; each test has its own keys."""
    async with new_profile(browser, settings, chosen_mode()) as context:
        folder = tmp_path_factory.mktemp("cancelled")
        async with ChaosApp(folder, context, timing=FAST_WORKER, **FAST_RELAY) as stage:
            yield stage, await stage.open(settings.BOOT_TIMEOUT_MS)


async def cancelled_in_worker(client: Client, key: str) -> None:
    """Poll until the worker reports it."""
    async with asyncio.timeout(BOUND_S):
        while True:
            [listed] = (await client.call_tool("worker_cancelled", {})).content
            assert isinstance(listed, TextContent)
            if key in json.loads(listed.text):
                return


async def begun_in_worker(client: Client, key: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while True:
            counted = (await client.call_tool("worker_runs", {})).structured_content
            assert counted is not None
            if counted.get(key) == 1:
                return


@ERAS
@pytest.mark.parametrize("is_away", [False, True], ids=["connected", "away"])
async def test_a_cancelled_call_stops_the_tool_wherever_it_runs(
    stage: tuple[ChaosApp, Page], mode: str, is_away: bool
) -> None:
    """A JavaScript tool sees its signal aborted, a Python coroutine gets CancelledError; also if the link was cut."""
    scene, page = stage
    in_tab, in_worker = (f"{place}-{mode}-{is_away}" for place in ("tab", "worker"))
    async with scene.relay.client(mode) as client:
        calls = [
            asyncio.create_task(client.call_tool("hang", {"key": in_tab})),
            asyncio.create_task(client.call_tool("hang_in_worker", {"key": in_worker})),
        ]
        await scene.runs(page, in_tab)
        await begun_in_worker(client, in_worker)
        if is_away:
            scene.proxy.is_refusing = True
            scene.proxy.cut()
            await scene.proxy.until(lambda: scene.proxy.held(Direction.DOWN) == 0)
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        scene.proxy.is_refusing = False
        await page.wait_for_function("(key) => key in aborted", arg=in_tab)
        await cancelled_in_worker(client, in_worker)
    assert await page.evaluate("(key) => runs[key]", in_tab) == 1


async def test_a_cancelled_call_does_not_affect_other_calls(stage: tuple[ChaosApp, Page]) -> None:
    scene, page = stage
    before = await page.evaluate("Object.keys(aborted)")
    async with scene.relay.client() as client, asyncio.TaskGroup() as tasks:
        stays = tasks.create_task(client.call_tool("gate", {"key": "stays"}))
        goes = asyncio.create_task(client.call_tool("hang", {"key": "goes"}))
        await scene.runs(page, "stays")
        await scene.runs(page, "goes")
        goes.cancel()
        await page.wait_for_function("'goes' in aborted")
        await page.evaluate("gates.stays()")
        assert not (await stays).is_error
    assert await page.evaluate("Object.keys(aborted)") == [*before, "goes"]
