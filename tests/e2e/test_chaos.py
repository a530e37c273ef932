"""Calls on a link that is cut repeatedly: each caller gets its own result, and each tool runs once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp_types import CallToolResult, TextContent
from playwright.async_api import Browser, BrowserContext, Page

from tests.support.chaos_app import FAST_RELAY, FAST_WORKER, ChaosApp, expected
from tests.support.chaos_proxy import Cut, Direction, Frame, Moment
from tests.support.worker_modes import carry

SEED = 20260728
PATIENT = {"grace_s": 30, "away_wait_s": 30}


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@dataclass(frozen=True, slots=True)
class Job:
    key: str
    tool: str
    ms: int
    size: int

    @property
    def arguments(self) -> dict[str, Any]:
        return {"key": self.key, "ms": self.ms, "size": self.size}


def jobs(count: int, chance: random.Random) -> list[Job]:
    """A mix: mostly small and quick, some slow, some with 300 kB, a few with 2 MB; in the tab and in the worker."""
    made = []
    for number in range(count):
        size = 2_000_000 if number % 25 == 7 else 300_000 if number % 8 == 3 else chance.randrange(200)
        tool = "work_in_worker" if number % 4 == 1 else "work"
        made.append(Job(f"k{number}", tool, 200 if number % 5 == 2 else 0, size))
    return made


@dataclass(slots=True)
class Cutter:
    """Cuts the link at random frames until it is stopped."""

    stage: ChaosApp
    chance: random.Random
    longest_pause: int
    ways: dict[Cut, int] = field(default_factory=lambda: {Cut.RESET: 4, Cut.CLOSE: 3, Cut.HALF_OPEN: 1})
    done: Counter[tuple[Cut, Moment]] = field(default_factory=Counter)

    async def run(self) -> None:
        while True:
            left = self.chance.randint(1, self.longest_pause)

            def when(frame: Frame) -> bool:
                nonlocal left
                left -= frame.opcode < 8  # not counting pings
                return left <= 0

            [cut] = self.chance.choices(list(self.ways), list(self.ways.values()))
            moments: list[Moment] = ["before", "within", "after"]
            moment = self.chance.choice(moments)
            await self.stage.proxy.cut_at(when, moment, cut).sprung.wait()
            self.done[cut, moment] += 1


async def check_runs(page: Page, client: Client, wanted: list[Job]) -> None:
    """Each key was run exactly once, in the right place."""
    in_tab: dict[str, int] = await page.evaluate("runs")
    counted = await client.call_tool("worker_runs", {})
    assert counted.structured_content is not None
    assert in_tab == {job.key: 1 for job in wanted if job.tool == "work"}
    assert counted.structured_content == {job.key: 1 for job in wanted if job.tool == "work_in_worker"}


async def do_all(stage: ChaosApp, wanted: list[Job], at_once: int) -> None:
    """Both eras in turn, several calls at a time; every answer is checked."""
    async with stage.relay.client("auto") as modern, stage.relay.client("legacy") as legacy:
        places = asyncio.Semaphore(at_once)

        async def do(job: Job, client: Client) -> None:
            async with places:
                result = await client.call_tool(job.tool, job.arguments)
                assert not result.is_error, (job, text(result)[:300])
                # Without the texts themselves: a diff of megabytes does not help.
                assert (len(text(result)), text(result) == expected(job.key, job.size)) == (
                    len(expected(job.key, job.size)),
                    True,
                ), job

        async with asyncio.TaskGroup() as tasks:
            for number, job in enumerate(wanted):
                tasks.create_task(do(job, (modern, legacy)[number % 2]))


async def test_two_hundred_calls_survive_a_link_that_is_cut_all_the_time(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    wanted = jobs(200, chance)
    async with ChaosApp(tmp_path, context, timing=FAST_WORKER, **FAST_RELAY, **PATIENT) as stage:
        page = await stage.open(settings.BOOT_TIMEOUT_MS)
        cutter = Cutter(stage, chance, longest_pause=40)
        cutting = asyncio.create_task(cutter.run())
        try:
            async with asyncio.timeout(240):
                await do_all(stage, wanted, at_once=8)
        finally:
            cutting.cancel()
        async with stage.relay.client() as client:
            await check_runs(page, client, wanted)
        kinds = Counter(cut for cut, _ in cutter.done.elements())
        print(f"{len(wanted)} calls, {kinds.total()} cuts {dict(kinds)}, {stage.proxy.sockets_accepted} sockets")
        assert kinds.total() >= 25
        assert min(kinds[cut] for cut in Cut) >= 1


async def test_twenty_calls_survive_cuts_at_the_pace_that_people_get(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    wanted = jobs(20, chance)
    # The pauses keep growing, however long a link lasts between two cuts on a busy machine.
    async with ChaosApp(tmp_path, context, timing={"stable_ms": 60_000}) as stage:
        page = await stage.open(settings.BOOT_TIMEOUT_MS)
        # At these intervals a half-open socket is detected after half a minute, which other tests cover.
        cutter = Cutter(stage, chance, longest_pause=50, ways={Cut.RESET: 1, Cut.CLOSE: 1})
        cutting = asyncio.create_task(cutter.run())
        try:
            async with asyncio.timeout(240):
                await do_all(stage, wanted, at_once=2)
        finally:
            cutting.cancel()
        async with stage.relay.client() as client:
            await check_runs(page, client, wanted)
        pauses = await page.evaluate("states.filter(({ state }) => state === 'waiting').map((s) => s.retry_in_ms)")
        print(f"{len(wanted)} calls, {cutter.done.total()} cuts, pauses {pauses} ms")
        assert cutter.done.total() >= 3
        assert all(1_000 <= pause <= 3_300 for pause in pauses)
        assert pauses[0] <= 1_100 and max(pauses) > 1_800


# -- a cut at a chosen moment ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def stage(
    browser: Browser, settings: ModuleType, place: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ChaosApp, Page]]:
    """One app for all cuts: booting a worker for each of them would take longer than the cuts."""
    context = await browser.new_context()
    context.set_default_timeout(settings.ACTION_TIMEOUT_MS)
    await carry(context, place)
    folder = tmp_path_factory.mktemp("directed")
    async with ChaosApp(folder, context, timing=FAST_WORKER, **FAST_RELAY, **PATIENT) as stage:
        yield stage, await stage.open(settings.BOOT_TIMEOUT_MS)
        await context.close()


def carries(way: Direction, key: str) -> Any:
    """A frame with a call of `key` on its way down, or with a piece of its result on its way up."""
    return lambda frame: frame.way is way and frame.opcode < 8 and key in frame.text


CUTS = pytest.mark.parametrize("cut", list(Cut))
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def count(page: Page, client: Client, tool: str, key: str) -> Any:
    if tool == "work":
        return await page.evaluate("(key) => runs[key]", key)
    counted = (await client.call_tool("worker_runs", {})).structured_content
    assert counted is not None
    return counted.get(key)


@CUTS
@pytest.mark.parametrize("tool", ["work", "work_in_worker"])
@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_a_cut_at_the_request_only_delays_the_call(
    stage: tuple[ChaosApp, Page], moment: Moment, tool: str, cut: Cut
) -> None:
    scene, page = stage
    key = f"request-{moment}-{tool}-{cut}"
    async with scene.relay.client() as client:
        planned = scene.proxy.cut_at(carries(Direction.DOWN, key), moment, cut)
        result = await client.call_tool(tool, {"key": key})
        assert planned.sprung.is_set()
        assert text(result) == expected(key, 0)
        assert await count(page, client, tool, key) == 1


@CUTS
@pytest.mark.parametrize(("tool", "size"), [("work", 2_000_000), ("work_in_worker", 0)], ids=["large", "small"])
@pytest.mark.parametrize("moment", ["before", "within", "after"])
async def test_a_cut_at_the_result_only_delays_the_call(
    stage: tuple[ChaosApp, Page], moment: Moment, tool: str, size: int, cut: Cut
) -> None:
    scene, page = stage
    key = f"result-{moment}-{size}-{tool}-{cut}"
    async with scene.relay.client() as client:
        planned = scene.proxy.cut_at(carries(Direction.UP, key), moment, cut)
        result = await client.call_tool(tool, {"key": key, "size": size})
        assert planned.sprung.is_set()
        assert text(result) == expected(key, size)
        assert await count(page, client, tool, key) == 1


@CUTS
@ERAS
@pytest.mark.parametrize("is_back_first", [True, False], ids=["back-first", "done-first"])
async def test_a_cut_while_the_tool_runs_loses_nothing(
    stage: tuple[ChaosApp, Page], is_back_first: bool, mode: str, cut: Cut
) -> None:
    """The tool ends after the link is back, or while it is down."""
    scene, page = stage
    key = f"running-{is_back_first}-{mode}-{cut}"
    async with scene.relay.client(mode) as client, asyncio.TaskGroup() as tasks:
        call = tasks.create_task(client.call_tool("gate", {"key": key}))
        await scene.runs(page, key)
        assert scene.proxy.cut(cut) == 1
        if is_back_first:
            await scene.proxy.until(lambda: bool(scene.proxy.sockets))
        await page.evaluate("(key) => gates[key]()", key)
        assert text(await call) == key
        assert await page.evaluate("(key) => runs[key]", key) == 1


# -- past a deadline ---------------------------------------------------------------------------------------------------


async def test_over_the_grace_a_call_in_flight_has_an_unknown_outcome_and_a_new_one_none(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    quick = {"grace_s": 1.5, "away_wait_s": 0.7}
    async with ChaosApp(tmp_path, context, timing=FAST_WORKER, **FAST_RELAY, **quick) as stage:
        page = await stage.open(settings.BOOT_TIMEOUT_MS)
        async with stage.relay.client() as client:
            call = asyncio.create_task(client.call_tool("gate", {"key": "lost"}))
            await stage.runs(page, "lost")
            stage.proxy.is_refusing = True
            stage.proxy.cut()
            await stage.away()
            with pytest.raises(MCPError) as late:
                await client.call_tool("work", {"key": "late"})
            assert late.value.error.code == -31010
            assert isinstance(late.value.error.data, dict)
            assert late.value.error.data["reason"] == "server_offline"
            assert late.value.error.data["delivered"] == "no"
            with pytest.raises(MCPError) as lost:
                await call
            assert lost.value.error.code == -31011
            assert isinstance(lost.value.error.data, dict)
            assert lost.value.error.data["reason"] == "browser_gone"
            assert lost.value.error.data["delivered"] == "unknown"
            stage.proxy.is_refusing = False
            await page.wait_for_function("connection.state.state === 'connected'")
            assert text(await client.call_tool("work", {"key": "again"})) == "again;"
        assert await page.evaluate("runs") == {"lost": 1, "again": 1}


async def test_a_call_made_while_the_browser_is_away_waits_for_it(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with ChaosApp(tmp_path, context, timing=FAST_WORKER, **FAST_RELAY, **PATIENT) as stage:
        page = await stage.open(settings.BOOT_TIMEOUT_MS)
        mode = await page.evaluate("connection.mode")
        # The page reaches the relay: a reason to replace a worker, but not one that was connected.
        stage.proxy.only_websockets = stage.proxy.is_refusing = True
        stage.proxy.cut()
        await stage.proxy.until(lambda: stage.proxy.held(Direction.DOWN) == 0)
        async with stage.relay.client("2026-07-28") as client:
            refused = stage.proxy.sockets_accepted
            call = asyncio.create_task(client.call_tool("work", {"key": "patient"}))
            await stage.proxy.until(lambda: stage.proxy.sockets_accepted >= refused + 6)
            assert not call.done()
            stage.proxy.is_refusing = False
            assert text(await call) == "patient;"
        assert await page.evaluate("[connection.mode, runs]") == [mode, {"patient": 1}]
