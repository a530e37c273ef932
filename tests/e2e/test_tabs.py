"""Tabs as owners of their tools: stable ids, the tab that a call means, and calls of tabs that close.

One browser and one worker for most of the file; each test has its own tools, so that none is left over from another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from mcp.client.client import Client
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    RequestParamsMeta,
    TextContent,
    ToolListChangedNotification,
)
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.support.chaos_app import SERVER, STEADY_RELAY, STEADY_WORKER, ChaosApp
from tests.support.unmanaged_tab import Tab
from tests.support.waiting import BOUND_S, pause
from tests.support.worker_modes import carry

DUPLICATOR = Path(__file__).parents[1] / "support" / "duplicator"
DUPLICATE = """async (title) => {
  const [tab] = await chrome.tabs.query({ title });
  await chrome.tabs.duplicate(tab.id);
}"""
# On a busy machine a reload takes longer than the default timeout.
TIMING = {**STEADY_WORKER, "tab_return_ms": 10_000}
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])

# Offers the tools in its address: one that returns its tab, and one that never ends.
PAGE = """<!doctype html>
<title>TITLE</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const asked = new URLSearchParams(location.search);
const name = asked.get("tool") ?? "whoami";
document.title = asked.get("title") ?? "TITLE";
globalThis.loaded = performance.timeOrigin;
globalThis.runs = 0;
globalThis.waiting = 0;
globalThis.connection = connect(OPTIONS);
globalThis.isOffered = (name) =>
  connection.state.state === "connected" && connection.catalogue?.tools.some((tool) => tool.name.startsWith(name));
connection.offerTool({
  name,
  description: asked.get("says") ?? "Which tab is this?",
  execute: () => (runs++, document.title),
});
connection.offerTool({
  name: `${name}_wait`,
  description: "Never ends.",
  execute: () => (waiting++, new Promise(() => {})),
});
connection.offerTool({
  name: `${name}_ask`,
  description: "Ask the user for a name.",
  async execute(args, { elicit, progress }) {
    progress(1, 2);
    const { content } = await elicit("Your name?", { type: "object", properties: { name: { type: "string" } } });
    return `${content.name} in ${document.title}`;
  },
});
</script>
<a id="next" href="/next.html?title=Next&tool=ids">next</a>
"""


class Tabs:
    """Tabs of one web app, and the answers that MCP clients get from them."""

    def __init__(self, stage: ChaosApp, timeout_ms: float) -> None:
        self.stage = stage
        self._timeout_ms = timeout_ms
        for name in ("tab.html", "next.html"):
            stage.write(name, PAGE, "A tab")

    def address(self, tool: str, title: str, says: str = "") -> str:
        return f"tab.html?tool={tool}&title={title}" + (f"&says={says}" if says else "")

    async def open(self, tool: str, title: str, says: str = "") -> Page:
        page = await self.stage.visit(self.address(tool, title, says))
        await self.ready(page, tool)
        return page

    async def ready(self, page: Page, tool: str) -> None:
        """Its page is loaded, and all tabs know that it offers its tools."""
        condition = f"globalThis.isOffered?.('{tool}_ask')"
        await page.wait_for_function(condition, timeout=self._timeout_ms)

    async def reload(self, page: Page, tool: str) -> None:
        await page.reload()
        await self.ready(page, tool)


async def reload_by_script(page: Page) -> None:
    """Reloads as a page does, which announces its return; the browser's own button does not."""
    async with page.expect_event("load"):
        await page.evaluate("void setTimeout(() => location.reload())")


async def leave(*pages: Page) -> None:
    """Close them in a way that can't be a reload: their tools go now, not during the next test."""
    for page in pages:
        await page.evaluate("connection.close()")
        await page.close()


async def id_of(page: Page) -> str:
    found = await page.evaluate("connection.tab.id")
    assert isinstance(found, str) and found
    return found


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def meta(**more: object) -> RequestParamsMeta:
    """The request's members about tabs: `tab=…`, `pin=…`."""
    return cast("RequestParamsMeta", {f"tabrelay/{name}": value for name, value in more.items()})


async def say(client: Client, tool: str, **more: object) -> str:
    return text(await client.call_tool(tool, {}, meta=meta(**more)))


