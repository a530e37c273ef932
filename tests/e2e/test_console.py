"""The console's overview and live traffic: calls of official clients as rows, their details, and the servers' drawers.

One relay and one page for the whole file; each test uses tools or texts of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from types import ModuleType

import pytest
from playwright.async_api import Browser, expect

from tests.support.console_page import MARKUP, ConsolePage

TOOLS = ("echo", "broken", "page", "look", "counting", "booking", "waiting")
# The clock of relay and page is the same: when the next row of this name started, and when it was in the document.
APPEARS = """name => {
  const known = new Set([...document.querySelectorAll(`[data-call=${name}]`)].map((row) => row.dataset.key));
  const found = { row: null };
  found.row = new Promise((resolve) => {
    const observer = new MutationObserver(() => {
      const row = [...document.querySelectorAll(`[data-call=${name}]`)].find((each) => !known.has(each.dataset.key));
      if (!row) return;
      observer.disconnect();
      const [h, m, s] = row.querySelector(".time").textContent.split(":").map(Number);
      const day = new Date();
      const started = new Date(day).setHours(h, m, 0, 0) + s * 1000;
      resolve([started, Date.now()]);
    });
    observer.observe(document.querySelector("#calls-list"), { subtree: true, childList: true, characterData: true });
  });
  return found;
}"""
# Fills a store of its own, beside the page's.
MANY = """async () => {
  const { CallStore } = await import("/-/page/console/call_store.js");
  const { VirtualList } = await import("/-/page/console/virtual_list.js");
  const { drawLine, headLine, linesOf } = await import("/-/page/console/call_lines.js");
  const store = new CallStore();
  const row = (seq) => ({
    id: `m-${seq}`, seq, group: `m-${seq}`, server: "notes", method: "tools/call", name: `tool ${seq}`, kind: "call",
    client: { name: "many", version: null }, era: null, by: "client", peer: "browser", started: seq, ms: seq % 700,
    state: "done", code: null, error: null, bytes_in: 1, bytes_out: 1, tokens_in: 1, tokens_out: 1, trace: null,
  });
  store.take(Array.from({ length: 12_000 }, (_, index) => row(index)));
  const list = new VirtualList({
    label: "Many", head: headLine(), key: ({ row }) => row.id, draw: (line, node) => drawLine(line, node, 0), open() {},
  });
  document.querySelector("#calls-list").replaceWith(list.root);
  list.root.id = "calls-list";
  list.show(linesOf(store.rows));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return { count: list.items.length, lines: list.root.querySelectorAll(".rows .line").length };
}"""


@pytest.fixture(scope="module")
async def console(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ConsolePage]:
    async with ConsolePage(tmp_path_factory.mktemp("console"), browser, settings) as console:
        yield console


async def test_a_call_is_a_row_while_it_runs_and_when_it_has_ended(console: ConsolePage) -> None:
    notes = console.notes
    async with console.client() as client:
        calling = asyncio.create_task(client.call_tool("waiting", {}))
        await expect(console.line("waiting", state="running")).to_have_count(1)
        await expect(console.page.get_by_test_id("calls-count")).to_contain_text("1 running")
        notes.go.set()
        await calling
        await expect(console.line("waiting", state="done")).to_have_count(1)
        await client.call_tool("broken", {})
    failed = console.line("broken", state="failed")
    await expect(failed.locator(".status")).to_have_text("tool error")
    await expect(failed.locator(".client")).to_have_text("tester")
    await expect(failed.locator(".server")).to_have_text("notes")
    await expect(console.page.locator("tr[data-server=notes] td.errors")).to_have_text("1")


async def test_a_row_appears_within_300_ms_of_its_call(console: ConsolePage) -> None:
    async with console.client() as client:
        await client.call_tool("echo", {"text": "before"})
        await expect(console.line("echo")).to_have_count(1)
        appeared = await console.page.evaluate_handle(APPEARS, "echo")
        await client.call_tool("echo", {"text": "timed"})
        started, seen = await appeared.evaluate("appeared => appeared.row")
        assert seen - started < 5 * 300  # a busy machine


async def test_a_call_shows_request_result_messages_and_its_waterfall(console: ConsolePage) -> None:
    async def report(progress: float, total: float | None, message: str | None) -> None: ...

    async with console.client() as client:
        await client.call_tool("counting", {}, progress_callback=report)
    await console.line("counting", state="done").first.click()
    drawer = console.drawer
    await expect(drawer.locator("#drawer-title")).to_be_focused()
    await expect(drawer.get_by_test_id("call-facts")).to_contain_text("tester 1.2")
    await expect(drawer.locator("[data-part=result] .content-text")).to_have_text("done")
    await expect(drawer.locator("[data-part=messages] [data-method='notifications/progress']")).to_contain_text(
        "1 of 2: half"
    )
    await expect(drawer.locator("[data-part=timing] [data-span]").first).to_be_visible()
    await expect(console.page).to_have_url(re.compile("call="))
    await console.page.reload()
    await expect(drawer.locator("[data-part=result] .content-text")).to_have_text("done")


async def test_the_tree_of_a_result_is_searched_and_folded(console: ConsolePage) -> None:
    async with console.client("searcher") as client:
        await client.call_tool("echo", {"text": "a needle in a haystack"})
    await console.open_call("echo", "tool:echo client:searcher")
    request = console.drawer.locator("[data-part=request]")
    await request.get_by_role("searchbox").fill("needle")
    await expect(request.get_by_text("1 match")).to_be_visible()
    await expect(request.locator("mark")).to_have_text("needle")
    await console.filter("")


async def test_an_error_of_tabrelay_has_a_link_to_its_entry_in_the_reference(console: ConsolePage) -> None:
    async with console.client("mistaken") as client:
        await client.call_tool("echo", {})
    await console.open_call("echo", "tool:echo client:mistaken")
    link = console.drawer.get_by_test_id("call-facts").get_by_role("link", name="TR131")
    await expect(link).to_have_attribute("href", "/-/docs/reference/errors/#tr131")
    await console.filter("")


async def test_the_list_is_used_by_keyboard(console: ConsolePage) -> None:
    page = console.page
    async with console.client() as client:
        await client.call_tool("page", {})
    await console.filter("method:tools/call")
    await expect(console.line("page")).not_to_have_count(0)
    await page.locator("#calls-list").focus()
    await page.keyboard.press("Home")
    await page.keyboard.press("Enter")
    await expect(console.drawer.locator("#drawer-title")).to_have_text("page")
    await page.keyboard.press("Escape")
    await expect(page.locator("#calls-list")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await page.wait_for_function(
        """() => {
          const active = document.querySelector("#calls-list").getAttribute("aria-activedescendant");
          return active && document.getElementById(active)?.ariaSelected === "true";
        }"""
    )
    await console.filter("")


async def test_ten_thousand_rows_are_listed_with_few_elements(console: ConsolePage) -> None:
    page = console.page
    async with console.client() as client:
        await client.call_tool("echo", {"text": "last"})
    made = await page.evaluate(MANY)
    assert made["count"] == 10_000 and made["lines"] < 100
    # The end of the list.
    await page.locator("#calls-list").focus()
    await page.keyboard.press("End")
    await expect(page.locator("#calls-list .rows [aria-selected=true]")).to_be_visible()
    await console.open()


async def test_a_server_has_a_drawer_with_tools_and_how_to_connect(console: ConsolePage) -> None:
    page = console.page
    await expect(page.get_by_role("button", name="Faults")).to_be_hidden()  # the relay offers none
    row = page.locator("tr[data-server=notes]")
    await expect(row.locator("td.tools")).to_have_text(str(len(TOOLS)))
    await row.get_by_role("button", name="notes").click()
    for name in TOOLS:
        await expect(console.drawer.locator(f"[data-tool={name}]")).to_be_visible()
    await console.drawer.get_by_role("tab", name="Connect").click()
    connect = console.drawer.get_by_test_id("connect")
    assert (await connect.get_by_role("link", name="Add to VS Code").get_attribute("href") or "").startswith("vscode:")
    await connect.get_by_role("combobox").select_option("zed")
    await expect(connect.locator("code").first).to_contain_text("install zed notes")
    assert console.relay.token not in await page.content()
    # The address opens the same part again.
    await expect(page).to_have_url(re.compile("part=connect"))
    await page.reload()
    await expect(connect).to_be_visible()
    await page.keyboard.press("Escape")


async def test_the_drawer_of_a_server_lists_its_sessions_and_clients(console: ConsolePage) -> None:
    sessions = console.drawer.get_by_test_id("sessions")
    async with console.client("with a session", mode="legacy") as client:
        await client.call_tool("echo", {"text": "called"})
        await console.open("?server=notes&part=clients")
        row = sessions.locator("[data-session='with a session']")
        await expect(row).to_have_count(1)
        await expect(row.locator("td").nth(0)).to_contain_text("with a session 1.2")
        await expect(row.locator("td").nth(1)).to_have_text("2025-11-25")
        await expect(row.locator("td").nth(2)).to_contain_text("token:")
        await expect(row.locator("td").nth(5)).to_have_text("0")
        # The clients below are those of the calls in the console, which come after the drawer was opened.
        await expect(console.drawer.locator("tr:not([data-session])", has_text="with a session 1.2")).to_have_count(1)
    await console.drawer.get_by_role("button", name="Read again").click()
    await expect(sessions.get_by_role("status")).to_contain_text("No client has a session.")
    await console.page.keyboard.press("Escape")


async def test_markup_of_a_result_is_text_and_an_image_is_shown(console: ConsolePage) -> None:
    async with console.client() as client:
        await client.call_tool("page", {})
        await client.call_tool("look", {})
    await console.line("page").first.click()
    await expect(console.drawer.locator(".content-text")).to_have_text(MARKUP)
    await console.line("look").first.click()
    image = console.drawer.locator(".content-image img")
    await expect(image).to_be_visible()
    assert await image.evaluate("image => image.naturalWidth") == 1
    assert await console.page.evaluate("window.pwned") is None
    await console.page.keyboard.press("Escape")
    await expect(console.drawer).to_be_hidden()
