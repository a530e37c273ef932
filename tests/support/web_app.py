"""A web app on its own origin, with tools in its page and in the worker, and its relay. For any browser."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support.browser_engines import Engine, Tab, until
from tests.support.demo import Demo
from tests.support.other_origin import Site

SERVER = "notes"
TIMING = {"first_delay_ms": 100, "longest_delay_ms": 300, "stable_ms": 1_000}

# `?without=SharedWorker` imitates a browser without shared workers.
PAGE = """<!doctype html>
<title>App</title>
<script>
const asked = new URLSearchParams(location.search);
document.title = asked.get("title") ?? "App";
if (asked.has("without")) delete globalThis[asked.get("without")];
</script>
<script type="module">
import { connect } from "RELAY/-/client.js";
const { worker, ...options } = OPTIONS;
globalThis.connection = connect({ ...options, worker: asked.get("worker") ?? worker });
connection.offerTool({ name: "whoami", description: "Which tab is this?", execute: () => document.title });
connection.offerTool({
  name: "echo",
  description: "Say it again.",
  inputSchema: { type: "object", properties: { said: {} }, required: ["said"] },
  execute: ({ said }) => ({ said }),
});
</script>
"""

# The same tool once in Pyodide and once in MicroPython, and one that is registered with WebMCP.
KINDS = """<!doctype html>
<title>Kinds</title>
<script src="RELAY/-/webmcp.js" data-server="notes" data-worker="/worker.js" data-token="TOKEN"></script>
<script type="module">
import { connect } from "RELAY/-/client.js";
import "/standin.js";
document.modelContext.registerTool({ name: "by_webmcp", description: "Who?", execute: () => document.title });
globalThis.connection = connect({ server: "notes", worker: "/worker.js", token: "TOKEN" });
</script>
<script type="module" src="RELAY/-/pyscript.js"></script>
<script type="py" src="/by_py.py"></script>
<script type="mpy" src="/by_mpy.py"></script>
"""
PYTHON = """from pyscript import document
from pyscript.js_modules import tabrelay
from tabserver import tool
from tabserver.page import offer


@tool(params={"greeting": (str, "Hello")})
async def NAME(greeting):
    return greeting + " " + document.title


offer(tabrelay.connect, server="notes", worker="/worker.js", token="TOKEN")
"""
STANDIN = Path(__file__).parents[2] / "web_demo" / "examples" / "webmcp" / "standin.js"

TOOLS = '''"""Tools of the worker."""

import asyncio

from tabserver import Context, tool

go = asyncio.Event()


@tool(task=True)
async def saving(ctx: Context) -> str:
    """Save how often it was run, and wait."""
    runs = (ctx.saved or 0) + 1
    ctx.save(runs)
    await go.wait()
    return f"run {runs}"


@tool(task=True)
async def forgetting() -> str:
    """Wait, and save nothing."""
    await go.wait()
    return "run 1"


@tool
def let_go() -> None:
    """End what waits."""
    go.set()


@tool
def add(a: int, b: int) -> int:
    """Add two numbers, in Python."""
    return a + b
'''

# Workers to which the browser denies what it grants to pages; with "later" it does so once Python runs.
BLOCKED = """import "./block.js";
import "RELAY/-/worker.js";
"""
BLOCK = """const isLater = new URL(location.href).pathname.includes("later");
if ("onconnect" in self) {
  const real = self.fetch;
  // These two are what a worker asks before it opens its WebSocket; it needs neither to start Python.
  self.fetch = (address, ...more) => isLater && !/\\/-\\/(prove|healthz)/.test(String(address))
    ? real(address, ...more)
    : Promise.reject(new TypeError("The browser forbids it"));
}
"""

READY = """globalThis.connection?.state.state === "connected"
    && connection.catalogue?.tools.some(({ name }) => name === "whoami")"""


class App:
    """Start it with `async with`, and open tabs in any browser."""

    def __init__(self, folder: Path, boot_timeout_s: float) -> None:
        self._folder = folder
        self._boot_timeout_s = boot_timeout_s
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> App:
        files = self._folder / "app"
        files.mkdir()
        self.site = self._stack.enter_context(Site(files))
        flags = ("--allow-origin", self.site.origin)
        self.relay = await self._stack.enter_async_context(Demo(self._folder / "home", SERVER, *flags, verb="serve"))
        options: dict[str, Any] = {
            "server": SERVER,
            "token": self.relay.token,
            "worker": "/worker.js",
            "modules": ["/tools.py"],
            "timing": TIMING,
        }
        self.write("index.html", PAGE.replace("OPTIONS", json.dumps(options)))
        self.write("worker.js", 'import "RELAY/-/worker.js";\n')
        self.write("tools.py", TOOLS)
        self.write("kinds.html", KINDS)
        self.write("standin.js", STANDIN.read_text(encoding="utf-8"))
        for name in ("by_py", "by_mpy"):
            self.write(f"{name}.py", PYTHON.replace("NAME", name))
        self.write("block.js", BLOCK)
        self.write("blocked.js", BLOCKED)
        self.write("blocked-later.js", BLOCKED)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def write(self, name: str, text: str) -> None:
        filled = text.replace("RELAY", f"http://127.0.0.1:{self.relay.port}").replace("TOKEN", self.relay.token)
        (self.site.folder / name).write_text(filled, encoding="utf-8")

    async def open(self, engine: Engine, title: str, **asked: str) -> Tab:
        """A tab that is connected and offers its tools."""
        tab = await engine.open(f"{self.site.origin}/?{urlencode({'title': title, **asked})}")
        await self.ready(tab)
        return tab

    async def ready(self, tab: Tab) -> None:
        await until(tab, READY, self._boot_timeout_s)

    async def open_kinds(self, engine: Engine) -> Tab:
        """A tab with tools of three more kinds, once all of them are offered."""
        tab = await engine.open(f"{self.site.origin}/kinds.html")
        for name in ("by_webmcp", "by_mpy", "by_py"):
            await until(tab, READY.replace("whoami", name), self._boot_timeout_s)
        return tab

    @property
    def sockets(self) -> int:
        """How many WebSockets the relay has accepted so far."""
        return sum("[accepted]" in line for line in self.relay.log)
