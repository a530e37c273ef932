"""Upstreams on the relay's own page: their state, the next attempt, and a button to try now."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.async_api import BrowserContext, expect

from tests.support.child_specs import CHILD
from tests.support.demo import Demo


async def test_the_page_says_why_a_server_is_not_there_and_connects_to_it_now(
    context: BrowserContext, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    config = tmp_path / "relay.toml"
    config.write_text(f'[servers.files]\ncommand = "{program}"\n[servers.far]\nurl = "http://127.0.0.1:9/mcp"\n')
    async with Demo(tmp_path / "home", "-c", str(config), verb="serve") as relay:
        page = await context.new_page()
        await page.goto(relay.url)
        files, far = page.locator("[data-server=files]"), page.locator("[data-server=far]")
        await expect(files.locator(".cause")).to_contain_text("There is no program")
        await expect(files.locator(".presence")).to_contain_text("offline, failed")
        await expect(files.locator(".plan")).to_have_text("5 attempts so far. The next call tries again.")
        await expect(files.locator(".badge")).to_have_class("badge is-bad")
        await expect(far.locator(".cause")).to_contain_text("No server answers at 127.0.0.1:9")
        await expect(far.locator(".plan")).to_contain_text("The next one is in")

        program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {CHILD} legacy\n")
        program.chmod(0o755)
        await files.get_by_role("button", name="Connect now").click()
        await expect(files.locator(".presence")).to_contain_text("online for")
        await expect(files.locator(".trouble")).to_be_hidden()
        await expect(files.locator("[data-tool=echo]")).to_be_visible()
