"""How long a browser waits: from `new SharedWorker()` until the worker's link to the relay is up, beside stock Pyodide.

Every round boots each candidate once cold (a new browser with nothing cached) and once warm (a profile that has booted
it before, so that files and compiled code are cached), one right after the other; ratios are taken within a round. The
last columns are the processor time of the whole browser for a cold boot, which depends least on the neighbours.
`--steps` adds what lies between stock and product, each step on top of the one before. `--pyscript` measures a page of
PyScript instead: from its first script to its first line of Python.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import struct
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from os import getpid
from pathlib import Path
from statistics import median
from threading import Thread
from types import ModuleType
from typing import Any

import httpx2
from playwright.async_api import Page, Playwright, async_playwright

from bench import machine
from bench.stage import ROOT, SERVER, family_cpu_s, lone_relay
from bench.table import table

STOCK, PRODUCT = "stock", "product"
STEPS = {
    STOCK: "stock Pyodide",
    "library": "+ compiled library",
    "snapshot": "+ memory snapshot",
    "sparse": "+ without its zeroes",
    PRODUCT: "+ everything at once: Tabrelay",
}
PYSCRIPT = {STOCK: "PyScript, stock library", PRODUCT: "PyScript, compiled library"}
SETTLE_S = 4.0  # a browser keeps compiled code some time after it was used
TIMEOUT_MS = 60_000

# Noted in the page: when the worker was asked for, and when it said that it is connected.
PAGE = """<!doctype html>
<title>boot</title>
<script type="module">
const Real = SharedWorker;
let began;
globalThis.SharedWorker = class extends Real {
  constructor(...given) { began = performance.now(); super(...given); }
};
const { connect } = await import("RELAY/-/client.js");
const connection = connect(OPTIONS);
connection.addEventListener("state", ({ detail }) => {
  if (detail.state === "connected") globalThis.took ??= performance.now() - began;
});
connection.addEventListener("boot", ({ detail }) => { globalThis.from = detail.from ?? globalThis.from; });
</script>
"""
PYSCRIPT_PAGE = """<!doctype html>
<title>boot</title>
<script>globalThis.began = performance.now();</script>
<script type="py" config='{"interpreter": "INTERPRETER"}'>
import js
js.took = js.performance.now() - js.began
</script>
<script type="module" src="PYSCRIPT"></script>
"""
# PyScript on the files that the relay serves, but with the library that Pyodide brings.
STOCK_INTERPRETER = """
import * as pyodide from "INDEXpyodide.mjs";
export const version = pyodide.version;
export const loadPyodide = (options) =>
  pyodide.loadPyodide({ ...options, indexURL: "INDEX", stdLibURL: "INDEXpython_stdlib_source.zip" });
"""


class Handler(SimpleHTTPRequestHandler):
    """Serves files, says nothing, lets nothing be cached: the relay's files are what counts."""

    def log_message(self, format: str, *args: object) -> None: ...


@asynccontextmanager
async def site() -> AsyncIterator[tuple[Path, str]]:
    """A folder and its address."""
    with tempfile.TemporaryDirectory(prefix="tabrelay-boot-") as name:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=name))
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Path(name), f"http://localhost:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()


def whole(packed: bytes) -> bytes:
    """The snapshot with all of its zeroes: the reverse of `sparse` in runtime/bake.mjs."""
    length, count = struct.unpack_from("<II", packed)
    memory, start = bytearray(length), 8 + 8 * count
    for index in range(count):
        offset, size = struct.unpack_from("<II", packed, 8 + 8 * index)
        memory[offset : offset + size] = packed[start : start + size]
        start += size
    return bytes(memory)


async def write_pages(folder: Path, relay: str, token: str) -> None:
    async with httpx2.AsyncClient(base_url=relay, trust_env=False) as http:
        manifest = (await http.get("/-/manifest.json")).json()
        if "snapshot" not in manifest:
            raise SystemExit("there is no snapshot that fits these files; `make build` makes one")
        (folder / "whole.bin").write_bytes(whole((await http.get(manifest["snapshot"]["url"])).content))
    (folder / "steps.js").write_bytes((ROOT / "bench" / "steps.js").read_bytes())
    (folder / "product.js").write_text(f'import "{relay}/-/worker.js";\n')
    for step in STEPS:
        worker = "/product.js" if step == PRODUCT else f"/steps.js?step={step}&relay={relay}"
        options = {"server": SERVER, "relay": relay, "token": token, "worker": worker}
        page = PAGE.replace("RELAY", relay).replace("OPTIONS", json.dumps(options))
        (folder / f"{step}.html").write_text(page)
    index = relay + manifest["pyodide"]
    (folder / "stock_interpreter.mjs").write_text(STOCK_INTERPRETER.replace("INDEX", index))
    for name, interpreter in ((STOCK, "/stock_interpreter.mjs"), (PRODUCT, f"{index}pyodide.mjs")):
        page = PYSCRIPT_PAGE.replace("INTERPRETER", interpreter)
        page = page.replace("PYSCRIPT", f"{relay}{manifest['pyscript']}core.js")
        (folder / f"pyscript-{name}.html").write_text(page)


