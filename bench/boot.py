"""Boot time in a browser: from `new SharedWorker()` until the worker's link to the relay is up, beside stock Pyodide.

Every round boots each candidate once cold (a new browser with nothing cached) and once warm (a profile that has
booted it before, so that files and compiled code are cached; in Firefox and WebKitGTK another worker in the same
browser), one right after the other; ratios are taken within a round. The last columns are the processor time of the
whole browser for a cold boot, which depends least on other load. `--steps` adds the candidates between stock and
product, each step on top of the one before; `--beside TREE` the product of another source tree. `--pyscript`
measures a page of PyScript instead: from its first script to its first line of Python. `--browsers
chromium,firefox,webkit` selects the browsers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from os import getpid
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any, Protocol

import httpx2
from playwright.async_api import Page, Playwright, async_playwright

from bench import machine
from bench.stage import ROOT, SERVER, family_cpu_s, lone_relay
from bench.table import table
from tests.support.browser_engines import Tab, engine, until
from tests.support.playwright_settings import load_settings

STOCK, PRODUCT = "stock", "product"
STEPS = {
    STOCK: "stock Pyodide",
    "library": "+ compiled library",
    "snapshot": "+ memory snapshot",
    PRODUCT: "+ everything at once: Tabrelay",
}
PYSCRIPT = {STOCK: "PyScript, stock library", PRODUCT: "PyScript, compiled library"}
BROWSERS = ("chromium", "firefox", "webkit")
SETTLE_S = 4.0  # a browser keeps compiled code some time after it was used
AGAIN = "again"  # another server: it gets a separate worker, whatever the state of the first
TIMEOUT_MS = 120_000

# Recorded in the page: when the worker was requested, and when it reported its connection.
PAGE = """<!doctype html>
<title>boot</title>
<script type="module">
const Real = SharedWorker;
let began;
globalThis.SharedWorker = class extends Real {
  constructor(...given) { began = performance.now(); super(...given); }
};
const { connect } = await import("RELAY/-/client.js");
const connection = connect({ ...OPTIONS, ...Object.fromEntries(new URLSearchParams(location.search)) });
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
# PyScript on the files that the relay serves, but with the library that comes with Pyodide.
STOCK_INTERPRETER = """
import * as pyodide from "INDEXpyodide.mjs";
export const version = pyodide.version;
export const loadPyodide = (options) =>
  pyodide.loadPyodide({ ...options, indexURL: "INDEX", stdLibURL: "INDEXpython_stdlib_source.zip" });
"""


class Handler(SimpleHTTPRequestHandler):
    """Serves files without an access log and without caching: the relay's files are measured."""

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


def write_page(folder: Path, name: str, relay: str, token: str, worker: str) -> None:
    options = {"server": SERVER, "relay": relay, "token": token, "worker": worker}
    page = PAGE.replace("RELAY", relay).replace("OPTIONS", json.dumps(options))
    (folder / f"{name}.html").write_text(page)


def write_product(folder: Path, name: str, relay: str, token: str) -> None:
    (folder / f"{name}.js").write_text(f'import "{relay}/-/worker.js";\n')
    write_page(folder, name, relay, token, f"/{name}.js")


async def write_pages(folder: Path, relay: str, token: str) -> None:
    async with httpx2.AsyncClient(base_url=relay, trust_env=False) as http:
        manifest = (await http.get("/-/manifest.json")).json()
        if "snapshot" not in manifest:
            raise SystemExit("there is no snapshot that fits these files; `make build` makes one")
    (folder / "steps.js").write_bytes((ROOT / "bench" / "steps.js").read_bytes())
    write_product(folder, PRODUCT, relay, token)
    for step in STEPS.keys() - {PRODUCT}:
        write_page(folder, step, relay, token, f"/steps.js?step={step}&relay={relay}")
    index = relay + manifest["pyodide"]
    (folder / "stock_interpreter.mjs").write_text(STOCK_INTERPRETER.replace("INDEX", index))
    for name, interpreter in ((STOCK, "/stock_interpreter.mjs"), (PRODUCT, f"{index}pyodide.mjs")):
        page = PYSCRIPT_PAGE.replace("INTERPRETER", interpreter)
        page = page.replace("PYSCRIPT", f"{relay}{manifest['pyscript']}core.js")
        (folder / f"pyscript-{name}.html").write_text(page)


@dataclass(frozen=True, slots=True)
class Site:
    """The address of the pages. `others`: child processes of this one that are not part of a browser."""

    origin: str
    prefix: str
    others: frozenset[int]

    def page(self, candidate: str) -> str:
        return f"{self.origin}/{self.prefix}{candidate}.html"

    def read(self, candidate: str, took_ms: float, came_from: str | None) -> float:
        """Seconds, if it has booted in the way that is to be measured."""
        if candidate not in STEPS.keys() - {PRODUCT} and not self.prefix:
            assert came_from == "snapshot", f"the worker booted from {came_from}"
        return took_ms / 1000

    def cpu_s(self) -> float:
        return family_cpu_s(getpid(), self.others)


class Bench(Protocol):
    """Boots one candidate at a time in a separate browser."""

    async def prepare(self, candidate: str) -> None: ...
    async def boot(self, candidate: str) -> dict[str, float]:
        """Seconds: wall time cold and warm, and processor time of the cold boot."""


