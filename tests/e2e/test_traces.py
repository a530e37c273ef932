"""One trace, from a client's HTTP request through the relay into Chromium, for a tool of the page and one of the
worker."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import httpx2
import pytest
from playwright.async_api import BrowserContext

from tests.support.demo import Demo
from tests.support.otel_collector import Collector
from tests.support.other_origin import Site

PAGE = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect({ server: "notes", worker: "/worker.js", token: "TOKEN", modules: ["/tools.py"] });
connection.offerTool({ name: "in_page", description: "Which trace?", execute: (args, { trace }) => ({ trace }) });
</script>
"""
TOOLS = '''from tabserver import Context, tool


@tool
def in_worker(ctx: Context) -> dict[str, dict[str, str] | None]:
    """Which trace?"""
    return {"trace": None if ctx.trace is None else ctx.trace.to_dict()}
'''
READY = """() => globalThis.connection?.state.state === "connected"
    && ["in_page", "in_worker"].every((name) => connection.catalogue?.tools.some((tool) => tool.name === name))"""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


async def test_one_trace_goes_from_the_client_to_the_tab(
    context: BrowserContext, settings: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    with Collector() as collector, Site(folder) as site:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        flags = ("notes", "--traces", "--allow-origin", site.origin)
        async with (
            Demo(tmp_path / "home", *flags, verb="serve") as relay,
            httpx2.AsyncClient(trust_env=False, timeout=60) as http,
        ):
            here = f"http://127.0.0.1:{relay.port}"
            (folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
            (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
            (folder / "tools.py").write_text(TOOLS)
            page = await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(READY, timeout=settings.BOOT_TIMEOUT_MS)
            seen = {}
            for number, tool in enumerate(("in_page", "in_worker"), 1):
                params = {"name": tool, "arguments": {}, "_meta": META}
                answer = await http.post(
                    f"{here}/notes",
                    json={"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params},
                    headers={
                        "Authorization": f"Bearer {relay.token}",
                        "Accept": "application/json, text/event-stream",
                        "MCP-Protocol-Version": "2026-07-28",
                        "Mcp-Method": "tools/call",
                        "Mcp-Name": tool,
                        "traceparent": f"00-{TRACE}-{number:016x}-01",
                        "tracestate": "vendor=1",
                    },
                )
                seen[tool] = answer.json()["result"]["structuredContent"]["trace"]
            spans = await collector.until("tools/call in_page", "tools/call in_worker")
    for number, tool in enumerate(seen, 1):
        [face] = [span for span in spans if (span.name, span.kind) == (f"tools/call {tool}", "server")]
        [link] = [span for span in spans if (span.name, span.kind) == (f"tools/call {tool}", "client")]
        assert (face.trace, link.trace, face.parent) == (TRACE, TRACE, f"{number:016x}")
        # The page's own tracer continues from this context: its parent is the relay's span of the link.
        assert seen[tool] == {"traceparent": f"00-{TRACE}-{link.id}-01", "tracestate": "vendor=1"}
