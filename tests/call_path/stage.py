"""Set-up of the measurement: a relay in this process, Chromium with a page and its shared worker, and one client.

Each tool stops in the middle and sends a synchronous request to this set-up, so that nothing else of its thread runs
meanwhile. Then the relay and the worker have finished everything that belongs to the way in, and the way out begins.
JavaScript is measured by precise coverage, which counts calls and has no order.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import h11
from playwright.async_api import async_playwright

from tests.call_path import tracer
from tests.call_path.held_timers import SCRIPT, HeldTimers
from tests.call_path.tracer import Step, Tracer
from tests.support.other_origin import Site
from tests.support.paths import ROOT
from tests.support.playwright_settings import load_settings
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S
from tests.support.worker_target import WorkerTarget

SERVER: Final = "notes"
PAGE_TOOL: Final = "in_page"
WORKER_TOOL: Final = "in_worker"

PAGE: Final = """<!doctype html>
<title>Call path</title>
<script type="module">
import "/held_timers.js";
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect(OPTIONS);
connection.offerTool({
  name: "in_page",
  description: "Say it again.",
  inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  execute: ({ text }) => {
    const request = new XMLHttpRequest();
    request.open("GET", "BARRIER", false);
    request.send();
    return text;
  },
});
</script>
"""
WORKER: Final = 'import "/held_timers.js";\nimport "RELAY/-/worker.js";\n'
# The tracer's own text precedes it.
TOOLS: Final = '''

import json

from js import XMLHttpRequest, globalThis
from pyodide.ffi import create_proxy

from tabserver import tool


def _label(name):
    _, found, rest = name.rpartition("tabserver/")
    return found + rest if found and not rest.startswith("js/") else None


_tracer = Tracer(_label)


@tool
def in_worker(text: str) -> str:
    """Say it again."""
    request = XMLHttpRequest.new()
    request.open("GET", "BARRIER", False)
    request.send()
    _tracer.phase = "out"
    return text


def _control(what):
    if what == "start":
        _tracer.start()
    elif what == "out":
        _tracer.phase = "out"
    else:
        return json.dumps(_tracer.stop())


globalThis.tracePython = create_proxy(_control)
'''
READY: Final = """connection.state.state === "connected"
  && ["in_page", "in_worker"].every((name) => connection.catalogue?.tools.some((tool) => tool.name === name))"""


@dataclass(slots=True)
class Trace:
    """The functions that one call entered. Steps of Python in order; functions of JavaScript with their number of
    calls."""

    relay: list[Step] = field(default_factory=list)
    worker: list[Step] = field(default_factory=list)
    worker_js: Counter[tuple[str, str]] = field(default_factory=Counter)
    page_js: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def files(self) -> set[str]:
        python = {file for _, _, file, _ in [*self.relay, *self.worker]}
        return python | {file for file, _ in [*self.worker_js, *self.page_js]}


def relay_label(name: str) -> str | None:
    for folder in ("relay", "browser_pkg"):
        if name.startswith(f"{ROOT / folder}/"):
            return name.removeprefix(f"{ROOT / folder}/")
    return None


class Client:
    """One HTTP connection that writes a request in one piece, as fast clients do. Sets no timers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(
        self, head: Mapping[str, str], body: bytes, *, is_chunked: bool = False
    ) -> tuple[h11.Response, bytes]:
        """Send a request and read its whole response. A chunked body never takes the relay's fast path."""
        if is_chunked:
            length, body = "Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        else:
            length = f"Content-Length: {len(body)}"
        lines = [f"POST /{SERVER} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), length, "", ""]
        self._writer.write("\r\n".join(lines).encode() + body)
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
        parser.send(h11.EndOfMessage())
        response, received = None, b""
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(await self._reader.read(65_536))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                received += event.data
            else:
                assert response is not None and isinstance(event, h11.EndOfMessage), event
                return response, received

    def close(self) -> None:
        self._writer.transport.abort()


class CallPathSetup:
    """Start it with `async with`; `follow` measures one call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self._tracer = Tracer(relay_label)
        self._is_page_called = False

    async def __aenter__(self) -> CallPathSetup:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        await asyncio.to_thread(_make_snapshot)
        enter = self._stack.enter_async_context
        self._timers = HeldTimers(asyncio.get_running_loop())
        self._stack.enter_context(self._timers.installed())
        barrier = await enter(await asyncio.start_server(self._barrier, "127.0.0.1", 0))
        self._barrier_url = f"http://127.0.0.1:{barrier.sockets[0].getsockname()[1]}/"
        files = self._folder / "app"
        files.mkdir()
        site = self._stack.enter_context(Site(files))
        self.relay = await enter(RunningRelay(self._folder / "home", servers=(SERVER,), allow_origins=(site.origin,)))
        self._write(files)
        playwright = await enter(async_playwright())
        settings = load_settings()
        browser = await playwright.chromium.launch(**settings.launch_options())
        self._stack.push_async_callback(browser.close)
        self._page = await browser.new_page()
        await self._page.goto(f"{site.origin}/index.html")
        await self._page.wait_for_function(READY, timeout=settings.BOOT_TIMEOUT_MS)
        await self.relay.has_read(SERVER, lambda row: True)
        self._worker = WorkerTarget(await browser.new_browser_cdp_session())
        await self._worker.attach()
        self._page_session = await self._page.context.new_cdp_session(self._page)
        for target in (self._worker, self._page_session):
            await target.send("Profiler.enable")
            await target.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": False})
        self.client = Client(*await asyncio.open_connection("127.0.0.1", self.relay.port))
        self._stack.callback(self.client.close)

    def _write(self, files: Path) -> None:
        options = {
            "server": SERVER,
            "relay": self.relay.url,
            "token": self.relay.token,
            "worker": "/worker.js",
            "modules": ["/tools.py"],
        }
        source = Path(tracer.__file__).read_text(encoding="utf-8")
        texts = {
            "index.html": PAGE.replace("OPTIONS", json.dumps(options)),
            "worker.js": WORKER,
            "held_timers.js": SCRIPT,
            "tools.py": source + TOOLS,
        }
        for name, text in texts.items():
            filled = text.replace("RELAY", self.relay.url).replace("BARRIER", self._barrier_url)
            (files / name).write_text(filled, encoding="utf-8")

    async def _barrier(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A tool has started: when everything before it is finished, the way out begins."""
        await reader.readuntil(b"\r\n\r\n")
        if self._is_page_called:  # otherwise the worker waits here, and begins its way out by itself
            await self._worker.evaluate("settled()")
            await self._worker.evaluate('tracePython("out")')
        await _settled()
        self._tracer.phase = "out"
        headers = "Access-Control-Allow-Origin: *\r\nContent-Length: 0\r\nConnection: close"
        writer.write(f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async def hold_timers(self) -> None:
        self._timers.hold()
        await self._worker.evaluate("holdTimers(true)")
        await self._page.evaluate("holdTimers(true)")

    async def release_timers(self) -> None:
        await self._page.evaluate("holdTimers(false)")
        await self._worker.evaluate("holdTimers(false)")
        self._timers.release()

    async def follow(self, tool: str, call: Callable[[], Awaitable[None]]) -> Trace:
        """Measure one call of a tool."""
        with self._timers.bound(BOUND_S):
            await self._worker.evaluate("settled()")
            await self._page.evaluate("settled()")
            await self._worker.evaluate('tracePython("start")')
            for target in (self._worker, self._page_session):
                await target.send("Profiler.takePreciseCoverage")
            self._is_page_called = tool == PAGE_TOOL
            self._tracer.start()
            try:
                await call()
                await _settled()
            finally:
                relay = self._tracer.stop()
                self._is_page_called = False
            await self._worker.evaluate("settled()")
            worker = [tuple(step) for step in json.loads(await self._worker.evaluate('tracePython("stop")'))]
            covered = [
                _called(await target.send("Profiler.takePreciseCoverage"), self.relay.url)
                for target in (self._worker, self._page_session)
            ]
        return Trace(relay, worker, *covered)


def _called(coverage: dict[str, Any], relay: str) -> Counter[tuple[str, str]]:
    """The functions of the product's scripts that were called, by file and name."""
    found: Counter[tuple[str, str]] = Counter()
    for script in coverage["result"]:
        url = script["url"]
        if not url.startswith(f"{relay}/-/") or url.startswith(f"{relay}/-/assets/"):
            continue
        for function in script["functions"]:
            count = function["ranges"][0]["count"]
            if count:
                file = f"tabserver/js/{url.removeprefix(f'{relay}/-/')}"
                found[file, function["functionName"] or "(anonymous)"] += count
    return found


def _make_snapshot() -> None:
    subprocess.run([sys.executable, ROOT / ".ci" / "setup.py", "snapshot"], check=True, stdout=sys.stderr)


async def _settled() -> None:
    """Let the event loop run everything that is due."""
    for _ in range(8):
        await asyncio.sleep(0)
