"""The worker in an elected tab: there is one worker at any time, and when its tab goes, another tab starts one at
once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp_types import CallToolResult, TextContent
from playwright.async_api import Browser, async_playwright

from tests.support.chaos_app import STEADY_RELAY, STEADY_WORKER, ChaosApp
from tests.support.unmanaged_tab import Tab
from tests.support.waiting import BOUND_S

# `leads`: the worker runs here. One tool returns its tab, one waits until it is aborted.
PAGE = """<!doctype html>
<title>TITLE</title>
<script>
globalThis.leads = false;
globalThis.Worker = class extends Worker {
  constructor(...given) { super(...given); globalThis.leads = true; }
  terminate() { super.terminate(); globalThis.leads = false; }
};
</script>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.waiting = 0;
globalThis.connection = connect({ ...OPTIONS, mode: "elected" });
connection.offerTool({ name: "TITLE", execute: () => "TITLE" });
connection.offerTool({ name: "wait_TITLE", execute: (_, { signal }) => new Promise((_, reject) => {
  waiting++;
  signal.addEventListener("abort", () => { waiting--; reject(signal.reason); });
}) });
</script>
"""
READY = """connection.state.state === "connected"
    && connection.catalogue?.tools.some(({ name, owner }) => name === document.title && owner === connection.tab.id)"""


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


class Tabs:
    """Tabs of one browser, by their titles. The first one opened leads."""

    def __init__(self, browser: Browser, stage: ChaosApp, boot_timeout_s: float) -> None:
        self._browser, self.stage, self._boot_timeout_s = browser, stage, boot_timeout_s
        self.open_tabs: dict[str, Tab] = {}

    async def visit(self, title: str) -> Tab:
        self.stage.write(f"{title}.html", PAGE, title)
        self.open_tabs[title] = tab = await Tab.open(self._browser, f"{self.stage.site.origin}/{title}.html")
        return tab

    async def open(self, *titles: str) -> list[Tab]:
        tabs = [await self.visit(title) for title in titles]
        for tab in tabs:
            await self.ready(tab)
        return tabs

    async def ready(self, tab: Tab) -> None:
        await tab.until(READY, self._boot_timeout_s)

    async def close(self, title: str) -> None:
        await self.open_tabs.pop(title).close()

    async def leader(self, *titles: str) -> str:
        """The one of these tabs that leads; there are never two."""
        async with asyncio.timeout(BOUND_S):
            while True:
                leading = [title for title in titles if await self.open_tabs[title].evaluate("leads")]
                assert len(leading) <= 1
                if leading:
                    return leading[0]
                await asyncio.sleep(0.05)

    async def call(self, client: Client, tool: str) -> str:
        """Call a tool until it is available: a tab may still be connecting to the next worker."""
        async with asyncio.timeout(60):
            while True:
                try:
                    result = await client.call_tool(tool, {})
                    if not result.is_error:
                        return text(result)
                except MCPError:
                    pass  # it is not offered at this moment
                await asyncio.sleep(0.05)


@pytest.fixture
async def tabs(settings: ModuleType, snapshot: None, tmp_path: Path) -> AsyncIterator[Tabs]:
    """A separate browser with a back/forward cache."""
    options = settings.quick_boot_options(ignore_default_args=["--disable-back-forward-cache"])
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**options)
        context = await browser.new_context()
        async with ChaosApp(tmp_path, context, timing=STEADY_WORKER, **STEADY_RELAY) as stage:
            yield Tabs(browser, stage, settings.BOOT_TIMEOUT_MS / 1000)
        await browser.close()


async def test_a_leader_that_freezes_hands_over_and_follows_when_it_wakes(tabs: Tabs) -> None:
    [one] = await tabs.open("one")
    await tabs.open("two")  # in front: a visible tab does not freeze
    assert await tabs.leader("one", "two") == "one"
    async with tabs.stage.relay.client() as client:
        await one.send("Page.setWebLifecycleState", state="frozen")
        assert await tabs.leader("two") == "two"
        assert await tabs.call(client, "two") == "two"
        assert await tabs.call(client, "worker_runs") == "{}"
        await one.send("Page.setWebLifecycleState", state="active")
        await tabs.ready(one)
        assert await tabs.call(client, "one") == "one"
        assert await tabs.leader("one", "two") == "two"


async def test_a_leader_that_is_left_hands_over_and_follows_when_it_comes_out_of_the_cache(tabs: Tabs) -> None:
    [one] = await tabs.open("one")
    await tabs.open("two")
    await one.show()
    async with tabs.stage.relay.client() as client:
        await one.evaluate("globalThis.isSame = true")
        await one.send("Page.navigate", url=f"{tabs.stage.site.origin}/worker.js")
        assert await tabs.leader("two") == "two"
        assert await tabs.call(client, "two") == "two"
        await one.evaluate("void history.back()")
        await one.until("isSame === true")  # kept, not loaded again
        await tabs.ready(one)
        assert await tabs.call(client, "one") == "one"
        assert await tabs.leader("one", "two") == "two"


@pytest.mark.parametrize("how", ["close", "crash"])
async def test_calls_that_run_when_the_leader_goes_end_with_that_reason(tabs: Tabs, how: str) -> None:
    [one] = await tabs.open("one")
    [two] = await tabs.open("two")
    async with tabs.stage.relay.client() as client:
        call = asyncio.create_task(client.call_tool("wait_two", {}))
        await two.until("waiting === 1")
        if how == "close":
            await tabs.close("one")
        else:
            crash = asyncio.create_task(one.send("Page.crash"))  # which gets no answer
        async with asyncio.timeout(60):
            with pytest.raises(MCPError) as ended:
                await call
        assert ended.value.error.data is not None and ended.value.error.data["delivered"] == "unknown"
        assert "left while it had the call" in ended.value.error.message
        await two.until("waiting === 0")  # and the tool is notified that no caller waits for it
        if how == "crash":
            crash.cancel()
        assert await tabs.leader("two") == "two"
        await tabs.ready(two)
        assert await tabs.call(client, "two") == "two"


async def test_of_tabs_that_race_one_leads_until_it_closes_and_then_another(tabs: Tabs) -> None:
    titles = ["a", "b", "c", "d"]
    await tabs.open(*titles)
    async with tabs.stage.relay.client() as client:
        while titles:
            leader = await tabs.leader(*titles)
            for title in titles:
                assert await tabs.call(client, title) == title
            assert await tabs.leader(*titles) == leader
            titles.remove(leader)
            if titles:
                await tabs.close(leader)
    # One worker at a time has one socket: each of the four has connected once.
    assert tabs.stage.proxy.sockets_accepted == 4
