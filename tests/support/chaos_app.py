"""A relay, a chaos proxy before it, and a web app whose tools count how often they run.

Everything of the browser (page client, worker, WebSocket) reaches the relay through the proxy; MCP clients and the web
app's own files do not, so that only the link is disturbed.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Page

from tests.support.chaos_proxy import ChaosProxy
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import until

SERVER = "notes"

# The defaults scaled down in proportion: a lost socket is detected and replaced in a second or two.
FAST_RELAY = {"ping_interval_s": 0.5, "ping_timeout_s": 1.0, "abort_after_s": 0.1, "heartbeat_s": 0.5}
FAST_WORKER = {"first_delay_ms": 100, "longest_delay_ms": 300, "stable_ms": 1_000, "watchdog_ms": 1_500}

# For tests that lose no socket unnoticed: a socket that is only slow, on a busy machine, is not treated as dead.
STEADY_RELAY = {**FAST_RELAY, "ping_interval_s": 60.0, "ping_timeout_s": 60.0}
STEADY_WORKER = {**FAST_WORKER, "watchdog_ms": 120_000, "connect_ms": 60_000}

PAGE = """<!doctype html>
<title>TITLE</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const options = OPTIONS;
globalThis.runs = {};
globalThis.aborted = {};
globalThis.gates = {};
globalThis.states = [];
globalThis.activity = [];
globalThis.connection = connect(options);
connection.addEventListener("state", ({ detail }) => states.push(detail));
connection.addEventListener("activity", ({ detail }) => activity.push(detail));
const object = { type: "object", properties: { key: { type: "string" } }, required: ["key"] };
connection.offerTool({
  name: "work",
  description: "Wait, then return a text of the size asked for.",
  inputSchema: object,
  async execute({ key, ms = 0, size = 0 }) {
    runs[key] = (runs[key] ?? 0) + 1;
    if (ms) await new Promise((resolve) => setTimeout(resolve, ms));
    return `${key};`.repeat(Math.ceil(size / (key.length + 1)) || 1);
  },
});
connection.offerTool({
  name: "gate",
  description: "Wait until the test opens the gate.",
  inputSchema: object,
  async execute({ key }) {
    runs[key] = (runs[key] ?? 0) + 1;
    await new Promise((resolve) => { gates[key] = resolve; });
    return key;
  },
});
connection.offerTool({
  name: "hang",
  description: "Run until cancelled.",
  inputSchema: object,
  execute({ key }, { signal }) {
    runs[key] = (runs[key] ?? 0) + 1;
    return new Promise((_, reject) => signal.addEventListener("abort", () => {
      aborted[key] = String(signal.reason?.message ?? signal.reason);
      reject(signal.reason);
    }));
  },
});
connection.offerTool({
  name: "spin",
  description: "Compute without a pause.",
  inputSchema: object,
  execute({ key, ms }) {
    runs[key] = (runs[key] ?? 0) + 1;
    const end = performance.now() + ms;
    while (performance.now() < end);
    return key;
  },
});
</script>
"""

OTHER_PAGE = """<!doctype html>
<title>TITLE</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect(OPTIONS);
connection.offerTool({ name: "other", description: "Who is it?", execute: () => document.title });
</script>
"""

TOOLS = '''"""Tools of the worker."""

import asyncio

from js import Atomics, Int32Array, JSON, WebAssembly
from tabserver import tool

# A word of shared memory that never changes: a thread can wait for it without computing.
memory = WebAssembly.Memory.new(JSON.parse('{"initial": 1, "maximum": 1, "shared": true}'))

runs: dict[str, int] = {}
cancelled: list[str] = []


@tool
async def work_in_worker(key: str, ms: int = 0, size: int = 0) -> str:
    """Wait, then return a text of the size asked for."""
    runs[key] = runs.get(key, 0) + 1
    if ms:
        await asyncio.sleep(ms / 1000)
    return f"{key};" * (-(-size // (len(key) + 1)) or 1)


@tool
async def hang_in_worker(key: str) -> str:
    """Run until cancelled."""
    runs[key] = runs.get(key, 0) + 1
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append(key)
        raise
    return key


@tool
def block(key: str, seconds: float) -> str:
    """Block the whole worker, as a careless tool does."""
    runs[key] = runs.get(key, 0) + 1
    assert Atomics.wait(Int32Array.new(memory.buffer), 0, 0, seconds * 1000) == "timed-out"
    return key


@tool
def worker_runs() -> dict[str, int]:
    """How often each key was run in the worker."""
    return runs


@tool
def worker_cancelled() -> list[str]:
    """What was cancelled in the worker."""
    return cancelled
'''

# In a page: it is connected, and the tool TOOL is offered.
OFFERED = """connection.state.state === "connected"
    && connection.catalogue?.tools.some(({ name }) => name === "TOOL")"""


def expected(key: str, size: int) -> str:
    """The result of both `work` tools."""
    return f"{key};" * (-(-size // (len(key) + 1)) or 1)


class ChaosApp:
    """Start it with `async with`; then open tabs. `timing` is the worker's, `settings` are the relay's."""

    is_direct = False

    def __init__(
        self, folder: Path, context: BrowserContext, *, timing: dict[str, Any] | None = None, **settings: object
    ) -> None:
        self._folder = folder
        self._context = context
        self._timing = timing
        self._settings = settings
        self._stack = AsyncExitStack()
        self.proxy = ChaosProxy()

    async def __aenter__(self) -> ChaosApp:
        app = self._folder / "app"
        app.mkdir()
        self.site = self._stack.enter_context(Site(app))
        await self._stack.enter_async_context(self.proxy)
        flags = ["--allow-host", f"127.0.0.1:{self.proxy.port}", "--allow-origin", self.site.origin]
        self.relay = Demo(self._folder / "home", SERVER, *flags, verb="serve", **self._settings)
        await self._stack.enter_async_context(self.relay)
        self.proxy.target = ("127.0.0.1", self.relay.port)
        self.origin = f"http://127.0.0.1:{self.relay.port}" if self.is_direct else self.proxy.origin
        (app / "worker.js").write_text(f'import "{self.origin}/-/worker.js";\n')
        (app / "tools.py").write_text(TOOLS)
        self.write("index.html", PAGE, "Counting tab")
        self.write("other.html", OTHER_PAGE, "Other tab")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def write(self, name: str, page: str, title: str) -> None:
        """Add a page to the web app."""
        options = {
            "server": SERVER,
            "relay": self.origin,
            "token": self.relay.token,
            "worker": "/worker.js",
            "modules": ["/tools.py"],
            **({"timing": self._timing} if self._timing else {}),
        }
        filled = page.replace("TITLE", title).replace("RELAY", self.origin)
        (self.site.folder / name).write_text(filled.replace("OPTIONS", json.dumps(options)))

    async def visit(self, name: str = "index.html") -> Page:
        """Open a tab and do not wait for its connection."""
        page = await self._context.new_page()
        await page.goto(f"{self.site.origin}/{name}")
        return page

    async def away(self) -> None:
        """Wait until the relay knows that the socket is gone. It is then unknown whether earlier messages have
        arrived."""

        async def is_known() -> bool:
            rows = (await self.relay.status())["servers"]
            return [row["state"] for row in rows if row["name"] == SERVER] == ["offline"]

        await until(is_known)

    async def runs(self, page: Page, key: str, count: int = 1) -> None:
        """Wait until a tool of this tab has started this many runs for a key."""
        await page.wait_for_function("([key, count]) => (runs[key] ?? 0) >= count", arg=[key, count])

    async def open(self, boot_timeout_ms: float, name: str = "index.html", tool: str = "work") -> Page:
        """Open a tab and wait until it is connected and its tool is offered."""
        page = await self.visit(name)
        await page.wait_for_function(OFFERED.replace("TOOL", tool), timeout=boot_timeout_ms)
        return page


class DirectApp(ChaosApp):
    """The browser connects to the relay directly: no proxy answers while the relay is down."""

    is_direct = True
