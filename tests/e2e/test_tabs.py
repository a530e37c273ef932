"""Tabs as owners of their tools: ids that stay, the tab that is meant, and what happens when one goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
from mcp.client.client import Client
from mcp_types import CallToolResult, RequestParamsMeta, TextContent
from playwright.async_api import BrowserContext, Page, async_playwright

from tests.support.stage import FAST_RELAY, FAST_WORKER, OFFERED, Stage

DUPLICATOR = Path(__file__).parents[1] / "support" / "duplicator"
DUPLICATE = """async (title) => {
  const [tab] = await chrome.tabs.query({ title });
  await chrome.tabs.duplicate(tab.id);
}"""
ASKED = "whoami"

PAGE = """<!doctype html>
<title>TITLE</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const asked = new URLSearchParams(location.search);
document.title = asked.get("title") ?? "TITLE";
globalThis.connection = connect(OPTIONS);
globalThis.loaded = performance.timeOrigin;
connection.offerTool({
  name: "whoami",
  description: asked.get("says") ?? "Which tab is this?",
  execute: () => document.title,
});
connection.offerTool({ name: "wait", description: "For ever.", execute: () => new Promise(() => {}) });
</script>
<a id="next" href="/next.html?title=Next">next</a>
"""


@pytest.fixture
async def profile(settings: ModuleType, tmp_path: Path) -> AsyncIterator[BrowserContext]:
    """A whole browser: Playwright's own contexts have neither extensions nor a back/forward cache."""
    options = settings.launch_options(
        args=[f"--disable-extensions-except={DUPLICATOR}", f"--load-extension={DUPLICATOR}"],
        ignore_default_args=["--disable-back-forward-cache", "--disable-extensions"],
    )
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(tmp_path / "profile", **options)
        context.set_default_timeout(settings.ACTION_TIMEOUT_MS)
        yield context
        await context.close()


class Tabs:
    """Tabs of one web app, and what MCP clients get from them."""

    def __init__(self, stage: Stage, timeout_ms: float) -> None:
        self.stage = stage
        self._timeout_ms = timeout_ms
        for name in ("tab.html", "next.html"):
            stage.write(name, PAGE, "A tab")

    async def open(self, title: str, says: str = "") -> Page:
        page = await self.stage.visit(f"tab.html?title={title}" + (f"&says={says}" if says else ""))
        await self.ready(page)
        return page

    async def ready(self, page: Page) -> None:
        offered = f"globalThis.connection && {OFFERED.replace('TOOL', ASKED)}"
        await page.wait_for_function(offered, timeout=self._timeout_ms)

    async def id(self, page: Page) -> str:
        found = await page.evaluate("connection.tab.id")
        assert isinstance(found, str) and found
        return found


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def in_tab(id: str) -> RequestParamsMeta:
    """What a request's `_meta` says to name a tab."""
    return cast("RequestParamsMeta", {"tabrelay/tab": id})


async def ask(client: Client, tab: str) -> str:
    return text(await client.call_tool(ASKED, {}, meta=in_tab(tab)))


async def test_a_tabs_id_stays_its_own_through_reloads_and_history_and_is_not_inherited(
    profile: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with Stage(tmp_path, profile, timing=FAST_WORKER, **FAST_RELAY) as stage:
        tabs = Tabs(stage, settings.BOOT_TIMEOUT_MS)
        first = await tabs.open("First")
        id = await tabs.id(first)
        for _ in range(5):
            await first.reload()
            await tabs.ready(first)
            assert await tabs.id(first) == id

        # A link to another page of the app and back: out of the back/forward cache, as it was.
        loaded = await first.evaluate("loaded")
        await first.click("#next")
        await tabs.ready(first)
        assert await tabs.id(first) == id
        await first.go_back(wait_until="commit")
        await first.wait_for_function("loaded === " + repr(loaded))
        await tabs.ready(first)
        assert await tabs.id(first) == id

        # Copies of its session storage.
        async with profile.expect_page() as opened:
            await first.evaluate("void open('/tab.html?title=Opened')")
        second = await opened.value
        await tabs.ready(second)
        [worker] = profile.service_workers
        async with profile.expect_page() as opened:
            await worker.evaluate(DUPLICATE, "First")
        third = await opened.value
        await tabs.ready(third)
        await third.evaluate("document.title = 'Duplicate'")
        ids = [id, await tabs.id(second), await tabs.id(third)]
        assert len(set(ids)) == 3
        async with stage.relay.client() as client:
            assert [await ask(client, each) for each in ids] == ["First", "Opened", "Duplicate"]
            for page in (third, first, second):
                await page.reload()
                await tabs.ready(page)
            assert [await tabs.id(page) for page in (first, second, third)] == ids
            assert [await ask(client, each) for each in ids] == ["First", "Opened", "First"]
        assert stage.proxy.sockets_accepted == 1
