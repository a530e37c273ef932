"""Upstreams on the relay's own page: their state, the next attempt, and a button to try now."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.async_api import BrowserContext, expect

from tests.support.child_specs import CHILD
from tests.support.demo import Demo


async def test_the_page_shows_why_a_server_is_offline_and_connects_to_it_now(
    context: BrowserContext, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    config = tmp_path / "relay.toml"
    config.write_text(f'[servers.files]\ncommand = "{program}"\n[servers.far]\nurl = "http://127.0.0.1:9/mcp"\n')
    async with Demo(tmp_path / "home", "-c", str(config), verb="serve") as relay:
        page = await context.new_page()
        await page.goto(relay.url)
        files, drawer = page.locator("tr[data-server=files]"), page.locator("#drawer")
        await expect(files.locator(".state .badge")).to_have_class("badge is-bad")
        await page.locator("tr[data-server=far]").click()
        await expect(drawer.locator(".cause")).to_contain_text("No server answers at 127.0.0.1:9")
        await expect(drawer.locator(".plan")).to_contain_text("The next one is in")
        await files.click()
        await expect(drawer.locator(".cause")).to_contain_text("There is no program")
        await expect(drawer.locator(".presence")).to_contain_text("offline, failed")
        await expect(drawer.locator(".plan")).to_have_text("5 attempts so far. The next call tries again.")

        program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {CHILD} legacy\n")
        program.chmod(0o755)
        await drawer.get_by_role("button", name="Connect now").click()
        await expect(drawer.locator(".presence")).to_contain_text("online for")
        await expect(drawer.locator(".trouble")).to_be_hidden()
        await expect(drawer.locator("[data-tool=echo]")).to_be_visible()
