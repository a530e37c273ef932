"""Whole calls in two trees: both relays, and one Chromium with a page and a worker of each tree.

The cost of a call is the processor time of its relay and of all browser processes. While one tree is measured the other
is idle, and the time of its relay is not counted.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from playwright.async_api import async_playwright

from bench.boot import site
from bench.browser import PYTHON
from bench.compare.hop import REGULAR_REQUESTS
from bench.compare.pairs import FAST, REGULAR, Pairs, Sample, take_turns
from bench.compare.trees import Tree
from bench.hop import call
from bench.load import CALL
from bench.stage import SERVER, Child, lone_relay
from bench.threads import processor_us
from tests.support.playwright_settings import load_settings

CALLERS = (1, 16)
REGULAR_CALLERS = 4
WARM_UP_S = 3.0
PROGRESS_TOOL = "with_progress"
PAGE = """<!doctype html>
<title>compare</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const connection = connect(OPTIONS);
const inputSchema = { type: "object", properties: { text: { type: "string" } } };
const offer = (name, execute) => connection.offerTool({ name, description: "Say it again.", inputSchema, execute });
offer("in_tab", ({ text }) => text);
offer("with_progress", ({ text }, { progress }) => {
  progress(1, 2);
  return text;
});
connection.addEventListener("catalogue", ({ detail }) => { globalThis.isUp = detail.tools.length === 3; });
</script>
"""

# Era, method, tool, token for progress, callers.
Request = tuple[str, str, str, str, int]


def wanted() -> dict[str, tuple[str, Request]]:
    found: dict[str, tuple[str, Request]] = {}
    for tool, place in (("in_tab", "tab"), ("in_worker", "worker")):
        for callers in CALLERS:
            name = f"modern, tool in the {place}, {callers} caller{'s' if callers > 1 else ''}"
            found[name] = FAST, ("modern", CALL, tool, "", callers)
        found[f"legacy, tool in the {place}, 16 callers"] = FAST, ("legacy", CALL, tool, "", 16)
    for name, (era, method, progress) in REGULAR_REQUESTS.items():
        found[name] = REGULAR, (era, method, PROGRESS_TOOL, progress, REGULAR_CALLERS)
    return found


def write(folder: Path, which: int, relay: Child) -> None:
    base = str(relay.said["base_url"])
    options = {
        "server": SERVER,
        "relay": base,
        "token": relay.said["token"],
        "worker": f"/worker{which}.js",
        "modules": ["/tools.py"],
    }
    page = PAGE.replace("RELAY", base).replace("OPTIONS", json.dumps(options))
    (folder / f"page{which}.html").write_text(page)
    (folder / f"worker{which}.js").write_text(f'import "{base}/-/worker.js";\n')
    (folder / "tools.py").write_text(PYTHON)


async def run(trees: Sequence[Tree], rounds: int, seconds: float) -> list[Pairs]:
    requests = wanted()
    pairs = [Pairs(name, kind) for name, (kind, _) in requests.items()]
    async with AsyncExitStack() as stack:
        folder, origin = await stack.enter_async_context(site())
        relays = [stack.enter_context(lone_relay(flags=("--allow-origin", origin), env=tree.env)) for tree in trees]
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(**load_settings().launch_options())
        stack.push_async_callback(browser.close)
        for which, relay in enumerate(relays):
            write(folder, which, relay)
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(f"{origin}/page{which}.html")
            await page.wait_for_function("globalThis.isUp === true", timeout=60_000)

        def measure(which: int, what: Pairs, seconds: float = seconds) -> Sample:
            era, method, tool, progress, callers = requests[what.name][1]
            relay = relays[which]
            url, token = f"{relay.said['base_url']}/{SERVER}", str(relay.said["token"])
            before = processor_us(os.getpid(), relay.pid)
            got = call(url, token, era, callers, seconds, method=method, tool=tool, progress=progress)
            spent = processor_us(os.getpid(), relay.pid) - before
            assert not got["failures"], got["first_failure"]
            return Sample(spent.total() / got["total"], got["calls_per_s"])

        for each in pairs:
            if requests[each.name][1][-1] > 1:
                for which in (0, 1):
                    # In another thread: the browser's driver must run meanwhile.
                    await asyncio.to_thread(measure, which, each, WARM_UP_S / 2)
        await asyncio.to_thread(take_turns, pairs, rounds, measure)
    return pairs
