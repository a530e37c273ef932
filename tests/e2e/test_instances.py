"""Two real browsers with one name: both are reachable, and users can tell them apart."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from mcp.client.client import Client
from playwright.async_api import BrowserContext, Page, expect

from tests.support.demo import Demo

INSTANCE = "import('/-/demo/page_tools.js').then(({ connection }) => connection.instance)"


async def title(client: Client) -> str:
    """The page that answers."""
    found = await client.call_tool("list_shapes", {})
    assert found.structured_content is not None
    return str(found.structured_content["tab"])


async def comes_to(client: Client, wanted: str, page: Page) -> None:
    """Soon this page answers."""
    for _ in range(1000):
        if await title(client) == wanted:
            return
        await page.wait_for_timeout(20)
    raise AssertionError(f"never answered by {wanted}")


async def test_two_browsers_share_a_name_and_each_has_an_address(
    context: BrowserContext, rival: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with Demo(tmp_path / "home", instances="demo") as demo:
        pages: dict[str, Page] = {}
        ids: dict[str, str] = {}
        for name, where in (("first", context), ("second", rival)):
            page = pages[name] = await where.new_page()
            await demo.open(page, settings.BOOT_TIMEOUT_MS, url=await demo.pair())
            await page.evaluate("(name) => { document.title = name; }", name)
            ids[name] = await page.evaluate(INSTANCE)
        assert ids["first"] != ids["second"]

        def client(name: str) -> Any:
            return demo.client(instance=ids[name])

        async with demo.client() as both, client("first") as first, client("second") as second:
            assert (await title(first), await title(second)) == ("first", "second")
            # The second was called last; then the user switches to the first.
            assert await title(both) == "second"
            await pages["first"].evaluate("window.dispatchEvent(new Event('focus'))")
            await comes_to(both, "first", pages["first"])

            own = await context.new_page()
            await own.goto(f"http://127.0.0.1:{demo.port}/")
            await own.locator("tr[data-server=demo]").click()
            card = own.locator("#drawer")
            row = card.locator(f"[data-instance='{ids['first']}']")
            await expect(row).to_contain_text("Chrome")
            await expect(row.locator(".front")).to_be_visible()
            await expect(row).to_contain_text("1 tab")
            await expect(card.locator("[data-instance]")).to_have_count(2)

            # A browser keeps its name while its only tab reloads; when it leaves, the other one serves.
            await pages["second"].reload()
            await pages["second"].locator("#state[data-state=connected]").wait_for()
            assert await pages["second"].evaluate(INSTANCE) == ids["second"]
            await rival.close()
            await expect(card.locator(f"[data-instance='{ids['second']}']")).to_contain_text("offline")
            assert await title(both) == "first"
