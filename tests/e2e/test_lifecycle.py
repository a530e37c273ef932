"""Lifecycle of the worker and its calls: pages reload or close, the worker or the browser sleeps or dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import CallToolResult, TextContent
from playwright.async_api import Browser, BrowserContext, Error, Page, async_playwright

from tests.support.chaos_app import FAST_RELAY, FAST_WORKER, OFFERED, STEADY_RELAY, STEADY_WORKER, ChaosApp
from tests.support.chaos_proxy import Direction
from tests.support.waiting import BOUND_S
from tests.support.worker_modes import SHARED_ONLY

STARTED = "activity.some(({ name, phase }) => name === 'NAME' && phase === 'started')"


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.fixture
async def stage(context: BrowserContext, tmp_path: Path) -> AsyncIterator[ChaosApp]:
    async with ChaosApp(tmp_path, context, timing=STEADY_WORKER, **STEADY_RELAY) as stage:
        yield stage


async def offered(page: Page, settings: ModuleType) -> None:
    await page.wait_for_function(OFFERED.replace("TOOL", "work"), timeout=settings.BOOT_TIMEOUT_MS)


async def worker_target(browser: Browser, stage: ChaosApp) -> tuple[Any, str]:
    """A DevTools session of the browser, and the target that is this app's worker."""
    session = await browser.new_browser_cdp_session()
    found = (await session.send("Target.getTargets"))["targetInfos"]
    workers = [target for target in found if target["type"] == "shared_worker"]
    [worker] = [target["targetId"] for target in workers if target["url"].startswith(f"{stage.site.origin}/")]
    return session, worker


@SHARED_ONLY
async def test_the_worker_its_link_and_its_calls_outlive_the_reload_of_the_only_tab(
    stage: ChaosApp, settings: ModuleType
) -> None:
    page = await stage.open(settings.BOOT_TIMEOUT_MS)
    async with stage.relay.client() as client:
        in_worker = asyncio.create_task(client.call_tool("work_in_worker", {"key": "worker", "ms": 3_000}))
        in_tab = asyncio.create_task(client.call_tool("gate", {"key": "tab"}))
        await page.wait_for_function(STARTED.replace("NAME", "work_in_worker"))
        await stage.runs(page, "tab")
        await page.reload()
        # A call that ran in the page ends with it, and its caller gets the error at once; one in the worker continues.
        gone = await in_tab
        assert gone.is_error and "Counting tab" in text(gone)
        assert text(await in_worker) == "worker;"
        await offered(page, settings)
        assert text(await client.call_tool("work", {"key": "again"})) == "again;"
        assert (await client.call_tool("worker_runs", {})).structured_content == {"worker": 1}
    assert stage.proxy.sockets_accepted == 1


@SHARED_ONLY
async def test_when_the_last_tab_closes_the_worker_serves_on_and_the_tabs_tools_go(
    stage: ChaosApp, context: BrowserContext, settings: ModuleType
) -> None:
    page = await stage.open(settings.BOOT_TIMEOUT_MS)
    await context.new_page()  # a browser without any page may end
    async with stage.relay.client() as client:
        running = asyncio.create_task(client.call_tool("gate", {"key": "never"}))
        await stage.runs(page, "never")
        await page.close()
        gone = await running
        assert gone.is_error and "Counting tab" in text(gone) and "closed" in text(gone)
        assert text(await client.call_tool("work_in_worker", {"key": "on"})) == "on;"
        # At first it may be a reload; then the tool is removed.
        left = await client.call_tool("work", {"key": "late"})
        assert left.is_error and "was closed or is reloading" in text(left)
        async with asyncio.timeout(BOUND_S):
            names = ["work"]
            while "work" in names:
                await asyncio.sleep(0.1)
                names = [tool.name for tool in (await client.list_tools()).tools]
        with pytest.raises(MCPError, match="work"):
            await client.call_tool("work", {"key": "later"})
    assert stage.proxy.sockets_accepted == 1