async def names(client: Client, tool: str) -> list[str]:
    """The listed names of this tool; several if there are different ones."""
    listed = [each.name for each in (await client.list_tools()).tools]
    return [name for name in listed if name.startswith(tool) and not name.endswith(("_wait", "_ask"))]


@pytest.fixture(scope="module")
async def profile(
    settings: ModuleType, place: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[BrowserContext]:
    """A whole browser: Playwright's own contexts have neither extensions nor a back/forward cache."""
    options = settings.quick_boot_options(
        args=[f"--disable-extensions-except={DUPLICATOR}", f"--load-extension={DUPLICATOR}"],
        ignore_default_args=["--disable-back-forward-cache", "--disable-extensions"],
    )
    async with async_playwright() as playwright:
        folder = tmp_path_factory.mktemp("profile")
        context = await playwright.chromium.launch_persistent_context(folder, **options)
        context.set_default_timeout(settings.ACTION_TIMEOUT_MS)
        await carry(context, place)
        yield context
        await context.close()


@pytest.fixture(scope="module")
async def tabs(
    profile: BrowserContext, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Tabs]:
    async with ChaosApp(tmp_path_factory.mktemp("tabs"), profile, timing=TIMING, **STEADY_RELAY) as stage:
        tabs = Tabs(stage, settings.BOOT_TIMEOUT_MS)
        # The worker lives in the process of the tab that starts it: this one stays.
        await tabs.open("anchor", "Anchor")
        yield tabs
        assert stage.proxy.sockets_accepted == 1


# -- ids ---------------------------------------------------------------------------------------------------------------


async def test_a_tabs_id_stays_its_own_through_reloads_and_history_and_is_not_inherited(
    profile: BrowserContext, tabs: Tabs
) -> None:
    first = await tabs.open("ids", "First")
    id = await id_of(first)
    for _ in range(5):
        await tabs.reload(first, "ids")
        assert await id_of(first) == id

    # A link to another page of the app and back: out of the back/forward cache, unchanged.
    loaded = await first.evaluate("loaded")
    await first.click("#next")
    await first.wait_for_function("document.title === 'Next'")
    await tabs.ready(first, "ids")
    assert await id_of(first) == id
    await first.go_back(wait_until="commit")
    await first.wait_for_function("loaded === " + repr(loaded))
    await tabs.ready(first, "ids")
    assert await id_of(first) == id

    # A window that a page opens, and a duplicated tab, begin with a copy of its session storage.
    async with profile.expect_page() as opened:
        await first.evaluate("void open('/tab.html?title=Opened&tool=ids')")
    second = await opened.value
    await tabs.ready(second, "ids")
    [worker] = profile.service_workers
    async with profile.expect_page() as opened:
        await worker.evaluate(DUPLICATE, "First")
    third = await opened.value
    await tabs.ready(third, "ids")
    await third.evaluate("document.title = 'Duplicate'")
    ids = [id, await id_of(second), await id_of(third)]
    assert len(set(ids)) == 3
    async with tabs.stage.relay.client() as client:
        assert [await say(client, "ids", tab=each) for each in ids] == ["First", "Opened", "Duplicate"]
        for page in (third, first, second):
            await tabs.reload(page, "ids")
        assert [await id_of(page) for page in (first, second, third)] == ids
        assert [await say(client, "ids", tab=each) for each in ids] == ["First", "Opened", "First"]
    await leave(first, second, third)


# -- names -------------------------------------------------------------------------------------------------------------


async def test_equal_tools_are_one_and_different_ones_keep_their_names_whatever_reloads(tabs: Tabs) -> None:
    changes = 0

    async def on_message(message: Any) -> None:
        nonlocal changes
        changes += isinstance(message, ToolListChangedNotification)

    one = await tabs.open("draw", "One", "Draw a line.")
    two = await tabs.open("draw", "Two", "Draw a circle.")
    three = await tabs.open("draw", "Three", "Draw a circle.")
    async with tabs.stage.relay.client("legacy", message_handler=on_message) as client:
        plain, suffixed = await names(client, "draw")
        assert plain == "draw" and suffixed.startswith("draw_")
        listed = {tool.name: tool.description for tool in (await client.list_tools()).tools}
        assert (listed[plain], listed[suffixed]) == ("Draw a line.", "Draw a circle.")
        before = changes
        for page in (one, two, three):
            await tabs.reload(page, "draw")
            assert await say(client, plain) == "One"
            assert await say(client, suffixed) in ("Two", "Three")
            assert await names(client, "draw") == [plain, suffixed]
        assert await say(client, "draw", tab=await id_of(two)) == "Two"
        assert changes == before  # the lists vanished and came back, and no client was notified
        await one.close()
        async with asyncio.timeout(BOUND_S):
            while await names(client, "draw") != ["draw"]:
                await pause()  # the first may only be reloading; then the name is free
        # Both names lead to it: a client that has read one can keep it.
        assert {await say(client, "draw"), await say(client, suffixed)} <= {"Two", "Three"}
        async with asyncio.timeout(BOUND_S):
            while changes == before:
                await names(client, "draw")  # the notification comes on another stream than the list
    await leave(two, three)


# -- pins --------------------------------------------------------------------------------------------------------------


@ERAS
async def test_a_pin_survives_a_reload_and_no_tab_answers_for_a_pinned_one_that_is_closed(
    tabs: Tabs, mode: str
) -> None:
    tool = f"pin_{mode}"
    pinned, other = await tabs.open(tool, "Pinned"), await tabs.open(tool, "Other")
    async with tabs.stage.relay.client(mode) as client:
        assert await say(client, tool, tab=await id_of(pinned), pin=True) == "Pinned"
        await tabs.reload(other, tool)  # visible last
        assert await say(client, tool) == "Pinned"
        before = await other.evaluate("runs")
        await reload_by_script(pinned)
        for _ in range(5):
            assert await say(client, tool) == "Pinned"
        await pinned.close()
        async with asyncio.timeout(40):
            gone = await client.call_tool(tool, {})
            # At first a reload is still possible; each error names the tab.
            while "is gone" not in text(gone):
                assert gone.is_error and 'The tab "Pinned" was closed or' in text(gone)
                await asyncio.sleep(0.02)
                gone = await client.call_tool(tool, {})
        assert gone.is_error and '"Pinned"' in text(gone)
        assert await other.evaluate("runs") == before
        assert await say(client, tool, pin=False) == "Other"
        assert await say(client, tool) == "Other"
    await leave(other)


# -- tabs that close ---------------------------------------------------------------------------------------------------


async def test_a_tab_that_is_closed_left_or_cached_fails_its_own_calls_at_once_and_no_others(tabs: Tabs) -> None:
    """The other ways, freezing and crashing, are in test_liveness."""
    stays = await tabs.open("going", "Stays")
    async with tabs.stage.relay.client() as client:

        async def unfinished_call(page: Page) -> asyncio.Task[CallToolResult]:
            call = asyncio.create_task(client.call_tool("going_wait", {}, meta=meta(tab=await id_of(page))))
            await page.wait_for_function("waiting === 1")
            return call

        async def failed(call: asyncio.Task[CallToolResult]) -> None:
            async with asyncio.timeout(6):  # sooner than a tab that may only be reloading is given up
                result = await call
            assert result.is_error and '"Goes" was closed or left while it ran' in text(result)
            said = (result.meta or {})["tabrelay/error"]
            assert said == {"reason": "tab_gone", "delivered": "unknown", "retryable": False, "help": "TR124"}
            assert await say(client, "going", tab=await id_of(stays)) == "Stays"

        page = await tabs.open("going", "Goes")
        call = await unfinished_call(page)
        await page.close()
        await failed(call)

        page = await tabs.open("going", "Goes")
        call = await unfinished_call(page)
        await page.goto("about:blank")
        await failed(call)
        await page.close()

        page = await tabs.open("going", "Goes")
        id, loaded = await id_of(page), await page.evaluate("loaded")
        call = await unfinished_call(page)
        await page.goto(f"{tabs.stage.site.origin}/worker.js")
        await failed(call)
        await page.go_back(wait_until="commit")
        await page.wait_for_function("loaded === " + repr(loaded))
        await tabs.ready(page, "going")
        assert await say(client, "going", tab=id) == "Goes"
        await page.close()
    await leave(stays)


async def test_what_is_called_while_the_only_tab_with_it_reloads_waits_for_it(tabs: Tabs) -> None:
    page = await tabs.open("again", "Again")
    async with tabs.stage.relay.client() as client:
        for _ in range(3):
            loaded = await page.evaluate("loaded")
            async with asyncio.TaskGroup() as tasks:
                reloading = tasks.create_task(reload_by_script(page))
                calls = [tasks.create_task(client.call_tool("again", {}))]
                while not reloading.done():
                    assert await names(client, "again") == ["again"]
                    calls.append(tasks.create_task(client.call_tool("again", {})))
            # A call that had begun when the page went has an unknown outcome, and its error states that. No other call
            # fails.
            ends = [(call.result().meta or {}).get("tabrelay/error", {}).get("delivered") for call in calls]
            assert set(ends) <= {None, "unknown"} and None in ends
            assert await page.evaluate("loaded") != loaded
            await tabs.ready(page, "again")
    await leave(page)


async def test_the_tab_that_the_user_looks_at_gets_the_call(
    browser: Browser, settings: ModuleType, tmp_path: Path
) -> None:
    own = await browser.browser_type.launch(**settings.quick_boot_options())
    try:
        async with ChaosApp(tmp_path, await own.new_context(), timing=TIMING, **STEADY_RELAY) as stage:
            tabs = Tabs(stage, settings.BOOT_TIMEOUT_MS)
            opened = []
            for title in ("One", "Two", "Three"):
                opened.append(await Tab.open(own, f"{stage.site.origin}/{tabs.address('look', title)}"))
                await opened[-1].until("isOffered('look_ask')", settings.BOOT_TIMEOUT_MS / 1000)
            async with stage.relay.client() as client:
                assert await say(client, "look") == "Three"
                for place, title in ((0, "One"), (1, "Two"), (0, "One")):
                    await opened[place].show()
                    await opened[place].until("document.visibilityState === 'visible'")
                    async with asyncio.timeout(BOUND_S):
                        while await say(client, "look") != title:
                            await pause()  # the worker does not know of it yet
    finally:
        await own.close()


# -- clients that read the list once -----------------------------------------------------------------------------------


async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Alice"})


async def test_a_client_that_came_before_the_browser_reaches_its_tools_by_the_list_it_read_then(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with ChaosApp(tmp_path, context, timing=TIMING, static_tools=SERVER, **STEADY_RELAY) as stage:
        tabs = Tabs(stage, settings.BOOT_TIMEOUT_MS)
        async with (
            stage.relay.client("auto", elicitation_callback=answer) as modern,
            stage.relay.client("legacy", elicitation_callback=answer) as legacy,
        ):
            for client in (modern, legacy):
                read_once = {tool.name for tool in (await client.list_tools()).tools}
                assert read_once == {"tabs_list", "tools_list", "tool_call", "tab_pin"}
            first = await tabs.open("late", "First")
            await tabs.open("late", "Second")
            for client in (modern, legacy):
                await use_statics(client)
                await client.call_tool("tab_pin", {"tab": await id_of(first)})
            await tabs.reload(first, "late")
            for client in (modern, legacy):
                assert text(await client.call_tool("tool_call", {"name": "late"})) == "First"
            await first.close()
            for client in (modern, legacy):
                async with asyncio.timeout(10):
                    gone = await client.call_tool("tool_call", {"name": "late"})
                assert gone.is_error and 'The tab "First" was closed or' in text(gone)
                await client.call_tool("tab_pin", {})
                assert text(await client.call_tool("tool_call", {"name": "late"})) == "Second"


async def use_statics(client: Client) -> None:
    received: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)

    listed = (await client.call_tool("tools_list", {})).structured_content
    assert listed is not None and {"late", "late_ask"} <= {tool["name"] for tool in listed["tools"]}
    found = (await client.call_tool("tabs_list", {})).structured_content
    assert found is not None and {tab["title"] for tab in found["tabs"]} == {"First", "Second"}
    result = await client.call_tool("tool_call", {"name": "late_ask"}, progress_callback=on_progress)
    assert text(result).startswith("Alice in ") and received == [1]
    wrong = await client.call_tool("tool_call", {"name": "later"})
    assert wrong.is_error and 'Did you mean "late"' in text(wrong)
