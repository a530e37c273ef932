"""The relay's own page where several relays share a bus: it lists all of them, and the browsers of each."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import BrowserContext, expect

from tests.support.demo import Demo
from tests.support.link_worker import SyntheticWorker
from tests.support.nats_server import NatsServer


async def test_the_page_shows_every_relay_and_the_servers_at_all_of_them(
    context: BrowserContext, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with NatsServer(tmp_path / "nats") as bus, Demo(home, "--bus", bus.url, verb="serve", bus_beat_s=0.3) as here:
        page = await context.new_page()
        await page.goto(here.url)
        rows, server = page.locator("#nodes-list li"), page.locator("tr[data-server=there]")
        await expect(rows).to_have_count(1)
        async with Demo(home, "--bus", bus.url, verb="serve", bus_beat_s=0.3) as there:
            url = f"http://127.0.0.1:{there.port}"
            async with SyntheticWorker(url, there.token, "there"):
                await expect(rows).to_have_count(2)
                await expect(rows.nth(0)).to_contain_text("this relay · 0 browsers")
                await expect(rows.nth(1)).to_contain_text("1 browser ·")
                await expect(server).to_have_attribute("data-state", "online")
                await server.click()
                await expect(page.locator("#drawer .presence")).to_contain_text("online for")
                await expect(page.locator("#drawer [data-tool=echo]")).to_be_visible()
        # The relay has stopped, and it is no longer listed.
        await expect(rows).to_have_count(1)
        await expect(server).to_have_count(0)