class Chromium:
    """Warm is another start of the browser, with an earlier profile: here a worker may outlive its tabs."""

    def __init__(self, playwright: Playwright, site: Site, profiles: Path) -> None:
        self._chromium = playwright.chromium
        self._options: dict[str, Any] = load_settings().launch_options()
        self._site = site
        self._profiles = profiles

    async def prepare(self, candidate: str) -> None:
        await self._warm(candidate, SETTLE_S)

    async def boot(self, candidate: str) -> dict[str, float]:
        browser = await self._chromium.launch(**self._options)
        try:
            page = await browser.new_page()
            before_s = self._site.cpu_s()
            cold_s = await self._visit(page, candidate)
            cpu_s = self._site.cpu_s() - before_s
        finally:
            await browser.close()
        return {"cold": cold_s, "warm": await self._warm(candidate), "cpu": cpu_s}

    async def _warm(self, candidate: str, settle_s: float = 0.0) -> float:
        profile = self._profiles / candidate
        context = await self._chromium.launch_persistent_context(profile, **self._options)
        try:
            took = await self._visit(await context.new_page(), candidate)
            await asyncio.sleep(settle_s)
            return took
        finally:
            await context.close()

    async def _visit(self, page: Page, candidate: str) -> float:
        await page.goto(self._site.page(candidate))
        await page.wait_for_function("globalThis.took !== undefined", timeout=TIMEOUT_MS)
        return self._site.read(candidate, *await page.evaluate("[took, globalThis.from]"))


class Engine:
    """Any other browser: warm is another worker in the same browser."""

    def __init__(self, name: str, site: Site) -> None:
        self._name, self._site = name, site

    async def prepare(self, candidate: str) -> None: ...

    async def boot(self, candidate: str) -> dict[str, float]:
        async with engine(self._name, load_settings()) as browser:
            await browser.renew()
            before_s = self._site.cpu_s()
            tab = await browser.open(self._site.page(candidate))
            cold_s = await self._read(tab, candidate)
            cpu_s = self._site.cpu_s() - before_s
            await asyncio.sleep(SETTLE_S)
            await tab.close()
            warm_s = await self._read(await browser.open(f"{self._site.page(candidate)}?server={AGAIN}"), candidate)
        return {"cold": cold_s, "warm": warm_s, "cpu": cpu_s}

    async def _read(self, tab: Tab, candidate: str) -> float:
        await until(tab, "globalThis.took !== undefined", TIMEOUT_MS / 1000)
        return self._site.read(candidate, *await tab.run("() => [globalThis.took, globalThis.from]"))


async def measure(bench: Bench, candidates: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    times: dict[str, dict[str, list[float]]] = {name: {"cold": [], "warm": [], "cpu": []} for name in candidates}
    for name in candidates:
        await bench.prepare(name)
    for number in range(rounds):
        for name in candidates:
            for kind, took_s in (await bench.boot(name)).items():
                times[name][kind].append(took_s)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return times


def row(label: str, times: dict[str, list[float]], stock: dict[str, list[float]]) -> list[str]:
    cells = [label]
    for kind in ("cold", "warm", "cpu"):
        ratios = [mine / theirs for mine, theirs in zip(times[kind], stock[kind], strict=True)]
        cells += [f"{median(times[kind]):.2f}", f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"]
    return cells


async def run(
    browsers: Sequence[str], rounds: int, labels: dict[str, str], prefix: str, beside: Sequence[Path] = ()
) -> None:
    async with AsyncExitStack() as stack:
        folder, origin = await stack.enter_async_context(site())
        flags, servers = ("--allow-origin", origin), (SERVER, AGAIN)
        relay = stack.enter_context(lone_relay(flags=flags, servers=servers))
        await write_pages(folder, relay.said["base_url"], relay.said["token"])
        relays = {relay.pid}
        for number, tree in enumerate(beside):
            other = stack.enter_context(lone_relay(flags=flags, servers=servers, tree=tree))
            write_product(folder, f"beside{number}", other.said["base_url"], other.said["token"])
            labels = {**labels, f"beside{number}": f"Tabrelay of {tree.name}"}
            relays.add(other.pid)
        profiles = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabrelay-profiles-")))
        playwright = await stack.enter_async_context(async_playwright())
        pages = Site(origin, prefix, frozenset(relays))
        for name in browsers:
            bench = Chromium(playwright, pages, profiles) if name == "chromium" else Engine(name, pages)
            times = await measure(bench, list(labels), rounds)
            head = [name, "cold, s", "× stock", "warm, s", "× stock", "CPU, s", "× stock"]
            print("", table(head, [row(label, times[key], times[STOCK]) for key, label in labels.items()]), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", action="store_true", help="also what lies between stock and product")
    parser.add_argument("--pyscript", action="store_true", help="a page with PyScript instead of the worker")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="TREE", help="another source tree")
    parser.add_argument("--browsers", default="chromium", help=f"some of {','.join(BROWSERS)}")
    args = parser.parse_args()
    browsers = args.browsers.split(",")
    if unknown := set(browsers) - set(BROWSERS):
        parser.error(f"no such browser: {', '.join(unknown)}; there are {', '.join(BROWSERS)}")
    labels = {name: label for name, label in STEPS.items() if args.steps or name in (STOCK, PRODUCT)}
    print("\n".join(machine.describe()))
    if args.pyscript:
        asyncio.run(run(browsers, args.rounds, PYSCRIPT, "pyscript-"))
    else:
        asyncio.run(run(browsers, args.rounds, labels, "", [path.resolve() for path in args.beside]))


if __name__ == "__main__":
    main()
