"""Server information that a page passes to `connect`: what MCP clients receive, and the console's warnings."""

from __future__ import annotations

from typing import Any

import httpx2
from playwright.async_api import Page

from tests.support.demo import Demo
from tests.support.waiting import until

CONNECT = """async (about) => {
    const { connect } = await import("/-/client.js");
    connect({ server: "demo", ...about });
}"""
VERSION = "2026-07-28"


async def discover(demo: Demo) -> dict[str, Any]:
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    headers = {
        "Authorization": f"Bearer {demo.token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "server/discover",
    }
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.post(f"http://127.0.0.1:{demo.port}/demo", json=body, headers=headers)
    return dict(answer.json()["result"])


async def test_a_page_describes_its_server_to_clients(demo: Demo, page: Page) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    icons = [{"src": "https://shop.example/icon.png", "sizes": ["48x48"]}]
    about = {"title": "Shop", "version": "3.1", "websiteUrl": "https://shop.example", "icons": icons}
    await page.evaluate(CONNECT, about | {"instructions": "Search before you order."})

    async def is_described() -> bool:
        return (await discover(demo)).get("instructions") == "Search before you order."

    await until(is_described)
    info = (await discover(demo))["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert info == about | {"name": "demo"}
    async with demo.client() as client:
        assert [tool.name for tool in (await client.list_tools()).tools]
    assert not [text for text in said if "instructions" in text or "option" in text]

    # A client with a shorter limit: one warning. Members that MCP does not allow are refused, and the rest stays.
    await page.evaluate(CONNECT, {"instructions": "x" * 2049})
    assert [text for text in said if "2049 characters" in text and "Claude Code" in text]
    await page.evaluate(CONNECT, {"websiteUrl": 7})
    await until(lambda: any("websiteUrl is text" in text for text in said))
