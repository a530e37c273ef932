"""Many concurrent callers of tools in the tab and in the worker, while the page keeps changing: every call gets its own
answer, and the socket stays open."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Page

from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.worker_modes import carry

CALLERS, EACH = 32, 25  # more than the link sends before it acknowledges
PAGE = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.states = [];
globalThis.connection = connect({ server: "notes", worker: "/worker.js", token: "TOKEN", modules: ["/tools.py"] });
connection.addEventListener("state", ({ detail }) => states.push(detail.state));
connection.offerTool({ name: "in_tab", description: "Say it again.", execute: ({ text }) => text });
connection.offerTool({ name: "slowly", description: "The same.", execute: async ({ text }, { progress }) => {
  progress(1, 2);
  await new Promise((resolve) => setTimeout(resolve, 5));
  return text;
} });
</script>
"""
TOOLS = '''"""A tool."""

from tabserver import tool


@tool
def in_worker(text: str) -> str:
    """Say it again."""
    return text
'''
CHANGE = """n => {
  if (n % 2) document.title = `App ${n}`;
  else connection.offerTool({ name: `other_${n % 3}`, description: "Another.", execute: () => n });
}"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "crowd", "version": "1"},
}


@pytest.fixture
async def app(browser: Browser, settings: ModuleType, place: str, tmp_path: Path) -> AsyncIterator[tuple[Demo, Page]]:
    site = Site(tmp_path)
    flags = ("notes", "--allow-origin", site.origin)
    room = {"in_flight_server": 64, "in_flight_caller": 64, "rate_s": 100_000, "rate_burst": 100_000}
    async with Demo(tmp_path / "home", *flags, verb="serve", **room) as relay:
        here = f"http://127.0.0.1:{relay.port}"
        (tmp_path / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
        (tmp_path / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        (tmp_path / "tools.py").write_text(TOOLS)
        context = await browser.new_context()
        await carry(context, place)
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(
                "globalThis.connection?.catalogue?.tools.length === 3", timeout=settings.BOOT_TIMEOUT_MS
            )
            yield relay, page
        await context.close()


async def call(client: httpx2.AsyncClient, relay: Demo, chance: random.Random, text: str, id: int | str) -> None:
    """One call; fails unless it gets its own answer."""
    tool = chance.choice(["in_tab", "in_tab", "in_worker", "in_worker", "slowly"])
    meta = META | ({"progressToken": text[:20]} if chance.random() < 0.1 else {})
    params = {"name": tool, "arguments": {"text": text}, "_meta": meta}
    headers = {
        "Authorization": f"Bearer {relay.token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    url = f"http://127.0.0.1:{relay.port}/notes"
    said = (await client.post(url, content=body, headers=headers, timeout=30)).text
    if not said.startswith("{"):  # an event stream: the answer comes last
        said = [line for line in said.splitlines() if line.startswith("data:")][-1][5:]
    message: Any = json.loads(said)
    assert message["id"] == id
    assert message["result"]["content"] == [{"type": "text", "text": text}], said[:300]


async def test_each_of_many_calls_has_its_own_answer_and_the_socket_stays(app: tuple[Demo, Page]) -> None:
    relay, page = app

    async def calls(caller: int, client: httpx2.AsyncClient) -> None:
        chance = random.Random(caller)
        for n in range(EACH):
            size = chance.choice([10, 200, 200, 2_000, 20_000, 70_000])
            text = f"{caller}-{n} ä " + "x" * (size if chance.random() < 0.5 else 10)
            await call(client, relay, chance, text, n if chance.random() < 0.5 else f"id {n}")

    async def change() -> None:
        for n in range(10_000):
            await page.evaluate(CHANGE, n)
            await asyncio.sleep(0.2)

    changing = asyncio.create_task(change())
    limits = httpx2.Limits(max_connections=CALLERS)
    async with httpx2.AsyncClient(limits=limits) as client, asyncio.timeout(120), asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            group.create_task(calls(caller, client))
    changing.cancel()
    assert (await page.evaluate("states"))[-1] == "connected"
    assert (await page.evaluate("states")).count("connected") == 1, "the socket was lost"
