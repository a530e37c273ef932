"""Pairing of pages on other origins and ports, in a real Chromium: one is approved, others try to connect without
approval."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp import types
from playwright.async_api import BrowserContext, Page, expect

from tabrelay.cli.main import main
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S

PAGE = """<!doctype html>
<title>Notes</title>
<script type="module">
  import { connect } from "RELAY/-/client.js";
  window.connection = connect({ server: "notes", relay: "RELAY", worker: "/worker.js" });
  connection.addEventListener("pairing", ({ detail }) => (window.code = detail?.code));
  connection.offerTool({
    name: "note",
    description: "The note on the page.",
    inputSchema: { type: "object", properties: {} },
    execute: () => "milk and bread",
  });
</script>
"""
SHOWN = "tabrelay-panel .pairing-code"
# A write of another tab to the storage becomes visible late: a few ms after its lock is free, in a third of all runs.
LATE = """let came = Infinity;
addEventListener("storage", () => (came = Math.min(came, performance.now())));
const { getItem } = Storage.prototype;
Storage.prototype.getItem = function (key) {
  return performance.now() > came + 200 ? getItem.call(this, key) : null;
};"""


class Place:
    """A relay without further origins, a web app on another port, and a browser profile."""

    def __init__(self, folder: Path, context: BrowserContext, settings: ModuleType) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self.context = context
        self._settings = settings
        self.home = folder / "home"

    async def __aenter__(self) -> Place:
        app = self._folder / "app"
        app.mkdir()
        self.site = self._stack.enter_context(Site(app))
        self.relay = Demo(self.home, "notes", verb="serve")
        await self._stack.enter_async_context(self.relay)
        self.base = f"http://127.0.0.1:{self.relay.port}"
        (app / "worker.js").write_text(f'import "{self.base}/-/worker.js";\n')
        (app / "index.html").write_text(PAGE.replace("RELAY", self.base))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def open(self, script: str = "") -> Page:
        page = await self.context.new_page()
        await page.add_init_script(script)
        await page.goto(self.site.origin)
        return page

    async def connected(self, page: Page) -> None:
        is_up = "() => connection.state.state === 'connected' && connection.catalogue?.tools.length > 0"
        await page.wait_for_function(is_up, timeout=self._settings.BOOT_TIMEOUT_MS)

    async def said(self, pattern: str) -> re.Match[str]:
        """Wait until the relay's terminal has a line like this."""
        await self.relay.until(lambda: any(re.search(pattern, line) for line in self.relay.log))
        return next(found for line in self.relay.log if (found := re.search(pattern, line)))

    async def command(self, *argv: str) -> str:
        """The output of a command."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            assert await asyncio.to_thread(main, [*argv, "--home", str(self.home)]) == 0
        return said.getvalue()

    async def idle(self) -> None:
        """Wait until the command line reports that no page is open."""
        async with asyncio.timeout(BOUND_S):
            while "no page is open" not in (said := await self.command("status")):
                assert "notes" in said
                await asyncio.sleep(0.1)

    async def note(self) -> str:
        async with self.relay.client() as client:
            [content] = (await client.call_tool("note", {})).content
            assert isinstance(content, types.TextContent)
            return content.text


@pytest.fixture
async def place(tmp_path: Path, context: BrowserContext, settings: ModuleType) -> AsyncIterator[Place]:
    async with Place(tmp_path, context, settings) as place:
        yield place


async def why(page: Page, reason: str) -> None:
    await page.wait_for_function("reason => connection.state.why === reason", arg=reason)


async def test_a_page_of_another_origin_asks_is_approved_works_and_is_sent_away(
    place: Place, context: BrowserContext
) -> None:
    own = await context.new_page()
    await own.goto(place.relay.url)
    await own.locator("#relay[data-state=running]").wait_for()

    # The page shows a code; the terminal and the relay's own page show the same one, with the origin and the
    # permissions.
    page = await place.open()
    code = await page.locator(SHOWN).inner_text()
    assert await page.evaluate("window.code") == code
    panel = page.locator("tabrelay-panel section")
    await expect(panel).to_contain_text("Tabrelay lets AI clients on your computer use tools of web pages")
    await expect(panel.get_by_role("timer")).to_have_text(
        re.compile(r"^The code is valid for \d+:\d\d more minutes\.$")
    )
    await expect(panel.get_by_role("button", name="Copy the code")).to_be_visible()
    said = await place.said(r"(\S+) wants to offer tools as \"(\w+)\" — code (\S+)")
    assert said.groups() == (place.site.origin, "notes", code)
    row = own.locator(f"#asking [data-origin='{place.site.origin}']")
    await expect(row.locator(".pairing-code")).to_have_text(code)

    # A second tab of the same app does not ask a second time.
    second = await place.open(LATE)
    await row.get_by_role("button", name="Approve").click()
    await place.connected(page)
    await place.connected(second)
    await expect(page.locator(SHOWN)).to_have_count(0)
    assert await second.evaluate("window.code") is None
    assert await place.note() == "milk and bread"
    await second.close()

    # It need not ask again.
    await page.reload()
    await place.connected(page)
    assert await page.evaluate("window.code") is None

    # Once revoked, it is disconnected at once, reports it, and asks again only when the user wants it to.
    assert place.site.origin in await place.command("pairs", "revoke", place.site.origin)
    # A socket that ends before the relay has sent the reason leaves the reason to the next dial.
    await page.wait_for_function("['unauthorized', 'forbidden'].includes(connection.state.why)")
    assert await page.evaluate("Object.values(localStorage).filter((value) => value.includes('tr_'))") == []
    await page.evaluate("connection.addEventListener('state', ({ detail }) => (window.told ??= []).push(detail.why))")
    await page.evaluate("connection.retry()")
    again = await page.locator(SHOWN).inner_text()
    await place.command("pairs", "refuse", again)
    await why(page, "not_paired")
    assert "refused" in await page.evaluate("connection.state.message")
    await expect(page.locator(SHOWN)).to_have_count(0)
    # The outcome of the worker's own attempt does not replace the report.
    assert (await page.evaluate("told"))[-2:] == ["pairing", "not_paired"]


# Attempts that a page of any origin can make; each reports its outcome.
TRIES = {
    "call": """fetch(`${relay}/notes`, { method: "POST", body: "{}", headers: {
        "Content-Type": "application/json", Authorization: `Bearer ${token}` } })""",
    "status": "fetch(`${relay}/-/status`, { headers: { Authorization: `Bearer ${token}` } })",
    "pairs": "fetch(`${relay}/-/pairs`, { headers: { Authorization: `Bearer ${token}` } })",
    "codes": """fetch(`${relay}/-/codes`, { method: "POST", headers: { Authorization: `Bearer ${token}` } })""",
    "socket": """new Promise((opened, failed) => {
        const text = btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
        const socket = new WebSocket(`${relay.replace("http", "ws")}/notes`, ["tabrelay.v1", `bearer.${text}`]);
        socket.onopen = opened; socket.onclose = failed; })""",
    "frame": """new Promise((loaded, failed) => {
        const frame = document.createElement("iframe"); frame.src = `${relay}/`; document.body.append(frame);
        frame.onload = () => { try { frame.contentDocument.body.id; loaded(); } catch { failed(); } };
        setTimeout(failed, 2000); })""",
}


async def test_a_page_on_another_origin_or_port_cannot_come_in_even_with_a_stolen_token(
    place: Place, context: BrowserContext
) -> None:
    """The page is malicious, and has every token: none of them works without the right origin."""
    page = await context.new_page()
    page_tokens = {"the relay's own": place.relay.token, "none": ""}
    code = (await place.command("token", "new", "thief", "--for", "call", "--for", "serve")).strip()
    page_tokens["a named one"] = code
    (place.site.folder / "evil.html").write_text("<!doctype html><title>Evil</title><p>Hello</p>")
    for origin in (place.site.origin, place.site.origin.replace("localhost", "127.0.0.1")):
        await page.goto(f"{origin}/evil.html")
        for kind, token in page_tokens.items():
            for name, code in TRIES.items():
                went: Any = await page.evaluate(
                    f"([relay, token]) => Promise.resolve({code}).then(() => 'in', () => 'out')", [place.base, token]
                )
                assert went == "out", f"{name} with {kind} from {origin}"
    assert (await place.relay.status())["servers"][0]["state"] == "offline"


async def test_one_approval_covers_localhost_and_its_number_and_the_name_goes_to_the_page_that_is_open(
    place: Place,
) -> None:
    first = await place.open()
    await place.command("pairs", "approve", await first.locator(SHOWN).inner_text())
    await place.connected(first)

    # The same app under the other name: no code, a separate token, and it waits for the page that is open.
    other = place.site.origin.replace("localhost", "127.0.0.1")
    second = await place.context.new_page()
    await second.goto(other)
    await why(second, "taken")
    assert await second.evaluate("[window.code, connection.state.state]") == [None, "waiting"]
    await expect(second.locator(SHOWN)).to_have_count(0)
    assert {place.site.origin, other} <= set((await place.command("pairs")).split())

    # It gets the name by itself when that page is closed, and the first one gets it back in the same way.
    await first.close()
    await place.connected(second)
    assert await place.note() == "milk and bread"
    again = await place.open()
    await why(again, "taken")
    await second.close()
    await place.connected(again)
    assert await place.note() == "milk and bread"

    # Without a page the server is idle; a revoked approval covers neither name.
    await again.close()
    await place.idle()
    await place.command("pairs", "revoke", other)
    revoked = await place.open()
    await revoked.wait_for_function("['unauthorized', 'forbidden'].includes(connection.state.why)")