@SHARED_ONLY
async def test_the_worker_outlives_a_visit_to_another_site(stage: ChaosApp, settings: ModuleType) -> None:
    page = await stage.open(settings.BOOT_TIMEOUT_MS)
    async with stage.relay.client() as client:
        await client.call_tool("work_in_worker", {"key": "before"})
        await page.goto("about:blank")
        # No page can run its tools; the worker's own are still available.
        assert text(await client.call_tool("work_in_worker", {"key": "meanwhile"})) == "meanwhile;"
        await page.go_back()
        await offered(page, settings)
        assert text(await client.call_tool("work", {"key": "back"})) == "back;"
        counted = (await client.call_tool("worker_runs", {})).structured_content
    assert counted == {"before": 1, "meanwhile": 1}
    assert stage.proxy.sockets_accepted == 1


@SHARED_ONLY
async def test_tabs_start_a_dead_worker_again_and_its_calls_are_answered(
    stage: ChaosApp, browser: Browser, settings: ModuleType
) -> None:
    first = await stage.open(settings.BOOT_TIMEOUT_MS)
    second = await stage.open(settings.BOOT_TIMEOUT_MS, "other.html", "other")
    async with stage.relay.client() as client:
        lost = asyncio.create_task(client.call_tool("hang_in_worker", {"key": "lost"}))
        await first.wait_for_function(STARTED.replace("NAME", "hang_in_worker"))
        session, worker = await worker_target(browser, stage)
        await session.send("Target.closeTarget", {"targetId": worker})
        await first.wait_for_function("states.some(({ why }) => why === 'lost')")
        # Its progress is unknown, and the caller gets that error: it is not run a second time.
        with pytest.raises(MCPError) as told:
            await lost
        assert told.value.error.data["reason"] == "browser_gone"
        await offered(first, settings)
        await second.wait_for_function(OFFERED.replace("TOOL", "other"), timeout=settings.BOOT_TIMEOUT_MS)
        assert text(await client.call_tool("work", {"key": "first"})) == "first;"
        assert text(await client.call_tool("other", {})) == "Other tab"
        assert (await client.call_tool("worker_runs", {})).structured_content == {}
    assert stage.proxy.sockets_accepted == 2


def processes_of(ancestor: int) -> dict[int, str]:
    """Every descendant of a process, with its command line."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found: dict[int, str] = {}
    for pid in parents:
        above = pid
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor and pid != ancestor:
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the browser's processes in /proc")
async def test_a_browser_that_slept_goes_on_where_it_was_and_one_that_was_killed_is_away(
    settings: ModuleType, snapshot: None, tmp_path: Path
) -> None:
    async with async_playwright() as playwright:
        before = processes_of(os.getpid())
        browser = await playwright.chromium.launch(**settings.quick_boot_options())
        context = await browser.new_context()
        patient = {**FAST_RELAY, "grace_s": 60, "away_wait_s": 1}
        async with ChaosApp(tmp_path, context, timing=FAST_WORKER, **patient) as stage:
            page = await stage.open(settings.BOOT_TIMEOUT_MS)
            family = {
                pid: command
                for pid, command in processes_of(os.getpid()).items()
                if pid not in before and "chrom" in command.partition(" ")[0]
            }
            async with stage.relay.client() as client:
                running = asyncio.create_task(client.call_tool("gate", {"key": "slept"}))
                await stage.runs(page, "slept")
                # Suspended: no ping is answered, so the relay closes the socket and keeps the call.
                send(signal.SIGSTOP, family)
                try:
                    await stage.proxy.until(lambda: stage.proxy.held(Direction.DOWN) == 0)
                    assert not running.done()
                finally:
                    send(signal.SIGCONT, family)
                await page.evaluate("gates.slept()")
                assert text(await running) == "slept"
                assert await page.evaluate("runs") == {"slept": 1}
                # Killed: there is no close frame. A call waits for the grace period, and then its error says what to
                # do.
                send(signal.SIGKILL, family)
                await stage.away()
                with pytest.raises(MCPError) as told:
                    await client.call_tool("work", {"key": "late"})
                assert told.value.error.data["reason"] == "server_offline"
                assert "open" in told.value.error.message.lower()
        with suppress(Error):
            await browser.close()
