"""Growth of a worker with its calls: thousands of calls through a real Chromium, to a tool in the tab and to one in the
worker.

At intervals it counts what is alive: the objects that Python tracks, those that JavaScript holds by proxy, and the
bytes of the worker's JavaScript heap after a collection, which includes what Python holds by proxy. The first fifth of
the calls is not counted: caches fill up and code is compiled meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
from playwright.async_api import async_playwright

from bench import machine
from bench.boot import site
from bench.stage import SERVER, lone_relay
from bench.table import table
from tests.support.playwright_settings import load_settings
from tests.support.worker_target import WorkerTarget

PAGE = """<!doctype html>
<title>leak</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect(OPTIONS);
connection.offerTool({
  name: "in_tab",
  description: "Say it again.",
  inputSchema: { type: "object", properties: { text: { type: "string" } } },
  execute: ({ text }) => text,
});
</script>
"""
TOOLS = '''"""A tool, and a look inside."""

import gc

import pyodide_js
from tabserver import tool

# Proxies that were made before this do not count, and are not many.
pyodide_js._module.enable_pyproxy_allocation_tracing()


@tool
def in_worker(text: str) -> str:
    """Say it again."""
    return text


@tool
def alive() -> dict[str, int]:
    """What is alive in Python."""
    gc.collect()
    proxies = pyodide_js._module.pyproxy_alloc_map.size
    return {"objects": len(gc.get_objects()), "proxies": proxies}
'''
OFFERED = "connection.state.state === 'connected' && connection.catalogue?.tools.some(({ name }) => name === 'in_tab')"
AT_ONCE = 8
MEASURES = {
    "objects": "Python objects",
    "proxies": "live proxies",
    "heap": "JavaScript heap, bytes",
}


class Caller:
    """A modern client that calls tools of the server."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        name = "io.modelcontextprotocol"
        meta = {
            f"{name}/protocolVersion": "2026-07-28",
            f"{name}/clientCapabilities": {},
            f"{name}/clientInfo": {"name": "leak", "version": "1"},
        }
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
        response = await self._http.post(f"/{SERVER}", json=body, headers=headers)
        result: dict[str, Any] = response.raise_for_status().json()["result"]
        return result

    async def many(self, count: int) -> None:
        async def some(number: int) -> None:
            for index in range(count // AT_ONCE):
                tool = ("in_tab", "in_worker")[index % 2]
                result = await self.call(tool, text=f"{number}/{index}")
                assert result["content"][0]["text"] == f"{number}/{index}"

        async with asyncio.TaskGroup() as tasks:
            for number in range(AT_ONCE):
                tasks.create_task(some(number))


async def run(calls: int, step: int) -> list[dict[str, int]]:
    async with AsyncExitStack() as stack:
        folder, origin = await stack.enter_async_context(site())
        relay = stack.enter_context(lone_relay(flags=("--allow-origin", origin)))
        base, token = relay.said["base_url"], relay.said["token"]
        write(folder, base, token)
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(**load_settings().launch_options())
        stack.push_async_callback(browser.close)
        page = await browser.new_page()
        await page.goto(f"{origin}/index.html")
        await page.wait_for_function(OFFERED, timeout=60_000)
        worker = WorkerTarget(await browser.new_browser_cdp_session())
        await worker.attach()
        http = httpx2.AsyncClient(
            base_url=base,
            trust_env=False,
            timeout=60,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"},
        )
        caller = Caller(await stack.enter_async_context(http))
        rows = []
        for done in range(step, calls + 1, step):
            began = asyncio.get_running_loop().time()
            await caller.many(step)
            pace = step / (asyncio.get_running_loop().time() - began)
            alive = json.loads((await caller.call("alive"))["content"][0]["text"])
            heap = await asyncio.wait_for(worker.heap_bytes(), 60)
            rows.append({"calls": done, **alive, "heap": heap, "calls/s": round(pace)})
            print(rows[-1], flush=True)
        return rows


def write(folder: Path, relay: str, token: str) -> None:
    options = {"server": SERVER, "relay": relay, "token": token, "worker": "/worker.js", "modules": ["/tools.py"]}
    (folder / "index.html").write_text(PAGE.replace("RELAY", relay).replace("OPTIONS", json.dumps(options)))
    (folder / "worker.js").write_text(f'import "{relay}/-/worker.js";\n')
    (folder / "tools.py").write_text(TOOLS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    args = parser.parse_args()
    print("\n".join(machine.describe()))
    rows = asyncio.run(run(args.calls, args.calls // 10))
    first, last = rows[1], rows[-1]
    counted = last["calls"] - first["calls"]
    cells = [
        [label, f"{first[name]:,}", f"{last[name]:,}", f"{(last[name] - first[name]) / counted:+.3f}"]
        for name, label in MEASURES.items()
    ]
    print(table([f"over the last {counted:,} calls", "first", "last", "a call"], cells))


if __name__ == "__main__":
    main()
