"""The demo, end to end: an MCP client's call reaches a tab of a real browser and returns.

One relay, one browser and one page for most of the file; a test withdraws the tools that it offers.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
from mcp import MCPError
from mcp_types import CallToolResult, TextContent
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.e2e.conftest import chosen_mode, keeps_no_token, new_profile
from tests.support.demo import TOOLS, Demo
from tests.support.waiting import BOUND_S

ERAS = pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    async with Demo(tmp_path_factory.mktemp("demo") / "home") as demo:
        yield demo


@pytest.fixture(scope="module")
async def context(browser: Browser, settings: ModuleType) -> AsyncIterator[BrowserContext]:
    async with new_profile(browser, settings, chosen_mode()) as context:
        yield context


@pytest.fixture(scope="module")
async def page(context: BrowserContext, demo: Demo, settings: ModuleType) -> AsyncIterator[Page]:
    """The demo page, paired and connected, with all of its tools."""
    page = await context.new_page()
    await demo.open(page, settings.BOOT_TIMEOUT_MS)
    yield page
    await keeps_no_token(page)


async def withdraw(page: Page, tool: str) -> None:
    await page.evaluate("offered.abort()")
    await page.locator(f"#tools [data-tool={tool}]").wait_for(state="detached")


@ERAS
async def test_the_official_client_lists_the_tools_and_calls_those_of_worker_and_tab(
    demo: Demo, page: Page, mode: str, version: str
) -> None:
    calls = page.locator("#calls [data-call]")
    before = await calls.count()
    async with demo.client(mode) as client:
        assert client.protocol_version == version
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == sorted(TOOLS)
        assert all(tool.description for tool in tools.values())
        assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        # Structured content is an object for clients of every era.
        assert (await client.call_tool("add", {"a": 1.5, "b": 1})).structured_content == {"result": 2.5}
        shapes = await client.call_tool("list_shapes", {})
        assert shapes.structured_content is not None
        assert shapes.structured_content["tab"] == await page.title()
    # The page lists its calls with their callers.
    await expect(calls).to_have_count(before + 3)
    for row in await calls.all():
        assert await row.get_attribute("data-phase") == "done"


@ERAS
async def test_a_bad_call_gets_a_clear_error_and_the_connection_goes_on(
    demo: Demo, page: Page, mode: str, version: str
) -> None:
    # A tool that raises, offered by this page through the public API.
    await page.evaluate(
        """async () => {
            const { connect } = await import("/-/client.js");
            globalThis.offered = new AbortController();
            connect({ server: "demo" }).offerTool({
                name: "explode",
                description: "Always fails.",
                inputSchema: { type: "object" },
                execute() { throw new Error("the fuse was lit"); },
            }, { signal: offered.signal });
        }"""
    )
    await page.locator("#tools [data-tool=explode]").wait_for()
    async with demo.client(mode) as client:
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("ad", {})
        assert unknown.value.error.code == -32602
        assert '"ad"' in unknown.value.error.message and "add" in unknown.value.error.message
        wrong = await client.call_tool("add", {"a": "two", "b": 3})
        assert wrong.is_error and "a" in text(wrong) and "number" in text(wrong)
        missing = await client.call_tool("draw_circle", {"x": 1, "y": 1})
        assert missing.is_error and "radius" in text(missing)
        raised = await client.call_tool("explode", {})
        assert raised.is_error and "the fuse was lit" in text(raised)
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
    await expect(page.locator("#state")).to_have_attribute("data-state", "connected")
    await withdraw(page, "explode")


@ERAS
async def test_progress_and_cancellation_cross_the_browser(demo: Demo, page: Page, mode: str, version: str) -> None:
    await page.evaluate(
        """async () => {
            const { connect } = await import("/-/client.js");
            globalThis.offered = new AbortController();
            connect({ server: "demo" }).offerTool({
                name: "wait",
                description: "Reports progress, then waits until it is cancelled.",
                inputSchema: { type: "object" },
                execute(args, { signal, progress }) {
                    progress(1, 2, "half");
                    return new Promise((_, reject) => signal.addEventListener("abort", () => {
                        document.title = "cancelled";
                        reject(signal.reason);
                    }));
                },
            }, { signal: offered.signal });
        }"""
    )
    await page.locator("#tools [data-tool=wait]").wait_for()
    received: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.put_nowait((progress, total, message))

    async with demo.client(mode) as client:
        call = asyncio.create_task(client.call_tool("wait", {}, progress_callback=on_progress))
        async with asyncio.timeout(BOUND_S):
            assert await received.get() == (1, 2, "half")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await expect(page).to_have_title("cancelled")
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
    await page.evaluate("document.title = ''")
    await withdraw(page, "wait")


async def test_two_tabs_share_one_socket_and_closing_one_keeps_the_others_tools(
    demo: Demo, page: Page, context: BrowserContext, settings: ModuleType
) -> None:
    sockets = demo_sockets(demo)
    second = await context.new_page()
    await demo.open(second, settings.BOOT_TIMEOUT_MS, url=demo.address)
    assert demo_sockets(demo) == sockets
    # Each tab sees its own tools, the worker's, and those of the other tab.
    assert await page.locator("#tools [data-tool=list_shapes]").count() >= 1
    async with demo.client() as client:
        await second.bring_to_front()
        # Each shows its tab, and where calls go.
        await expect(second.locator("#tab")).to_have_attribute("data-target", "true")
        await expect(page.locator("#tab")).to_have_attribute("data-target", "false")
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert sorted(listed) == sorted(TOOLS)
        await second.close()
        # The hub has removed the other tab once this page lists the tool as its own.
        await page.locator("#tools [data-group=this] [data-tool=list_shapes]").wait_for()
        await expect(page.locator("#tab")).to_contain_text("Calls of its tools come here")
        shapes = await client.call_tool("list_shapes", {})
        assert shapes.structured_content is not None and not shapes.is_error
        assert text(await client.call_tool("add", {"a": 20, "b": 3})) == "23"
    assert demo_sockets(demo) == sockets


def demo_sockets(demo: Demo) -> int:
    return sum("[accepted]" in line for line in demo.log)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_the_page_comes_back_by_itself_when_the_relay_was_restarted(demo: Demo, page: Page, how: str) -> None:
    way, tab = page.locator("#line [data-stop=relay]"), page.locator("#tab")
    async with demo.client() as client:
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
    await expect(way).to_have_attribute("data-track", "clear")
    await (demo.stop() if how == "stop" else demo.kill())
    await page.locator("#state:not([data-state=connected])").wait_for()
    # No client can call it now, and the page shows that.
    await expect(way).to_have_attribute("data-track", "dark")
    await expect(tab).to_contain_text("No calls come")
    assert await page.locator("#state").get_attribute("data-why") in ("relay_down", "lost", "restarting")
    await demo.start()
    await page.locator("#state[data-state=connected]").wait_for()
    await expect(tab).to_contain_text("Calls of its tools come here")
    async with demo.client() as client:
        assert text(await client.call_tool("add", {"a": 4, "b": 4})) == "8"
        assert not (await client.call_tool("list_shapes", {})).is_error


async def test_a_page_without_a_valid_code_shows_the_remedy(rival: BrowserContext, demo: Demo) -> None:
    page = await rival.new_page()
    await page.goto(demo.url.partition("#")[0] + "#pair=wrong")
    await page.locator("#state[data-why=not_paired]").wait_for()
    assert "tabrelay pair" in (await page.locator("#state").inner_text())
    assert "pair=" not in page.url


async def test_the_command_on_the_page_carries_the_token_without_showing_it(demo: Demo, page: Page) -> None:
    command = await page.locator("#connect code", has_text="claude mcp add").inner_text()
    assert demo.token not in await page.content()
    inner = command.split("$(", 1)[1].split(")", 1)[0].replace("\n", " ")
    printed = await asyncio.create_subprocess_exec(*shlex.split(inner), stdout=asyncio.subprocess.PIPE)
    assert (await printed.communicate())[0].decode().strip() == demo.token


async def test_the_relays_own_page_lists_the_server_and_its_tools(
    demo: Demo, page: Page, context: BrowserContext
) -> None:
    own = await context.new_page()
    await own.goto(f"http://127.0.0.1:{demo.port}/")
    row = own.locator("tr[data-server=demo]")
    await expect(row).to_have_attribute("data-state", "online")
    await row.click()
    for tool in TOOLS:
        await expect(own.locator(f"#drawer [data-tool={tool}]")).to_be_visible()
    await own.close()


async def test_nothing_is_loaded_from_other_hosts_and_no_policy_is_broken(
    rival: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    """From the first visit on: another browser, in which nothing is loaded yet, and its relay."""
    page = await rival.new_page()
    requested: list[str] = []
    said: list[tuple[str, str]] = []
    thrown: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: said.append((message.type, message.text)))
    page.on("pageerror", lambda error: thrown.append(str(error)))
    async with Demo(tmp_path / "home") as demo:
        await demo.open(page, settings.BOOT_TIMEOUT_MS)
        own = (f"http://127.0.0.1:{demo.port}/", "data:", "blob:")
        assert requested and [url for url in requested if not url.startswith(own)] == []
        assert [text for kind, text in said if kind in ("error", "warning")] == []
        assert thrown == []
