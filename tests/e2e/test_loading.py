"""Pages that load while the relay is down: each documented way of loading the client connects without a reload once the
relay runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import ModuleType

import pytest
from playwright.async_api import BrowserContext, ConsoleMessage, Page, expect

from tests.support.demo import Demo
from tests.support.documented_pages import CONNECTION, LOADER, OFFERED, ROOT, WAYS, block, fetch_files, write_page
from tests.support.other_origin import Site

# The documentation promises 5 s. The bound is five times as large, for a busy machine.
BOUND_MS = 25_000
# The first attempt has failed, and so have the requests that the browser makes by itself.
DOWN_S = 30.0


class App:
    """A web developer's folder, the relay that it names, and the console lines of its pages."""

    def __init__(self, site: Site, relay: Demo, context: BrowserContext) -> None:
        self.site, self.relay, self._context = site, relay, context
        self.said: list[str] = []
        self.errors: list[str] = []

    async def visit(self, path: str) -> Page:
        page = await self._context.new_page()
        page.on("console", self._receive)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        await page.goto(f"{self.site.origin}/{path}")
        return page

    def _receive(self, message: ConsoleMessage) -> None:
        # What the browser logs of a request that failed is its own business.
        if not message.text.startswith("Failed to load resource"):
            self.said.append(message.text)

    async def noticed(self, page: Page) -> None:
        """Wait until the page has detected that the relay is down."""
        async with asyncio.timeout(DOWN_S):
            while not self.said and await page.evaluate(f"{CONNECTION}?.state.why") != "relay_down":  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Site, Demo]]:
    """One relay for the file: each test stops it and starts it again."""
    site = Site(tmp_path_factory.mktemp("app"))
    home = tmp_path_factory.mktemp("home")
    async with Demo(home, "notes", "--allow-origin", site.origin, verb="serve") as relay:
        await fetch_files(site.folder, relay)
        with site:
            yield site, relay


@pytest.fixture
async def app(served: tuple[Site, Demo], context: BrowserContext) -> App:
    site, relay = served
    if not relay.is_running:  # the previous test has failed
        await relay.start()
    return App(site, relay, context)


@pytest.mark.parametrize("way", WAYS)
async def test_a_page_that_is_loaded_while_the_relay_is_down_connects_when_it_is_there(app: App, way: str) -> None:
    path = await write_page(app.site.folder, app.relay, way)
    await app.relay.stop()
    page = await app.visit(path)
    await app.noticed(page)
    assert await page.evaluate("globalThis.ownCodeRan")
    await app.relay.start()
    began = time.monotonic()
    await page.wait_for_function(OFFERED.replace("TOOL", WAYS[way]), timeout=BOUND_MS)
    print(f"{way}: connected {time.monotonic() - began:.1f} s after the relay was ready")
    async with app.relay.client() as client:
        assert WAYS[way] in [tool.name for tool in (await client.list_tools()).tools]
    assert app.errors == []
    # One line for the page, in the form of all reasons.
    reasons = [line for line in app.said if line.startswith("tabrelay: No relay answers at ")]
    assert len(reasons) == 1 and "Start it with: tabrelay serve" in reasons[0]


@pytest.mark.parametrize("way", ["README", "WebMCP"])
async def test_a_page_that_is_reloaded_while_the_relay_is_down_connects_when_it_is_there(
    app: App, settings: ModuleType, way: str
) -> None:
    """Its worker, if it still lives, has no tab meanwhile."""
    path = await write_page(app.site.folder, app.relay, way)
    page = await app.visit(path)
    await page.wait_for_function(OFFERED.replace("TOOL", WAYS[way]), timeout=settings.BOOT_TIMEOUT_MS)
    await app.relay.kill()
    await page.reload()
    await app.noticed(page)
    await app.relay.start()
    began = time.monotonic()
    await page.wait_for_function(OFFERED.replace("TOOL", WAYS[way]), timeout=BOUND_MS)
    print(f"{way}: connected {time.monotonic() - began:.1f} s after the relay was ready")
    assert app.errors == []


def test_the_loader_that_the_documentation_shows_is_the_one_that_the_relay_serves() -> None:
    loader = LOADER.read_text(encoding="utf-8")
    assert block("docs/reference/loader.md", "js", "load(") == loader
    assert (ROOT / "web_demo/examples/cross_origin/tabrelay.js").read_text(encoding="utf-8") == loader


LOADER_PANEL = "tabrelay-loader"


async def test_the_loader_shows_a_panel_while_the_relay_is_down_and_its_button_tries_again(app: App) -> None:
    path = await write_page(app.site.folder, app.relay, "README")
    await app.relay.stop()
    page = await app.visit(path)
    panel = page.locator(LOADER_PANEL)
    await expect(panel.locator("p")).to_contain_text("Tabrelay: No relay answers at")
    await app.relay.start()
    await panel.get_by_role("button", name="Try again").click()
    await page.wait_for_function(OFFERED.replace("TOOL", WAYS["README"]), timeout=BOUND_MS)
    await expect(panel).to_have_count(0)


async def test_the_loader_shows_no_panel_to_an_app_that_wants_none_and_hides_it_on_request(app: App) -> None:
    path = await write_page(app.site.folder, app.relay, "README")
    html = app.site.folder / path
    text = html.read_text(encoding="utf-8")
    (app.site.folder / "without.html").write_text(
        text.replace("load()", 'load("client.js", { panel: false })'), encoding="utf-8"
    )
    await app.relay.stop()
    page = await app.visit(path)
    await page.locator(LOADER_PANEL).get_by_role("button", name="Hide").click()
    await expect(page.locator(LOADER_PANEL)).to_be_hidden()
    app.said.clear()
    page = await app.visit("without.html")
    await app.noticed(page)
    assert await page.locator(LOADER_PANEL).count() == 0 and await page.evaluate("globalThis.ownCodeRan")
