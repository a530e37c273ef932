"""`tabrelay init` and `tabrelay dev`: from an empty folder to the first call, and the permissions of its page."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from playwright.async_api import BrowserContext, Page
from playwright.async_api import Error as PlaywrightError

from tests.e2e.conftest import keeps_no_token
from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.waiting import BOUND_S, until

# The promise is a minute, and 2 s for a saved file.
FIRST_CALL_S = 300.0
EDIT_BOUND_S = 10.0
CONNECTED = "document.querySelector('#state').textContent === 'connected'"


async def init(folder: Path) -> str:
    command = [sys.executable, "-m", "tabrelay", "init", str(folder)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


class App:
    """The folder, the relay that serves it, and the time when its developer started."""

    def __init__(self, folder: Path, relay: Demo, began: float) -> None:
        self.folder, self.relay, self.began = folder, relay, began

    @property
    def here(self) -> str:
        return f"http://127.0.0.1:{self.relay.port}"

    async def says(self, tool: str, arguments: dict[str, object], expected: str, bound_s: float = BOUND_S) -> None:
        async with self.relay.client() as client:

            async def has_it() -> bool:
                return text(await client.call_tool(tool, arguments)) == expected

            await until(has_it, bound_s)


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    began = time.monotonic()
    folder = tmp_path_factory.mktemp("empty") / "notes"
    said = await init(folder)
    assert re.search(r"^Next: .*tabrelay.* dev ", said, re.MULTILINE)
    async with Demo(tmp_path_factory.mktemp("home"), str(folder), verb="dev") as relay:
        yield App(folder, relay, began)


@pytest.fixture
async def page(profile: BrowserContext) -> AsyncIterator[Page]:
    page = await profile.new_page()
    page.set_default_timeout(BOUND_S * 1000)
    yield page
    await keeps_no_token(page)


async def test_from_an_empty_folder_to_the_first_call_and_edits_are_in_force(
    app: App, page: Page, settings: ModuleType
) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    await page.goto(app.relay.url)
    await page.wait_for_function(CONNECTED, timeout=settings.BOOT_TIMEOUT_MS)
    await app.says("read_note", {}, "Buy milk.")
    await app.says("word_count", {"text": "to be or not to be"}, "6")
    assert time.monotonic() - app.began < FIRST_CALL_S
    # Neither a code nor a question was shown.
    assert await page.locator("tabrelay-panel").count() == 0
    assert app.relay.mcp_url == f"{app.here}/notes"

    # Python is loaded again without a reload of the page.
    await page.evaluate("globalThis.isOld = true")
    tools = app.folder / "tools.py"
    tools.write_text(tools.read_text().replace("return len(", "return 100 + len("))
    await app.says("word_count", {"text": "to be or not to be"}, "106", EDIT_BOUND_S)
    assert await page.evaluate("globalThis.isOld") is True

    # The page is loaded again, and still serves.
    index = app.folder / "index.html"
    index.write_text(index.read_text().replace("Buy milk.", "Buy bread."))
    await page.wait_for_function("!globalThis.isOld && document.readyState === 'complete'")
    await page.wait_for_function(CONNECTED)
    await app.says("read_note", {}, "Buy bread.")
    assert not [line for line in said if "error" in line.lower()]


async def shows(tab: Page, expression: str) -> None:
    """Wait until an expression is true. Playwright's own wait needs a policy that allows `eval`."""

    async def is_so() -> bool:
        with suppress(PlaywrightError):  # the page is being loaded again
            return await tab.evaluate(expression) is True
        return False

    await until(is_so)


async def test_scripts_and_styles_load_all_tabs_again_also_under_a_policy(app: App, profile: BrowserContext) -> None:
    policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
    page = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><head><title>App</title>'
    page += '<link rel="stylesheet" href="style.css"></head><p>App<script src="own.js"></script>'
    (app.folder / "strict.html").write_text(page)
    (app.folder / "style.css").write_text("p { color: red; }")
    (app.folder / "own.js").write_text("document.title = 'one';")
    tabs = [await profile.new_page() for _ in range(2)]
    for tab in tabs:
        tab.set_default_timeout(BOUND_S * 1000)
        await tab.goto(f"{app.here}/strict.html")
        await shows(tab, "navigator.locks.query().then(({ held, pending }) => held.length + pending.length > 0)")
    (app.folder / "own.js").write_text("document.title = 'two';")
    for tab in tabs:
        await shows(tab, "document.title === 'two'")
    (app.folder / "style.css").write_text("p { color: rgb(0, 0, 255); }")
    for tab in tabs:
        await shows(tab, "getComputedStyle(document.querySelector('p')).color === 'rgb(0, 0, 255)'")


async def test_another_name_of_this_computer_needs_no_pairing_either(
    app: App, page: Page, settings: ModuleType
) -> None:
    await page.goto(f"http://localhost:{app.relay.port}/")
    await page.wait_for_function(CONNECTED, timeout=settings.BOOT_TIMEOUT_MS)
    await app.says("read_note", {}, "Buy bread." if "bread" in (app.folder / "index.html").read_text() else "Buy milk.")


PROBE = """async (url) => {
    try {
        const headers = { "Content-Type": "application/json" };
        return (await fetch(url, { method: "POST", headers, body: "{}" })).status;
    } catch { return "blocked"; }
}"""


async def test_code_of_the_app_reaches_nothing_that_needs_the_relays_token(
    app: App, page: Page, settings: ModuleType
) -> None:
    await page.goto(app.relay.url)
    await page.wait_for_function(CONNECTED, timeout=settings.BOOT_TIMEOUT_MS)
    for path in ("/-/pairs", "/-/codes", "/-/pair", "/-/status", "/-/calls"):
        assert await page.evaluate(PROBE, path) == 404, path
    relay = app.relay.relay_url
    assert relay.startswith("http://127.0.0.1:") and f":{app.relay.port}/" not in relay
    base = relay.partition("#")[0]
    for path in ("-/pairs", "-/codes", "-/status"):
        assert await page.evaluate(PROBE, base + path) in ("blocked", 403), path
    assert await page.evaluate("localStorage.getItem('tabrelay.token')") is None


async def test_the_relays_own_page_is_at_its_own_address(app: App, page: Page) -> None:
    await page.goto(app.relay.relay_url)
    await page.get_by_text("notes").first.wait_for()


async def test_a_relay_that_is_started_again_finds_its_pages_and_they_it(
    app: App, page: Page, settings: ModuleType
) -> None:
    await page.goto(app.relay.url)
    await page.wait_for_function(CONNECTED, timeout=settings.BOOT_TIMEOUT_MS)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    await app.relay.stop()
    await until(
        lambda: any(
            line.endswith("Start it with: tabrelay dev. The page tries again by itself. [TR421]") for line in said
        )
    )
    await page.evaluate("globalThis.isOld = true")
    await app.relay.start()
    # Files may have changed meanwhile, so the page is loaded again.
    await page.wait_for_function("!globalThis.isOld")
    await page.wait_for_function(CONNECTED)
    await app.says(
        "word_count", {"text": "one two"}, "102" if "100 +" in (app.folder / "tools.py").read_text() else "2"
    )
