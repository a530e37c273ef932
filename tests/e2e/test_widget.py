"""Page with MCP-B's embed widget, unchanged, that points at this relay: approved like any page, then served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Browser, Page

from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S, pause, until

PACKAGES = Path(__file__).parents[2] / "node_modules"
PAGE = """<!doctype html>
<title>Shop</title>
<script src="/polyfill.js"></script>
<script>
  const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
  const inputSchema = { type: "object", properties: { thing: { type: "string" } }, required: ["thing"] };
  globalThis.offer = (name, execute) =>
    navigator.modelContext.registerTool({ name, description: `The tool ${name}.`, inputSchema, execute });
  offer("price", async ({ thing }) => {
    if (thing === "moon") throw new RangeError("The moon is not for sale");
    return text(thing.length);
  });
  offer("long_text", async ({ thing }) => text(thing.repeat(200_000)));
</script>
<script src="/embed.js" data-relay-port="PORT"></script>
"""


class Shop:
    """The relay as its user and its clients see it."""

    def __init__(self, relay: Demo, http: httpx2.AsyncClient, origin: str) -> None:
        self._relay, self._http, self._origin = relay, http, origin
        self.server = ""

    def client(self) -> Client:
        url = f"http://127.0.0.1:{self._relay.port}/{self.server}"
        return Client(streamable_http_client(url, http_client=self._http, max_sse_event_size=None))

    async def asking(self) -> dict[str, Any]:
        """The row of the page that asks to be paired."""
        async with asyncio.timeout(BOUND_S):
            while True:
                rows = (await self._http.get("/-/pairs")).json()["asking"]
                found = [row for row in rows if row["origin"] == self._origin]
                if found:
                    row: dict[str, Any] = found[0]
                    return row
                await pause()

    async def change(self, **decision: str) -> dict[str, Any]:
        answer: dict[str, Any] = (await self._http.post("/-/pairs", json=decision)).raise_for_status().json()
        return answer

    async def is_online(self) -> bool:
        rows = (await self._relay.status())["servers"]
        return any(row["name"] == self.server and row["state"] == "online" for row in rows)

    async def is_offline(self) -> bool:
        return not await self.is_online()

    async def lists(self, *names: str) -> bool:
        async with self.client() as client:
            return {tool.name for tool in (await client.list_tools()).tools} == set(names)


async def test_the_widget_is_approved_at_the_relay_and_its_tools_are_called(browser: Browser, tmp_path: Path) -> None:
    site, widget = Site(tmp_path), PACKAGES / "@mcp-b" / "webmcp-local-relay" / "dist" / "browser"
    for name in ("embed.js", "widget.html"):
        (tmp_path / name).write_bytes((widget / name).read_bytes())
    (tmp_path / "polyfill.js").write_bytes((PACKAGES / "mcp-b-global-2" / "dist" / "index.iife.js").read_bytes())
    async with Demo(tmp_path / "home", verb="serve") as relay:
        (tmp_path / "index.html").write_text(PAGE.replace("PORT", str(relay.port)))
        headers = {"Authorization": f"Bearer {relay.token}"}
        base = f"http://127.0.0.1:{relay.port}"
        async with httpx2.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=60) as http:
            context = await browser.new_context()
            with site:
                page = await context.new_page()
                await page.goto(site.origin)
                await use(Shop(relay, http, site.origin), page, site.origin)
            await context.close()


async def use(shop: Shop, page: Page, origin: str) -> None:
    row = await shop.asking()
    assert row["server"] == origin.removeprefix("http://").replace(":", "-")
    shop.server = row["server"]
    assert await shop.is_offline()
    await shop.change(approve=row["code"])
    await until(shop.is_online)
    async with shop.client() as client:
        assert text(await client.call_tool("price", {"thing": "pear"})) == "4"
        failed = await client.call_tool("price", {"thing": "moon"})
        assert failed.is_error and "The moon is not for sale" in text(failed)
        assert len(text(await client.call_tool("long_text", {"thing": "pear"}))) == 800_000
    await page.evaluate("offer('later', async () => text('now'))")
    await until(lambda: shop.lists("price", "long_text", "later"))
    # The pairing is one like any other. Revoked, the page is away, and the relay asks again.
    assert (await shop.change(revoke=origin))["revoked"] == [origin]
    await until(shop.is_offline)
    assert (await shop.asking())["server"] == shop.server
