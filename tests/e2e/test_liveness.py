"""Liveness: a blocked worker counts as alive, a frozen or crashed tab does not, and other tabs are unaffected."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import ModuleType

import httpx2
from mcp_types import CallToolResult, TextContent
from playwright.async_api import Browser, BrowserContext, Error

from tabrelay.config.settings import Settings
from tests.support.chaos_app import OFFERED, STEADY_RELAY, STEADY_WORKER, ChaosApp
from tests.support.chaos_proxy import ChaosProxy, Direction
from tests.support.demo import Demo
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import ACCEPT, modern
from tests.support.unmanaged_tab import Tab
from tests.support.waiting import BOUND_S, pause

# The same proportions as the defaults (5 s and 30 s), but shorter for tests.
SHORT = {**STEADY_WORKER, "tab_quiet_ms": 500, "tab_silence_ms": 3_000}
BLOCKED_S = 60


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


# -- the worker --------------------------------------------------------------------------------------------------------


async def test_a_worker_that_is_blocked_for_a_minute_keeps_its_link_and_returns_its_result(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    """The browser answers protocol pings for a blocked worker. Twenty of them, so that a missing one would show.

    The worker's own watchdog has its real time, which is shorter than the block: it must read before it decides.
    """
    async with ChaosApp(tmp_path, context, ping_interval_s=2, ping_timeout_s=2) as stage:
        page = await stage.open(settings.BOOT_TIMEOUT_MS)
        async with stage.relay.client() as client, asyncio.TaskGroup() as tasks, asyncio.timeout(BLOCKED_S * 3):
            blocked = tasks.create_task(client.call_tool("block", {"key": "long", "seconds": BLOCKED_S}))
            # Let it begin, then queue calls behind it: they are served when the worker is free again.
            await page.wait_for_function("activity.some(({ name, phase }) => name === 'block' && phase === 'started')")
            behind = tasks.create_task(client.call_tool("work", {"key": "behind"}))
            assert text(await blocked) == "long"
            assert text(await behind) == "behind;"
            counted = (await client.call_tool("worker_runs", {})).structured_content
        assert counted == {"long": 1}
        assert await page.evaluate("runs") == {"behind": 1}
        assert stage.proxy.sockets_accepted == 1


# -- tabs --------------------------------------------------------------------------------------------------------------


async def test_a_frozen_tab_fails_its_own_calls_by_name_and_works_again_when_it_wakes(
    browser: Browser, settings: ModuleType, tmp_path: Path
) -> None:
    own = await browser.browser_type.launch(**settings.quick_boot_options())
    try:
        context = await own.new_context()
        async with ChaosApp(tmp_path, context, timing=SHORT, **STEADY_RELAY) as stage:
            tab = await Tab.open(own, f"{stage.site.origin}/index.html")
            # In front of the first one, which is hidden now: a visible tab does not freeze.
            other = await Tab.open(own, f"{stage.site.origin}/other.html")
            for each, tool in ((tab, "work"), (other, "other")):
                await each.until(OFFERED.replace("TOOL", tool), settings.BOOT_TIMEOUT_MS / 1000)
            await freeze_and_unfreeze(stage, tab)
    finally:
        await own.close()


async def freeze_and_unfreeze(stage: ChaosApp, tab: Tab) -> None:
    async with stage.relay.client() as client:
        call = asyncio.create_task(client.call_tool("gate", {"key": "cold"}))
        await tab.until("runs.cold === 1")
        await tab.send("Page.setWebLifecycleState", state="frozen")
        # Meanwhile the other tab and the worker continue.
        assert text(await client.call_tool("other", {})) == "Other tab"
        assert text(await client.call_tool("work_in_worker", {"key": "warm"})) == "warm;"
        async with asyncio.timeout(15):
            failed = await call
        assert failed.is_error
        assert '"Counting tab" is frozen' in text(failed) and "unknown" in text(failed)
        refused = await client.call_tool("work", {"key": "refused"})
        assert refused.is_error and "was not called" in text(refused)
        assert text(await client.call_tool("other", {})) == "Other tab"
        await tab.send("Page.setWebLifecycleState", state="active")
        async with asyncio.timeout(BOUND_S):
            while (again := await client.call_tool("work", {"key": "again"})).is_error:
                await pause()  # it has not reported its return yet
        assert text(again) == "again;"
    assert await tab.evaluate("runs") == {"cold": 1, "again": 1}
    assert stage.proxy.sockets_accepted == 1


async def test_the_wait_for_a_tab_that_computes_without_a_pause_has_a_deadline(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with ChaosApp(tmp_path, context, timing=SHORT, **STEADY_RELAY) as stage:
        await stage.open(settings.BOOT_TIMEOUT_MS, "other.html", "other")
        page = await stage.open(settings.BOOT_TIMEOUT_MS)
        async with stage.relay.client() as client:
            # Longer than `quiet`, so that it is pinged; shorter than `silence`, so that it is not given up.
            assert text(await client.call_tool("spin", {"key": "busy", "ms": 1_500})) == "busy"
            call = asyncio.create_task(client.call_tool("spin", {"key": "stuck", "ms": 8_000}))
            async with asyncio.timeout(15):
                failed = await call
            assert failed.is_error and '"Counting tab" does not answer' in text(failed)
            assert text(await client.call_tool("other", {})) == "Other tab"
            async with asyncio.timeout(BOUND_S):
                while (again := await client.call_tool("work", {"key": "again"})).is_error:
                    await page.evaluate("0")  # answers when the tab does
            assert text(again) == "again;"
        assert await page.evaluate("runs") == {"busy": 1, "stuck": 1, "again": 1}


async def test_a_crashed_tab_fails_its_own_calls_by_name_and_no_other_calls(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with ChaosApp(tmp_path, context, timing=SHORT, **STEADY_RELAY) as stage:
        # The worker lives in the process of the tab that started it: another tab must crash.
        await stage.open(settings.BOOT_TIMEOUT_MS, "other.html", "other")
        page = await stage.open(settings.BOOT_TIMEOUT_MS)
        session = await context.new_cdp_session(page)
        crashed = asyncio.Event()
        page.on("crash", lambda _page: crashed.set())
        async with stage.relay.client() as client, asyncio.TaskGroup() as tasks:
            call = tasks.create_task(client.call_tool("gate", {"key": "doomed"}))
            other = tasks.create_task(client.call_tool("work_in_worker", {"key": "safe", "ms": 1_000}))
            await stage.runs(page, "doomed")
            crash = asyncio.create_task(session.send("Page.crash"))
            async with asyncio.timeout(15):
                await crashed.wait()
                failed = await call
            crash.cancel()
            with suppress(asyncio.CancelledError, Error):
                await crash
            assert failed.is_error
            assert '"Counting tab"' in text(failed) and "unknown" in text(failed)
            assert text(await other) == "safe;"
            assert text(await client.call_tool("other", {})) == "Other tab"
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert "other" in tools and "gate" not in tools
        assert stage.proxy.sockets_accepted == 1


# -- a browser that does not read --------------------------------------------------------------------------------------


def test_by_default_a_browser_that_does_not_read_is_disconnected_in_35_s() -> None:
    times = Settings()
    assert times.ping_interval_s + times.ping_timeout_s + times.abort_after_s <= 35
    # Its session lasts much longer than the detection takes.
    assert times.grace_s >= 30


CONNECTIONS = Path("/proc/net/tcp")
CAN_TELL = CONNECTIONS.exists()


def is_held(port: int, caller: int) -> bool:
    """Whether the program that listens on a port holds a descriptor for this caller. Only Linux reports it; other
    systems return False."""
    lines = CONNECTIONS.read_text().splitlines()[1:] if CAN_TELL else []
    for _, here, there, *rest in map(str.split, lines):
        if (here[-4:], there[-4:]) == (f"{port:04X}", f"{caller:04X}"):
            return rest[6] != "0"  # the inode; a connection that only the kernel keeps has none
    return False


async def test_a_browser_that_does_not_read_is_disconnected_in_time_and_keeps_its_session(tmp_path: Path) -> None:
    """All of the relay's own times are divided by one number, and so is the bound."""
    scale, times = 3, Settings()
    names = ("ping_interval_s", "ping_timeout_s", "abort_after_s", "send_timeout_s", "heartbeat_s")
    scaled = {name: getattr(times, name) / scale for name in names}
    loop = asyncio.get_running_loop()
    async with ChaosProxy() as proxy, AsyncExitStack() as stack:
        flags = ["--allow-host", f"127.0.0.1:{proxy.port}"]
        relay = await stack.enter_async_context(Demo(tmp_path / "home", "notes", *flags, verb="serve", **scaled))
        proxy.target = ("127.0.0.1", relay.port)
        worker = await stack.enter_async_context(SyntheticWorker(proxy.origin, relay.token, "notes"))
        headers = {"Authorization": f"Bearer {relay.token}", "Accept": ACCEPT}
        http = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=60, headers=headers))
        sid = worker.link.sid
        [caller] = [connection.relay_sees[1] for connection in proxy.sockets]
        assert is_held(relay.port, caller) is CAN_TELL
        proxy.freeze(Direction.DOWN)
        began = loop.time()
        # More than the buffers of the relay, the proxy and both kernels hold.
        arguments = {"pad": "x" * 3_000_000}
        requests = [modern("tools/call", {"name": "echo", "arguments": arguments}, id=n) for n in range(4)]
        calls = [asyncio.create_task(http.post(relay.mcp_url, **request)) for request in requests]
        async with asyncio.timeout(30):
            while any(row["state"] == "online" for row in (await relay.status())["servers"]):
                await pause()  # ask again: the relay has not given up yet
            while is_held(relay.port, caller):
                await relay.status()  # it has closed the browser's socket, but not the descriptor yet
        assert loop.time() - began <= 35 / scale + 5
        proxy.cut()
        proxy.unfreeze(Direction.DOWN)
        await worker.dropped()
        await worker.dial()
        await worker.until(lambda: worker.link.is_up)
        assert worker.link.sid == sid
        answers = await asyncio.gather(*calls)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert all("xxx" in answer.text and '"error"' not in answer.text for answer in answers)
        assert len(worker.calls) == 4
