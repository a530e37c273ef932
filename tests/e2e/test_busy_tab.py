"""Two tabs offer the same tool, and one of them computes without a pause: the other one gets the calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp_types import CallToolResult
from playwright.async_api import BrowserContext, Page

from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import pause

# A free tab answers within a second; the bound is for a busy machine.
BOUND_S = 15.0
BLOCKED_MS = 10_000
PAGE = """<!doctype html>
<title></title>
<script type="module">
import { connect } from "RELAY/-/client.js";
document.title = location.hash.slice(1);
globalThis.runs = {};
globalThis.spin = (ms) => {
  const end = performance.now() + ms;
  while (performance.now() < end);
};
globalThis.connection = connect({ server: "notes", worker: "/worker.js", token: "TOKEN" });
const inputSchema = { type: "object", properties: { key: { type: "string" } } };
const offer = (name, execute) => connection.offerTool({ name, description: name, inputSchema, execute });
const count = (key) => { runs[key] = (runs[key] ?? 0) + 1; };
offer("work", ({ key }) => { count(key); return document.title; });
offer("wait", async ({ key }) => { count(key); await new Promise((done) => { globalThis.go = done; }); return key; });
offer("block", ({ key, ms }) => { count(key); spin(ms); return document.title; });
</script>
"""


class Pair:
    """Two tabs of one app. The one in front is the last one that the user switched to."""

    def __init__(self, relay: Demo, front: Page, other: Page) -> None:
        self.relay, self.front, self.other = relay, front, other

    async def runs(self) -> list[dict[str, int]]:
        """How often each call ran in each tab. A blocked tab reports when it is free."""
        return [await page.evaluate("runs") for page in (self.front, self.other)]


@pytest.fixture
async def pair(context: BrowserContext, settings: ModuleType, tmp_path: Path) -> AsyncIterator[Pair]:
    site = Site(tmp_path / "app")
    site.folder.mkdir()
    async with Demo(tmp_path / "home", "notes", "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        (site.folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
        (site.folder / "worker.js").write_text(f'import "{here}/-/worker.js";')
        with site:
            pages = []
            for title in ("other", "front"):
                page = await context.new_page()
                await page.goto(f"{site.origin}/#{title}")
                offered = "connection.state.state === 'connected' && connection.catalogue?.tools.length === 3"
                await page.wait_for_function(offered, timeout=settings.BOOT_TIMEOUT_MS)
                pages.append(page)
            yield Pair(relay, pages[1], pages[0])


def text(result: CallToolResult) -> str:
    return str(result.content[0].text)  # type: ignore[union-attr]


async def timed(call: Any) -> str:
    began = time.monotonic()
    async with asyncio.timeout(BOUND_S):
        said = text(await call)
    print(f"answered by {said} in {time.monotonic() - began:.2f} s")
    return said


async def test_a_call_goes_to_a_free_tab_while_a_tool_blocks_the_one_in_front(pair: Pair) -> None:
    async with pair.relay.client() as client:
        assert await timed(client.call_tool("work", {"key": "before"})) == "front"
        blocking = asyncio.create_task(client.call_tool("block", {"key": "long", "ms": BLOCKED_MS}))
        # At once, and again when the tab in front is known to be busy.
        together = [asyncio.create_task(timed(client.call_tool("work", {"key": f"t{n}"}))) for n in range(3)]
        # One of them may be queued behind the tool that blocks: then it is answered when that tool ends.
        await asyncio.wait(together, timeout=BOUND_S, return_when=asyncio.FIRST_COMPLETED)
        assert await timed(client.call_tool("work", {"key": "later"})) == "other"
        assert {await call for call in together} <= {"front", "other"}
        assert text(await blocking) == "front"
        async with asyncio.timeout(BOUND_S):
            while text(await client.call_tool("work", {"key": "again"})) != "front":
                await pause()
    front, other = await pair.runs()
    assert front["long"] == 1 and "long" not in other
    for key in ("before", "t0", "t1", "t2", "later"):
        assert front.get(key, 0) + other.get(key, 0) == 1


async def test_a_call_goes_to_a_free_tab_while_the_page_in_front_blocks_itself(pair: Pair) -> None:
    await pair.front.evaluate(f"setTimeout(() => spin({BLOCKED_MS}), 100) && 0")
    async with pair.relay.client() as client:
        await asyncio.sleep(1)  # for the loop to begin: a blocked page can't report it
        assert await timed(client.call_tool("work", {"key": "one"})) == "other"
    front, other = await pair.runs()
    assert front.get("one", 0) + other.get("one", 0) == 1


async def test_a_tab_in_front_that_waits_in_a_tool_gets_the_next_call(pair: Pair) -> None:
    """It sends nothing, but it reads."""
    async with pair.relay.client() as client:
        waiting = asyncio.create_task(client.call_tool("wait", {"key": "slow"}))
        await pair.front.wait_for_function("Boolean(globalThis.go)")
        for key in ("one", "two"):
            assert await timed(client.call_tool("work", {"key": key})) == "front"
        await pair.front.evaluate("go()")
        assert text(await waiting) == "slow"
