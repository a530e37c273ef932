"""Memory of the worker: finished calls leave no objects behind.

`bench/leak.py` measures ten thousand calls and bytes; this file runs a few hundred and counts objects.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from mcp import MCPError
from playwright.async_api import BrowserContext

from tests.support.chaos_app import FAST_WORKER, ChaosApp

PAGE = """<!doctype html>
<title>TITLE</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const options = OPTIONS;
globalThis.connection = connect({ ...options, modules: ["/alive.py"] });
connection.offerTool({ name: "in_tab", description: "With progress.", execute: ({ text }, { progress }) => {
  progress(1, 2);
  return text;
} });
connection.offerTool({ name: "for_ever", description: "Never ends.", execute: () => new Promise(() => {}) });
</script>
"""
ALIVE = '''"""A tool, and a look inside."""

import asyncio
import gc

import pyodide_js
from tabserver import Context, tool

pyodide_js._module.enable_pyproxy_allocation_tracing()
kept = []


@tool
async def in_worker(text: str, ctx: Context) -> str:
    """Wait a moment."""
    await ctx.progress(1, 2)
    await asyncio.sleep(0)
    return text


@tool
def leak(text: str) -> str:
    """What a leak looks like."""
    from pyodide.ffi import create_proxy

    kept.append(create_proxy(lambda: text))
    return text


@tool
def alive() -> dict[str, int]:
    """What is alive: objects that Python tracks, and proxies that JavaScript holds."""
    gc.collect()
    return {"objects": len(gc.get_objects()), "proxies": pyodide_js._module.pyproxy_alloc_map.size}
'''
# A few objects come and go with the link's own work (acknowledgements, timers), and none with the number of calls.
SLACK = {"objects": 60, "proxies": 5}


def is_settled(before: dict[str, int], after: dict[str, int]) -> bool:
    return all(abs(after[name] - before[name]) <= slack for name, slack in SLACK.items())


async def test_calls_that_are_over_leave_nothing_behind(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    async with ChaosApp(tmp_path, context, timing=FAST_WORKER) as stage:
        (stage.site.folder / "alive.py").write_text(ALIVE)
        stage.write("leak.html", PAGE, "Leak")
        await stage.open(settings.BOOT_TIMEOUT_MS, "leak.html", tool="in_tab")
        async with stage.relay.client() as client:

            async def some(tools: tuple[str, ...], count: int) -> None:
                for number in range(count):
                    tool = tools[number % len(tools)]
                    call = client.call_tool(tool, {"text": str(number)})
                    # Failed and abandoned calls count too.
                    with suppress(MCPError, TimeoutError):
                        await asyncio.wait_for(call, 0.05 if tool == "for_ever" else 60)

            async def look() -> dict[str, int]:
                found = (await client.call_tool("alive", {})).structured_content
                assert found is not None
                return dict(found)

            async def steady() -> dict[str, int]:
                """The number of objects once it no longer changes: abandoned and unacknowledged ones are freed soon."""
                seen = [await look()]
                async with asyncio.timeout(60):
                    while len(seen) < 4 or not all(is_settled(one, seen[-1]) for one in seen[-4:-1]):
                        await asyncio.sleep(0.2)
                        seen.append(await look())
                return seen[-1]

            async def many(tools: tuple[str, ...], count: int) -> None:
                await asyncio.gather(*(some(tools, count // 4) for _ in range(4)))

            every = ("in_tab", "in_worker", "no_such_tool", "for_ever")
            # The history keeps the last 256 calls; from then on each new call removes one.
            await many((*every[:3], *every[:3], *every), 400)
            before = await steady()
            await many(every, 320)
            after = await steady()
            assert is_settled(before, after), (before, after)
            # A leak would be seen.
            await many(("leak",), 40)
            assert (await look())["proxies"] >= after["proxies"] + 40
