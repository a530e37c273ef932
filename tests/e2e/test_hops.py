"""Waterfall of captured calls in Chromium: the page's script and the worker's Python report their times."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
from playwright.async_api import BrowserContext

from tests.support.demo import Demo
from tests.support.other_origin import Site

PAGE = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect({ server: "notes", worker: "/worker.js", token: "TOKEN", modules: ["/tools.py"] });
connection.offerTool({ name: "in_page", description: "Take a while.", execute: async () => {
  await new Promise((resolve) => setTimeout(resolve, 60));
  return "done";
} });
connection.offerTool({ name: "failing", description: "Fail.", execute: () => { throw new Error("it failed"); } });
</script>
"""
TOOLS = '''import asyncio

from tabserver import tool


@tool
async def in_worker() -> str:
    """Take a while."""
    await asyncio.sleep(0.06)
    return "done"
'''
READY = """() => globalThis.connection?.state.state === "connected"
    && ["in_page", "in_worker"].every((name) => connection.catalogue?.tools.some((tool) => tool.name === name))"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
Row = dict[str, Any]


async def call(http: httpx2.AsyncClient, tool: str) -> Row:
    """Call a tool; returns the detail of its captured call."""
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
    params = {"name": tool, "arguments": {}, "_meta": META}
    answer = await http.post(
        "/notes", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers=headers
    )
    assert answer.status_code == 200, answer.text
    rows = (await http.get("/-/console/calls?limit=50")).json()["rows"]
    id = next(row["id"] for row in rows if row["name"] == tool)
    detail: Row = (await http.get(f"/-/console/calls/{id}")).json()
    return detail


async def test_page_and_worker_report_their_times(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    with Site(folder) as site:
        flags = ("notes", "--inspect", "--allow-origin", site.origin)
        async with Demo(tmp_path / "home", *flags, verb="serve") as relay:
            here = f"http://127.0.0.1:{relay.port}"
            (folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
            (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
            (folder / "tools.py").write_text(TOOLS)
            page = await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(READY, timeout=settings.BOOT_TIMEOUT_MS)
            accept = "application/json, text/event-stream"
            headers = {"Authorization": f"Bearer {relay.token}", "Accept": accept}
            async with httpx2.AsyncClient(base_url=here, trust_env=False, timeout=60, headers=headers) as http:
                # A repeated call is measured too: it is no model for calls that JavaScript carries out.
                for _ in range(3):
                    detail = await call(http, "in_page")
                    took = {span["name"]: span["ms"] for span in detail["spans"]}
                    assert {"run", "answer"} <= took.keys(), detail["spans"]
                    assert {"relay", "link", "tab"} <= {span["hop"] for span in detail["spans"]}, detail["spans"]
                    assert took["run"] >= 55 and detail["row"]["tab"] and detail["clock"]["error_ms"] < 1000
                    assert [span["hop"] for span in detail["spans"] if span["name"] == "run"] == ["tab"]
                    assert sum(took.values()) - detail["total_ms"] < 0.1
                own = await call(http, "in_worker")
                [run] = [span for span in own["spans"] if span["name"] == "run"]
                assert run["hop"] == "worker" and run["ms"] >= 55 and own["row"]["tab"] is None
                failed = await call(http, "failing")
                assert failed["row"]["state"] == "failed" and "run" in {span["name"] for span in failed["spans"]}
