"""The five steps of the demo's guide: each is done when it happened, by the page or a client, and stays done.

One relay, one profile and one page for the file. The steps run in their order, and each test names the step it does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
from collections.abc import AsyncIterator
from types import ModuleType
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from mcp_types import CallToolResult, TextContent
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from tests.e2e.conftest import chosen_mode, keeps_no_token, new_profile
from tests.support.approval_dialog import Dialog
from tests.support.demo import Demo
from tests.support.waiting import BOUND_S


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
    page = await context.new_page()
    await demo.open(page, settings.BOOT_TIMEOUT_MS)
    yield page
    await keeps_no_token(page)


def mark(page: Page, step: str) -> Locator:
    return page.locator(f"#guide-steps [data-step={step}]")


async def is_done(page: Page, step: str) -> None:
    await expect(mark(page, step)).to_have_attribute("data-done", "true")


async def choose(page: Page, step: str) -> Locator:
    """The text and the buttons of a step, which is not done yet."""
    await expect(mark(page, step)).to_have_attribute("data-done", "false")
    await mark(page, step).click()
    await expect(page.locator(f"#guide-step[data-shown={step}]")).to_be_visible()
    return page.locator("#guide-step")


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_running_a_tool_shows_the_call_with_arguments_and_result(page: Page) -> None:
    step = await choose(page, "run")
    await step.get_by_role("button", name="Run add(2, 3)").press("Enter")
    await expect(page.locator("#last-call")).to_have_text("add(2, 3) → 5")
    await expect(page.locator("#last-about")).to_contain_text("this page → worker")
    await is_done(page, "run")
    await expect(step.get_by_role("button", name="Run add(2, 3)")).to_be_focused()
    await expect(page.locator("#guide-count")).to_have_text("1 of 5 done")
    await step.get_by_role("button", name="Run draw_circle").click()
    await expect(page.locator("#last-call")).to_contain_text("radius=56")
    await expect(page.locator("#last-about")).to_contain_text("this page → this tab")
    first = page.locator("#calls [data-call]").first
    await expect(first.locator(".result")).to_contain_text("Drew a yellow circle at (660, 105), radius 56.")


async def test_a_client_that_calls_is_connected_and_its_call_is_shown_in_the_same_way(demo: Demo, page: Page) -> None:
    await choose(page, "connect")
    async with demo.client() as client:
        assert text(await client.call_tool("add", {"a": 20, "b": 22})) == "42"
    await is_done(page, "connect")
    await expect(page.locator("#last-call")).to_have_text("add(20, 22) → 42")
    await expect(page.locator("#line [data-stop=client] span")).to_have_text("mcp")


async def test_links_and_commands_for_clients_start_the_bridge_and_hold_no_secret(demo: Demo, page: Page) -> None:
    await page.locator("#guide-steps [data-step=connect]").click()
    links = [await link.get_attribute("href") or "" for link in await page.locator("#guide-step a").all()]
    assert not any(demo.token in link for link in links)
    cursor, vscode, _ = map(urlsplit, links)
    config = json.loads(base64.b64decode(parse_qs(cursor.query)["config"][0]))
    entry = json.loads(unquote(vscode.query))
    assert (cursor.scheme, parse_qs(cursor.query)["name"]) == ("cursor", ["demo"])
    assert (vscode.scheme, vscode.path, entry["name"], entry["type"]) == ("vscode", "mcp/install", "demo", "stdio")
    assert (config["command"], config["args"]) == (entry["command"], entry["args"])
    # It is the command that works here: the program prints the token with the same words.
    assert config["args"][:2] == ["stdio", "demo"]
    process = await asyncio.create_subprocess_exec(
        config["command"], "tools", "demo", *config["args"][2:], "--json", stdout=asyncio.subprocess.PIPE
    )
    assert "draw_circle" in (await process.communicate())[0].decode()
    line = await page.locator("#guide-step code").inner_text()
    assert shlex.split(line)[:4] == [config["command"], "install", "claude-code", "demo"]
    # The panel below has the same links.
    await page.locator("#connect-panel [data-client=cursor]").click()
    assert await page.locator("#connect-panel .recipe a").get_attribute("href") == links[0]


async def test_a_second_tab_shows_the_same_drawing_and_the_same_progress(
    demo: Demo, page: Page, context: BrowserContext
) -> None:
    step = await choose(page, "tab")
    async with context.expect_page() as opening:
        await step.get_by_role("link", name="Open a second tab").click()
    second = await opening.value
    await is_done(page, "tab")
    for shown in (page, second):
        await expect(shown.locator("#guide-count")).to_have_text("3 of 5 done")
    await expect(second.locator("#tab")).to_have_attribute("data-target", "true")
    async with demo.client() as client:
        await client.call_tool("draw_line", {"points": [[0, 0], [90, 90]], "color": "red"})
    await expect(page.locator("#drawing-said")).to_have_text(
        "mcp drew: red line through 2 points, from (0, 0) to (90, 90)."
    )
    await second.close()


async def test_a_call_that_loses_its_connection_is_answered_once_and_the_step_is_done(page: Page) -> None:
    step = await choose(page, "cut")
    before = await page.locator("#calls [data-call]").count()
    await step.get_by_role("button", name="cut the connection").press("Enter")
    await expect(page.locator("#last-about")).to_contain_text("The connection is cut.")
    await expect(page.locator("#line")).to_have_attribute("data-cut", "")
    await is_done(page, "cut")
    await expect(step.get_by_role("button", name="cut the connection")).to_be_focused()
    await expect(page.locator("#last-call")).to_contain_text("→ Drew a purple line through 180 points")
    await expect(page.locator("#line")).not_to_have_attribute("data-cut", "")
    await expect(page.locator("#calls [data-call]")).to_have_count(before + 1)


async def test_a_clients_call_survives_a_cut_that_the_page_made(demo: Demo, page: Page) -> None:
    reports: list[float] = []
    cut = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)
        cut.set()

    async with demo.client() as client:
        arguments = {"x": 100, "y": 100, "seconds": 2}
        call = asyncio.create_task(client.call_tool("draw_spiral", arguments, progress_callback=on_progress))
        async with asyncio.timeout(BOUND_S):
            await cut.wait()
            await page.evaluate("import('/-/demo/page_tools.js').then(({ connection }) => connection.interrupt())")
            result = await call
    assert result.structured_content is not None
    assert result.structured_content["drawn"].startswith("blue line through 180 points")
    assert reports == sorted(reports)


async def test_a_destructive_tool_waits_for_the_visitor_and_a_refusal_does_not_finish_the_step(page: Page) -> None:
    step = await choose(page, "approve")
    dialog = await Dialog.at(page)
    run = step.get_by_role("button", name="Run clear_drawing")
    await run.click()
    await dialog.until("Approve “Clear the drawing”?")
    await expect(page.locator("#last-about")).to_have_text("clear_drawing waits until you approve or refuse it.")
    await dialog.click("Refuse")
    await expect(page.locator("#last-call")).to_contain_text("refused")
    await expect(mark(page, "approve")).to_have_attribute("data-done", "false")
    await run.click()
    await dialog.until("Approve “Clear the drawing”?")
    await dialog.click("Approve once")
    await is_done(page, "approve")
    await expect(page.locator("#guide-count")).to_have_text("All steps done")
    await expect(page.locator("#canvas-empty")).to_be_visible()
    await page.locator("#undo").click()
    await expect(page.locator("#canvas-empty")).to_be_hidden()


async def test_done_steps_stay_done_after_a_reload_until_the_guide_starts_again(page: Page) -> None:
    await page.reload()
    await expect(page.locator("#guide-count")).to_have_text("All steps done")
    await expect(page.locator("#canvas-empty")).to_be_hidden()
    await page.locator("#guide-reset").click()
    await expect(page.locator("#guide-count")).to_have_text("0 of 5 done")
    await page.reload()
    await expect(page.locator("#guide-count")).to_have_text("0 of 5 done")
