"""The console's own calls: try, resend, edit, answer, cancel; breakpoints; faults; what a model sees; the waterfall.

One relay and one page for the whole file; each test uses texts of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from types import ModuleType

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.support.console_page import ConsolePage
from tests.support.waiting import until


@pytest.fixture(scope="module")
async def console(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ConsolePage]:
    async with ConsolePage(tmp_path_factory.mktemp("console"), browser, settings, faults=True) as console:
        yield console


async def tried(console: ConsolePage, part: str, entry: str) -> Locator:
    """The open form of a tool, resource or prompt."""
    await console.open(f"?server=notes&part={part}")
    kind = "data-tool" if part == "tools" else "data-entry"
    item = console.drawer.locator(f"[{kind}={entry}]")
    # Forms need the server's own list, which comes after the names of the status.
    if part == "tools":
        await expect(item.get_by_text("Definition")).to_be_visible()
    await item.get_by_role("button", name="Try").click()
    return item


async def test_a_tool_is_tried_with_a_form_and_the_call_is_the_consoles(console: ConsolePage) -> None:
    item = await tried(console, "tools", "echo")
    await item.get_by_role("textbox", name="text").fill("from the form")
    await item.get_by_role("button", name="Run").click()
    await expect(item.get_by_test_id("outcome").locator(".content-text")).to_have_text("from the form")
    await console.filter("by:console tool:echo")
    await expect(console.line("echo", state="done").locator(".client")).to_have_text("console")
    # The same as raw JSON.
    await item.get_by_role("button", name="Raw JSON").click()
    raw = item.get_by_role("textbox", name="Parameters as JSON")
    await raw.fill('{"name": "echo", "arguments": {"text": "raw"}}')
    await item.get_by_role("button", name="Run").click()
    await expect(item.get_by_test_id("outcome").locator(".content-text")).to_have_text("raw")
    await console.filter("")


async def test_a_call_that_runs_is_cancelled(console: ConsolePage) -> None:
    console.notes.go.clear()
    item = await tried(console, "tools", "waiting")
    await item.get_by_role("button", name="Run").click()
    await expect(console.line("waiting", state="running")).to_have_count(1)
    await item.get_by_role("button", name="Cancel").click()
    await expect(console.line("waiting", state="cancelled")).to_have_count(1)
    await expect(item.get_by_role("status").first).to_contain_text("Cancelled")


async def test_a_question_of_a_tool_is_answered_by_hand_and_its_rounds_are_together(console: ConsolePage) -> None:
    item = await tried(console, "tools", "booking")
    await item.get_by_role("textbox", name="room").fill("7")
    await item.get_by_role("button", name="Run").click()
    question = item.get_by_test_id("question")
    await expect(question).to_contain_text("Really book 7?")
    await question.get_by_role("textbox").fill("a meeting")
    await question.get_by_role("button", name="Answer").click()
    await expect(item.get_by_test_id("outcome").locator(".content-text")).to_have_text("Booked 7.")
    await expect(console.line("booking").first.locator(".mark")).to_have_text("2 rounds")


async def test_a_resource_and_a_prompt_are_tried(console: ConsolePage) -> None:
    item = await tried(console, "resources", "note")
    await item.get_by_role("combobox", name="title").fill("milk")
    await item.get_by_role("button", name="Run").click()
    await expect(item.get_by_test_id("outcome").locator(".content-text")).to_have_text("The note milk.")
    item = await tried(console, "prompts", "review")
    await item.get_by_role("combobox", name="code").fill("x = 1")
    await item.get_by_role("button", name="Run").click()
    await expect(item.get_by_test_id("outcome").locator(".content-text")).to_have_text("Review x = 1.")


async def test_a_call_is_sent_again_and_edited_and_runs_once_each_time(console: ConsolePage) -> None:
    await console.open()
    console.notes.runs.clear()
    async with console.client("sender") as client:
        await client.call_tool("echo", {"text": "once", "password": "hunter22"})
    await console.open_call("echo", "client:sender tool:echo")
    await console.filter("")
    await console.drawer.get_by_role("button", name="Edit and resend").click()
    form = console.drawer.get_by_test_id("try")
    await form.get_by_role("textbox", name="text").fill("edited")
    await form.get_by_role("button", name="Send").click()
    outcome = console.drawer.get_by_test_id("outcome")
    await expect(outcome.locator(".content-text")).to_have_text("edited")
    assert console.notes.runs == ["once", "edited"]
    await console.drawer.get_by_role("button", name="Resend", exact=True).click()
    await until(lambda: console.notes.runs == ["once", "edited", "once"])
    # The new call is shown.
    await expect(console.drawer.get_by_test_id("call-facts")).to_contain_text("console")


async def test_a_breakpoint_changes_what_a_tool_and_its_client_receive(console: ConsolePage) -> None:
    page = console.page
    await console.open()
    await page.get_by_role("button", name="Breakpoints").click()
    panel = console.drawer.get_by_test_id("breakpoints")
    await panel.get_by_role("textbox", name="tool").fill("ech*")
    await panel.get_by_role("combobox", name="at").select_option("both")
    await panel.get_by_role("button", name="Hold").click()
    await expect(panel.get_by_role("button", name="Remove breakpoint 1")).to_be_visible()
    console.notes.runs.clear()
    async with console.client("held") as client:
        calling = asyncio.create_task(client.call_tool("echo", {"text": "as sent"}))
        held = panel.get_by_test_id("held").locator("[data-held]")
        await held.get_by_role("textbox", name="Parameters").wait_for()
        body = await held.get_by_role("textbox").input_value()
        await held.get_by_role("textbox").fill(body.replace("as sent", "as edited"))
        await held.get_by_role("button", name="Release").click()
        await held.get_by_role("textbox", name="Result").wait_for()
        body = await held.get_by_role("textbox").input_value()
        await held.get_by_role("textbox").fill(body.replace("as edited", "as answered"))
        await held.get_by_role("button", name="Release").click()
        result = await calling
    assert console.notes.runs == ["as edited"]
    assert result.content[0].text == "as answered"  # type: ignore[union-attr]
    await panel.get_by_role("button", name="Remove breakpoint 1").click()
    await expect(panel.get_by_role("button", name="Remove breakpoint 1")).to_have_count(0)


async def test_the_models_view_has_tokens_and_hints_for_each_era(console: ConsolePage) -> None:
    async with console.client("old client", mode="legacy") as client:
        await client.list_tools()
    await console.open("?server=notes&part=model")
    view = console.drawer.get_by_test_id("model")
    await expect(view.locator("tr[data-tool=echo]")).to_be_visible()
    await expect(view.get_by_test_id("lint")).to_contain_text("“text” has no description")
    await view.get_by_role("combobox", name="List", exact=True).select_option(label="2025-11-25, old client")
    await expect(view.locator("tr[data-tool=echo]")).to_be_visible()


async def test_the_spans_of_the_waterfall_add_up_to_its_total(console: ConsolePage) -> None:
    async with console.client("timed") as client:
        await client.call_tool("echo", {"text": "timed"})
    await console.open()
    await console.open_call("echo", "client:timed tool:echo")
    rows = console.drawer.locator("[data-part=timing] [data-span]")
    await expect(console.drawer.locator("[data-span=run]")).to_have_attribute("data-hop", "worker")
    await expect(console.page).to_have_url(re.compile("call="))
    spans = [float(await row.get_attribute("data-ms") or 0) for row in await rows.all()]
    [detail] = (
        await console.relay.http.post(
            "/-/console/details", json={"ids": [console.page.url.split("call=")[1].split("&")[0]]}
        )
    ).json()["details"]
    assert len(spans) > 4 and sum(spans) == pytest.approx(detail["total_ms"], abs=0.1)
    await console.filter("")


async def test_faults_are_injected_with_buttons(console: ConsolePage) -> None:
    console.notes.go.clear()
    await console.open("?q=tool:waiting")
    async with console.client() as client:
        calling = asyncio.create_task(client.call_tool("waiting", {}))
        await expect(console.line("waiting", state="running")).to_have_count(1)
        await console.page.get_by_role("button", name="Faults").click()
        panel = console.page.get_by_test_id("faults")
        await expect(panel.get_by_role("combobox", name="Server")).to_have_value("notes")
        await panel.get_by_role("button", name="Cut the link").click()
        await expect(panel.get_by_role("status")).to_have_text("The link was cut.")
        await client.call_tool("echo", {"text": "connected again"})
        console.notes.go.set()
        await calling
        await panel.get_by_role("spinbutton", name="Milliseconds").fill("400")
        await panel.get_by_role("button", name="Delay for 30 s").click()
        await expect(panel.get_by_role("status")).to_have_text("Messages are delayed for 30 s.")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.call_tool("echo", {"text": "later"})
        assert loop.time() - began >= 0.4
        await panel.get_by_role("spinbutton", name="Milliseconds").fill("99999")
        await panel.get_by_role("button", name="Delay for 30 s").click()
        await expect(panel.get_by_role("status")).to_contain_text("Expected server")
        await panel.get_by_role("button", name="End the delay").click()
        await expect(panel.get_by_role("status")).to_have_text("Messages are not delayed.")
