"""The core features in every browser, with the worker in either mode: see docs/reference/browsers.md."""

from __future__ import annotations

import asyncio
import time

import pytest
from mcp_types import CallToolResult, TextContent

from tests.browsers.conftest import NAMES
from tests.e2e.test_tasks import Tasks
from tests.support.browser_engines import Engine, Tab, until
from tests.support.documented_pages import OFFERED, WAYS, fetch_files, write_page
from tests.support.waiting import BOUND_S
from tests.support.web_app import App

# In Chromium, tests/e2e/test_loading.py tries all of them.
WAYS_HERE = ("README", "WebMCP", "MicroPython") if NAMES == ["chromium"] else tuple(WAYS)
WITHOUT: dict[str, dict[str, str]] = {"shared": {}, "elected": {"without": "SharedWorker"}}


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def whoami(app: App) -> str:
    async with app.relay.client() as client:
        return text(await client.call_tool("whoami", {}))


@pytest.mark.shows("attach and call")
async def test_a_page_attaches_and_its_tools_and_the_workers_are_called(
    app: App, browser: Engine, mode: str, tabs: list[Tab]
) -> None:
    tab = await app.open(browser, "One", **WITHOUT[mode])
    tabs.append(tab)
    assert await tab.run("() => connection.mode") == mode
    async with app.relay.client() as client:
        assert sorted(tool.name for tool in (await client.list_tools()).tools) == [
            *("add", "echo", "forgetting", "let_go", "saving", "whoami")
        ]
        assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}
        said = {"text": "Grüße, 世界 🌍", "much": "x" * 300_000}
        assert (await client.call_tool("echo", {"said": said})).structured_content == {"said": said}


@pytest.mark.shows("two tabs")
async def test_two_tabs_share_one_connection_and_the_first_may_close(
    app: App, browser: Engine, mode: str, tabs: list[Tab]
) -> None:
    """The first tab started the worker; where it runs in a tab, the other one takes over."""
    first = await app.open(browser, "One", **WITHOUT[mode])
    sockets = app.sockets
    second = await app.open(browser, "Two", **WITHOUT[mode])
    tabs.append(second)
    assert app.sockets == sockets
    assert await whoami(app) in ("One", "Two")
    await first.close()
    await until(
        second,
        "connection.catalogue?.tools.every(({ owner }) => owner === 'worker' || owner === connection.tab.id)",
        30,
    )
    await app.ready(second)
    assert await whoami(app) == "Two"
    async with app.relay.client() as client:
        assert (await client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"result": 2}


@pytest.mark.shows("reconnect")
async def test_a_page_comes_back_by_itself_when_the_relay_was_restarted(
    app: App, browser: Engine, mode: str, tabs: list[Tab]
) -> None:
    tab = await app.open(browser, "One", **WITHOUT[mode])
    tabs.append(tab)
    await app.relay.kill()
    await until(tab, "connection.state.state !== 'connected'", 30)
    await app.relay.start()
    await app.ready(tab)
    assert await whoami(app) == "One"


@pytest.mark.shows("reload")
async def test_a_reloaded_page_offers_its_tools_again(app: App, browser: Engine, mode: str, tabs: list[Tab]) -> None:
    tab = await app.open(browser, "One", **WITHOUT[mode])
    tabs.append(tab)
    for _ in range(2):
        await tab.run("() => { globalThis.isOld = true }")
        await tab.reload()
        await until(tab, "!globalThis.isOld", 30)
        await app.ready(tab)
        assert await whoami(app) == "One"


@pytest.mark.shows("reload")
async def test_a_task_goes_on_from_its_state_or_fails_with_a_reason_when_the_only_tab_is_reloaded(
    app: App, browser: Engine, mode: str, tabs: list[Tab]
) -> None:
    tab = await app.open(browser, "One", **WITHOUT[mode])
    tabs.append(tab)
    tasks = Tasks()
    async with app.relay.client(extensions=[tasks]) as client:
        ids: list[str] = []
        for name in ("saving", "forgetting"):
            calling = asyncio.create_task(client.call_tool(name, {}))
            async with asyncio.timeout(BOUND_S):
                ids.append(await tasks.begun.get())
            calling.cancel()
        await tab.run("() => { globalThis.isOld = true }")
        await tab.reload()
        await until(tab, "!globalThis.isOld", 30)
        await app.ready(tab)
        await client.call_tool("let_go", {})
        saved, forgotten = [await tasks.until(client.session, id, "completed", "failed") for id in ids]
        is_same_worker = forgotten["status"] == "completed"
        print(f"{browser.name}, {mode}: {'the same worker' if is_same_worker else 'another worker'}")
        assert is_same_worker or "closed or loaded again" in forgotten["error"]["message"]
        assert saved["result"]["content"][0]["text"] == ("run 1" if is_same_worker else "run 2")


@pytest.mark.shows("PyScript, MicroPython, WebMCP")
async def test_tools_of_every_kind_of_page_are_called(app: App, browser: Engine, tabs: list[Tab]) -> None:
    tabs.append(await app.open_kinds(browser))
    async with app.relay.client() as client:
        assert text(await client.call_tool("by_webmcp", {})) == "Kinds"
        for name in ("by_py", "by_mpy"):
            assert text(await client.call_tool(name, {})) == "Hello Kinds"
            assert text(await client.call_tool(name, {"greeting": "Ciao"})) == "Ciao Kinds"
            wrong = await client.call_tool(name, {"greeting": 3})
            assert wrong.is_error and "arguments.greeting: expected string" in text(wrong)


@pytest.mark.shows("fallback")
@pytest.mark.parametrize("worker", ["/blocked.js", "/blocked-later.js"])
async def test_a_shared_worker_that_does_not_reach_the_relay_is_replaced_by_one_in_a_tab(
    app: App, browser: Engine, worker: str, tabs: list[Tab]
) -> None:
    tab = await app.open(browser, "One", worker=worker)
    tabs.append(tab)
    assert await tab.run("() => connection.mode") == "elected"
    assert await whoami(app) == "One"


@pytest.mark.shows("relay started after the page")
@pytest.mark.parametrize("way", WAYS_HERE)
async def test_a_page_that_is_loaded_while_the_relay_is_down_connects_when_it_is_there(
    app: App, browser: Engine, way: str, tabs: list[Tab]
) -> None:
    """The documentation promises 5 s; the bound is five times as large, for a busy machine."""
    await fetch_files(app.site.folder, app.relay)
    path = await write_page(app.site.folder, app.relay, way)
    await app.relay.kill()
    try:
        tab = await browser.open(f"{app.site.origin}/{path}")
        tabs.append(tab)
        await until(tab, "globalThis.ownCodeRan && said.some((line) => line.includes('No relay answers at'))", 30)
    finally:
        await app.relay.start()
    began = time.monotonic()
    await until(tab, OFFERED.replace("TOOL", WAYS[way]), 25)
    print(f"{browser.name}, {way}: connected {time.monotonic() - began:.1f} s after the relay was ready")
    async with app.relay.client() as client:
        assert WAYS[way] in [tool.name for tool in (await client.list_tools()).tools]