def load_settings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser_settings", ROOT / "playwright.config.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bench:
    """Boots one candidate at a time in a browser of its own."""

    def __init__(self, playwright: Playwright, origin: str, prefix: str, profiles: Path) -> None:
        self._chromium = playwright.chromium
        self._options: dict[str, Any] = load_settings().launch_options()
        self._origin = origin
        self._prefix = prefix
        self._profiles = profiles

    async def cold(self, candidate: str) -> tuple[float, float]:
        """Seconds by the clock, and of processor time."""
        browser = await self._chromium.launch(**self._options)
        try:
            page = await browser.new_page()
            before_s = family_cpu_s(getpid(), "chrom")
            took_s = await self._visit(page, candidate)
            return took_s, family_cpu_s(getpid(), "chrom") - before_s
        finally:
            await browser.close()

    async def warm(self, candidate: str, settle_s: float = 0.0) -> float:
        profile = self._profiles / candidate
        context = await self._chromium.launch_persistent_context(profile, **self._options)
        try:
            took = await self._visit(await context.new_page(), candidate)
            await asyncio.sleep(settle_s)
            return took
        finally:
            await context.close()

    async def _visit(self, page: Page, candidate: str) -> float:
        await page.goto(f"{self._origin}/{self._prefix}{candidate}.html")
        await page.wait_for_function("globalThis.took !== undefined", timeout=TIMEOUT_MS)
        took, came_from = await page.evaluate("[took, globalThis.from]")
        if candidate == PRODUCT and not self._prefix:
            assert came_from == "snapshot", f"the worker booted from {came_from}"
        return float(took) / 1000


async def measure(bench: Bench, candidates: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    times: dict[str, dict[str, list[float]]] = {name: {"cold": [], "warm": [], "cpu": []} for name in candidates}
    for name in candidates:
        await bench.warm(name, SETTLE_S)
    for number in range(rounds):
        for name in candidates:
            cold_s, cpu_s = await bench.cold(name)
            times[name]["cold"].append(cold_s)
            times[name]["cpu"].append(cpu_s)
            times[name]["warm"].append(await bench.warm(name))
        print(f"round {number + 1} of {rounds}", flush=True)
    return times


def row(label: str, times: dict[str, list[float]], stock: dict[str, list[float]]) -> list[str]:
    cells = [label]
    for kind in ("cold", "warm", "cpu"):
        ratios = [mine / theirs for mine, theirs in zip(times[kind], stock[kind], strict=True)]
        cells += [f"{median(times[kind]):.2f}", f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"]
    return cells


async def run(rounds: int, labels: dict[str, str], prefix: str) -> None:
    async with AsyncExitStack() as stack:
        folder, origin = await stack.enter_async_context(site())
        relay = stack.enter_context(lone_relay(flags=("--allow-origin", origin)))
        await write_pages(folder, relay.said["base_url"], relay.said["token"])
        profiles = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabrelay-profiles-")))
        playwright = await stack.enter_async_context(async_playwright())
        times = await measure(Bench(playwright, origin, prefix, profiles), list(labels), rounds)
    head = ["", "cold, s", "× stock", "warm, s", "× stock", "CPU, s", "× stock"]
    print(table(head, [row(label, times[name], times[STOCK]) for name, label in labels.items()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", action="store_true", help="also what lies between stock and product")
    parser.add_argument("--pyscript", action="store_true", help="a page with PyScript instead of the worker")
    args = parser.parse_args()
    labels = {name: label for name, label in STEPS.items() if args.steps or name in (STOCK, PRODUCT)}
    print("\n".join(machine.describe()))
    asyncio.run(run(args.rounds, PYSCRIPT if args.pyscript else labels, "pyscript-" if args.pyscript else ""))


if __name__ == "__main__":
    main()
