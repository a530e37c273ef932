"""The console's filter, palette, lanes, exports and session files, with calls of official clients.

One relay and one page for the whole file; each test gives its client a name of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support.console_page import ConsolePage


@pytest.fixture(scope="module")
async def console(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ConsolePage]:
    async with ConsolePage(tmp_path_factory.mktemp("console"), browser, settings) as console:
        yield console


async def saved(page: Page, kind: str, folder: Path) -> tuple[Path, Any]:
    """Export what is shown: the file and its JSON."""
    await page.locator("#export > summary").click()
    async with page.expect_download() as found:
        await page.locator(f"[data-export={kind}]").click()
    download = await found.value
    path = folder / download.suggested_filename
    await download.save_as(path)
    await page.locator("#export > summary").click()
    return path, json.loads(path.read_text(encoding="utf-8"))


async def test_filters_keep_what_they_should_and_stay_in_the_address(console: ConsolePage) -> None:
    page = console.page
    async with console.client("filterer") as client:
        for text in ("one", "two"):
            await client.call_tool("echo", {"text": text})
        await client.call_tool("broken", {})
    await console.filter("client:filterer status:error")
    await expect(console.line("broken")).to_have_count(1)
    await expect(console.line("echo")).to_have_count(0)
    await console.filter("client:filterer tool:echo ms:<60000 -status:failed")
    await expect(console.line("echo")).to_have_count(2)
    await expect(page.get_by_test_id("calls-count")).to_contain_text("2 of ")
    await expect(page).to_have_url(re.compile("q=client%3Afilterer"))
    await page.reload()
    await expect(console.line("echo")).to_have_count(2)
    await console.filter("client:filterer colour:red")
    await expect(page.get_by_text("There is no key “colour”.")).to_be_visible()


async def test_a_filter_is_saved_and_used_again(console: ConsolePage) -> None:
    page = console.page
    await console.filter("status:error ms:>1")
    await page.locator(".filter-bar summary").click()
    await page.get_by_role("button", name="Save this filter").click()
    await console.filter("")
    await page.get_by_role("button", name="status:error ms:>1", exact=True).click()
    await expect(page.get_by_test_id("filter")).to_have_value("status:error ms:>1")
    await page.get_by_role("button", name="Remove the filter status:error ms:>1").click()
    await expect(page.get_by_role("button", name="status:error ms:>1", exact=True)).to_have_count(0)
    await page.locator(".filter-bar summary").click()


async def test_the_palette_opens_a_server_by_keyboard(console: ConsolePage) -> None:
    page = console.page
    await console.filter("")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Search for a command").fill("server notes")
    await expect(page.locator("#palette-list [role=option]").first).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(console.drawer.locator("#drawer-title")).to_have_text("notes")
    await page.keyboard.press("Escape")


async def test_the_timeline_filters_and_its_brush_restricts_the_list(console: ConsolePage) -> None:
    page = console.page
    for name in ("lane-a", "lane-b"):
        async with console.client(name) as client:
            await client.call_tool("echo", {"text": name})
    await page.get_by_role("combobox", name="Lanes").select_option("client")
    timeline = page.get_by_test_id("lanes")
    await timeline.locator("[data-lane=lane-a]").click()
    await expect(page.get_by_test_id("filter")).to_have_value("client:lane-a")
    await expect(console.line("echo")).to_have_count(1)
    await console.filter("client:lane-a,lane-b tool:echo")
    await expect(console.line("echo")).to_have_count(2)
    # The end of the time: only the second client called then.
    await timeline.locator("canvas").focus()
    await page.keyboard.press("ArrowRight")
    await expect(console.line("echo")).to_have_count(1)
    await expect(console.line("echo").locator(".client")).to_have_text("lane-b")
    await page.keyboard.press("Escape")
    await expect(console.line("echo")).to_have_count(2)
    await page.get_by_role("combobox", name="Lanes").select_option("")


async def test_exports_have_what_is_shown_and_no_secret(console: ConsolePage, tmp_path: Path) -> None:
    async with console.client("exporter") as client:
        await client.call_tool("echo", {"text": "exported", "password": "hunter22"})
        await client.call_tool("broken", {})
    await console.filter("client:exporter method:tools/call")
    await expect(console.page.get_by_test_id("calls-count")).to_contain_text("2 of ")
    path, har = await saved(console.page, "har", tmp_path)
    assert [entry["_mcp"]["name"] for entry in har["log"]["entries"]] == ["echo", "broken"]
    [first, _] = har["log"]["entries"]
    assert har["log"]["version"] == "1.2" and first["request"]["url"] == f"{console.relay.url}/notes"
    assert json.loads(first["request"]["postData"]["text"])["params"]["arguments"]["text"] == "exported"
    assert json.loads(first["response"]["content"]["text"])["result"]["content"][0]["text"] == "exported"
    assert first["time"] == pytest.approx(sum(part for part in first["timings"].values() if part > 0))
    for secret in (console.relay.token, "hunter22"):
        assert secret not in path.read_text(encoding="utf-8")
    _, otlp = await saved(console.page, "otlp", tmp_path)
    spans = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"]
    named = {span["name"]: span for span in spans if "parentSpanId" not in span}
    assert set(named) == {"tools/call echo", "tools/call broken"}
    assert named["tools/call broken"]["status"]["code"] == 2
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in spans)


async def test_a_session_file_opens_without_the_relay(console: ConsolePage, tmp_path: Path) -> None:
    page = console.page
    async with console.client("saver") as client:
        await client.call_tool("echo", {"text": "kept in a file"})
    await console.filter("client:saver tool:echo")
    await expect(console.line("echo")).to_have_count(1)
    await expect(page.get_by_test_id("calls-count")).to_contain_text("1 of ")  # it is captured, not of the call log
    path, session = await saved(page, "session", tmp_path)
    assert len(session["calls"]) == 1
    # From here on nothing answers.
    await page.route("**/-/**", lambda route: route.abort())
    await page.locator("#export > summary").click()
    await page.get_by_test_id("session-file").set_input_files(path)
    await page.locator("#export > summary").click()
    await expect(page.get_by_test_id("session")).to_contain_text("1 calls of")
    await console.line("echo").click()
    await expect(console.drawer.locator(".content-text")).to_have_text("kept in a file")
    await page.unroute("**/-/**")
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"a": 1}')
    await page.locator("#export > summary").click()
    await page.get_by_test_id("session-file").set_input_files(wrong)
    await expect(page.get_by_text("This is no session file of the console.")).to_be_visible()
    await page.locator("#export > summary").click()
    await page.get_by_role("button", name="Back to the live calls").click()
    await console.live()


async def test_a_call_is_copied_as_commands_and_programs_without_the_token(console: ConsolePage) -> None:
    async with console.client("copier") as client:
        await client.call_tool("echo", {"text": "it's copied"})
    await console.open_call("echo", "client:copier tool:echo")
    select = console.drawer.get_by_role("combobox", name="Copy as")
    expected = {
        "tabrelay": "call notes echo",
        "curl": "-H 'Mcp-Method: tools/call'",
        "python": 'client.call_tool("echo", {"text": "it\'s copied"})',
        "typescript": "client.callTool(",
        "pytest": "async def test_echo() -> None:",
    }
    for form, part in expected.items():
        await select.select_option(form)
        copied = console.drawer.get_by_test_id("copied").locator("code")
        await expect(copied).to_contain_text(part)
        assert console.relay.token not in await copied.inner_text()


async def test_two_calls_are_compared(console: ConsolePage) -> None:
    async with console.client("comparer") as client:
        await client.call_tool("echo", {"text": "before"})
        await client.call_tool("echo", {"text": "after"})
    await console.filter("client:comparer tool:echo")
    await expect(console.line("echo")).to_have_count(2)
    await console.line("echo").nth(1).click()
    await console.drawer.get_by_role("button", name="Compare").click()
    await console.line("echo").nth(0).click()
    await console.drawer.get_by_role("button", name="Compare").click()
    compared = console.drawer.get_by_test_id("comparison")
    await expect(compared.locator("[data-kind=removed]").first).to_contain_text('"text": "before"')
    await expect(compared.locator("[data-kind=added]").first).to_contain_text('"text": "after"')
