"""Pages that the relay refuses, and an MCP address in the address bar, from the user's view."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from playwright.async_api import BrowserContext, expect

from tests.support.demo import Demo
from tests.support.other_origin import Site

DIAL = """(url) => new Promise((done) => {
    const socket = new WebSocket(url, "mcp");
    socket.onclose = ({ code }) => done(code);
})"""


async def test_the_relays_page_names_a_refused_page_and_an_mcp_address_explains_itself(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site")
    site.folder.mkdir()
    (site.folder / "index.html").write_text("<!doctype html><title>plain</title>")
    async with Demo(tmp_path / "home", "notes", "--plain", "plain", verb="serve") as relay:
        with site:
            # Not paired: the address explains itself, without information on the server.
            stranger = await context.new_page()
            await stranger.goto(f"http://127.0.0.1:{relay.port}/plain")
            await expect(stranger.locator("h1")).to_have_text("This is the address of an MCP server")
            await expect(stranger.locator("#state")).to_have_attribute("data-state", "not_paired")
            await expect(stranger.locator("#recipes code").first).to_contain_text("install claude-code")

            own = await context.new_page()
            await own.goto(relay.url)
            await own.locator("#relay[data-state=running]").wait_for()
            await expect(own.locator("#refused")).to_be_hidden()

            page = await context.new_page()
            await page.goto(site.origin)
            assert await page.evaluate(DIAL, f"ws://127.0.0.1:{relay.port}/plain") == 1006
            row = own.locator(f"#refused-list [data-origin='{site.origin}']")
            await expect(row).to_contain_text("may not use this relay")
            await expect(row.locator("code")).to_contain_text(f"--allow-origin {site.origin}")
            await relay.until(
                lambda: any(site.origin in line and f"--allow-origin {site.origin}" in line for line in relay.log)
            )

            # The browser is paired now: the same address shows the server's state.
            await stranger.reload()
            await expect(stranger.locator("#state-text")).to_contain_text("“plain” is offline")
            await stranger.goto(f"http://127.0.0.1:{relay.port}/other")
            await expect(stranger.locator("#state")).to_have_attribute("data-state", "unknown")
