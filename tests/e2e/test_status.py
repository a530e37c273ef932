"""`<tabrelay-status>` in the header of an app: before `connect`, with a relay, without one, and by keyboard.

One relay, one browser profile and one page for the whole file; each test goes on from where the last one ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import ModuleType

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.reported_page import PANEL

PAGE = """<!doctype html>
<title>App</title>
<style>
  #top { --tabrelay-ok: rgb(1, 2, 3); }
  #top::part(label) { font-weight: 900; }
</style>
<header><tabrelay-status id="top" server="notes">Not connected</tabrelay-status></header>
<main></main>
<footer><tabrelay-status id="foot"></tabrelay-status></footer>
<script type="module" src="app.js"></script>
"""
# The page connects when its user wants it. Without the button, an attempt would come after ten minutes.
APP = """import { connect } from "RELAY/-/client.js";
import "RELAY/-/status.js";
globalThis.connectTo = (server) => connect({
  server, worker: "/tabrelay.js", token: "TOKEN", timing: { first_delay_ms: 600_000, longest_delay_ms: 600_000 },
});
document.addEventListener("connect", () => (globalThis.connection = connectTo("notes")), { once: true });
"""


class App:
    def __init__(self, relay: Demo, site: Site, context: BrowserContext, page: Page) -> None:
        self.relay, self.site, self.context, self.page = relay, site, context, page
        self.top, self.foot = page.locator("#top"), page.locator("#foot")


@pytest.fixture(scope="module")
async def app(browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("app")
    with Site(folder) as site:
        flags = ("--allow-origin", site.origin)
        async with Demo(tmp_path_factory.mktemp("home"), "notes", "other", *flags, verb="serve") as relay:
            here = f"http://127.0.0.1:{relay.port}"
            async with httpx2.AsyncClient(trust_env=False) as http:
                loader = (await http.get(f"{here}/-/tabrelay.js")).text
            files = {"index.html": PAGE, "app.js": APP, "tabrelay.js": loader}
            for name, text in files.items():
                text = text.replace("RELAY/", f"{here}/").replace("TOKEN", relay.token)
                (folder / name).write_text(text, encoding="utf-8")
            context = await browser.new_context()
            context.set_default_timeout(settings.BOOT_TIMEOUT_MS)
            page = await context.new_page()
            await page.goto(site.origin)
            yield App(relay, site, context, page)
            await context.close()


def button(element: Locator, name: str) -> Locator:
    return element.get_by_role("button", name=name)


async def test_a_page_connects_when_its_user_wants_it(app: App, settings: ModuleType) -> None:
    for element in (app.top, app.foot):
        await expect(element.get_by_role("status")).to_contain_text("Not connected")
    await button(app.top, "Why not?").click()
    await expect(app.top).to_contain_text("This page has not called connect().")
    await button(app.top, "Connect").click()
    for element in (app.top, app.foot):
        await expect(element.get_by_role("status")).to_have_text(
            "Connectednotes1 tab", timeout=settings.BOOT_TIMEOUT_MS
        )
        await expect(element).to_have_attribute("state", "connected")
        await expect(button(element, "Why not?")).to_have_count(0)
    await expect(app.top.get_by_text("This page has not called connect().")).to_be_hidden()


async def test_the_tabs_of_the_server_are_counted(app: App) -> None:
    other = await app.context.new_page()
    await other.goto(app.site.origin)
    await other.evaluate("connectTo('notes')")
    await expect(app.top).to_contain_text("2 tabs")
    await expect(other.locator("#foot")).to_contain_text("2 tabs")
    await other.evaluate("connectTo('notes').close()")
    await expect(app.top).to_contain_text("1 tab")
    await other.close()


async def test_an_app_styles_it_from_outside(app: App) -> None:
    lamp = await app.top.locator(".lamp").evaluate("lamp => getComputedStyle(lamp).backgroundColor")
    label = await app.top.locator(".label").evaluate("label => getComputedStyle(label).fontWeight")
    unstyled = await app.foot.locator(".lamp").evaluate("lamp => getComputedStyle(lamp).backgroundColor")
    assert (lamp, label) == ("rgb(1, 2, 3)", "900") and unstyled != lamp


async def test_the_address_for_clients_opens_and_closes_by_keyboard_and_stays_in_the_window(app: App) -> None:
    await app.page.set_viewport_size({"width": 390, "height": 700})
    opener = button(app.top, "Connect a client")
    details = app.top.get_by_role("group")
    await opener.focus()
    await app.page.keyboard.press("Enter")
    await expect(opener).to_have_attribute("aria-expanded", "true")
    await expect(details).to_contain_text(f"http://127.0.0.1:{app.relay.port}/notes")
    box = await details.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    await app.page.keyboard.press("Tab")
    await expect(button(app.top, "Copy")).to_be_focused()
    await app.page.keyboard.press("Escape")
    await expect(details).to_be_hidden()
    await expect(opener).to_be_focused()
    await opener.click()
    await app.page.mouse.click(200, 650)
    await expect(details).to_be_hidden()


async def test_without_a_relay_it_shows_why_with_no_panel_and_connects_when_asked(app: App) -> None:
    await app.relay.stop()
    await expect(app.top.get_by_role("status")).to_contain_text("Not connected")
    await button(app.top, "Why not?").click()
    await expect(app.top.get_by_role("group")).to_contain_text("Start it with: tabrelay serve.")
    await expect(app.top.get_by_role("group")).to_contain_text("Help: tabrelay help TR421")
    # The panel of a server that no element shows is there; it is the only one.
    await app.page.evaluate("connectTo('other')")
    await expect(app.page.locator(PANEL)).to_have_count(1)
    await app.page.evaluate("connectTo('other').close()")
    await expect(app.page.locator(PANEL)).to_have_count(0)
    await app.relay.start()
    await button(app.top, "Connect").click()
    await expect(app.top.get_by_role("status")).to_contain_text("Connected")


async def test_an_element_that_moves_shows_the_connection_that_the_app_gives_it(app: App) -> None:
    await app.page.evaluate("""() => {
        const element = document.createElement("tabrelay-status");
        element.id = "moved";
        element.connection = connection;
        document.querySelector("main").append(element);
        element.remove();
        document.querySelector("main").append(element);
    }""")
    moved = app.page.locator("#moved")
    await expect(moved).to_contain_text("Connected")
    await app.page.evaluate("connection.stop()")
    await expect(moved).to_contain_text("Not connected")
    await button(moved, "Connect").click()
    await expect(moved).to_contain_text("Connected")
