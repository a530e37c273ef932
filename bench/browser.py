"""Latency and cost of a whole call: HTTP client, relay, worker, tab and back, in a real Chromium, beside a minimal
worker.

The floor is `floor.js`, a worker in plain JavaScript with the same socket and the same transfer to the tab. Both
workers live in one browser behind one relay, under two names. Each has two tools: one in the tab, one in the worker (in
Python for the product). They take turns within a round, and ratios are taken within a round: many short rounds, because
a shared machine may become twice as slow within seconds. Before that each is called for a while without being measured,
because V8 compiles WebAssembly a second time while it runs.

The second table shows the processor time of a call by stage; unlike wall time, it is reliable on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.async_api import async_playwright

from bench import machine
from bench.boot import site
from bench.hop import call, spread
from bench.plot import Bar, bars
from bench.stage import lone_relay
from bench.table import table
from bench.threads import STAGES, processor_us
from tests.support.playwright_settings import load_settings

FLOOR, PRODUCT = "floor", "product"
TOOLS = {"in_tab": "tool in the tab", "in_worker": "tool in the worker"}

FLOOR_PAGE = """<!doctype html>
<title>floor</title>
<script type="module">
const { port } = new SharedWorker("/floor.js");
port.onmessage = ({ data }) => {
  if (data.isUp) globalThis.isUp = true;
  else port.postMessage({ c: data.c, i: data.i, text: data.args.text });
};
port.postMessage({ dial: DIAL });
</script>
"""
PRODUCT_PAGE = """<!doctype html>
<title>product</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const connection = connect(OPTIONS);
connection.offerTool({
  name: "in_tab",
  description: "Say it again.",
  inputSchema: { type: "object", properties: { text: { type: "string" } } },
  execute: ({ text }) => text,
});
connection.addEventListener("catalogue", ({ detail }) => { globalThis.isUp = detail.tools.length === 2; });
</script>
"""
PYTHON = '''"""A tool in Python."""

from tabserver import tool


@tool
def in_worker(text: str) -> str:
    """Say it again."""
    return text
'''


@dataclass(frozen=True, slots=True)
class Sample:
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    failures: int
    cpu_us: dict[str, float]  # a call, by stage


def write(folder: Path, relay: str, token: str) -> None:
    dial = {"url": f"{relay.replace('http', 'ws', 1)}/{FLOOR}", "token": token, "server": FLOOR}
    options = {"server": PRODUCT, "relay": relay, "token": token, "worker": "/worker.js", "modules": ["/tools.py"]}
    (folder / "floor.js").write_bytes(Path(__file__).with_name("floor.js").read_bytes())
    (folder / "floor.html").write_text(FLOOR_PAGE.replace("DIAL", json.dumps(dial)))
    (folder / "product.html").write_text(PRODUCT_PAGE.replace("RELAY", relay).replace("OPTIONS", json.dumps(options)))
    (folder / "worker.js").write_text(f'import "{relay}/-/worker.js";\n')
    (folder / "tools.py").write_text(PYTHON)


Samples = dict[tuple[int, str, str], list[Sample]]


async def run(rounds: int, seconds: float, callers: list[int], warm_up_s: float) -> Samples:
    samples: Samples = {}
    async with AsyncExitStack() as stack:
        folder, origin = await stack.enter_async_context(site())
        relay = stack.enter_context(lone_relay(flags=("--allow-origin", origin), servers=(FLOOR, PRODUCT)))
        base, token = relay.said["base_url"], relay.said["token"]
        write(folder, base, token)
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(**load_settings().launch_options())
        stack.push_async_callback(browser.close)
        context = await browser.new_context()
        for name in (FLOOR, PRODUCT):
            page = await context.new_page()
            await page.goto(f"{origin}/{name}.html")
            await page.wait_for_function("globalThis.isUp === true", timeout=60_000)

        async def measure(name: str, tool: str, count: int, seconds: float) -> Sample:
            before = processor_us(os.getpid(), relay.pid)
            # In another thread: the browser's driver must run meanwhile.
            got = await asyncio.to_thread(call, f"{base}/{name}", token, "modern", count, seconds, tool=tool)
            spent = processor_us(os.getpid(), relay.pid) - before
            cpu_us = {stage: spent[stage] / got["total"] for stage in STAGES}
            figures = {each: got[each] for each in ("calls_per_s", "p50_ms", "p99_ms", "failures")}
            return Sample(**figures, cpu_us=cpu_us)

        for tool in TOOLS:
            for name in (FLOOR, PRODUCT):
                await measure(name, tool, 8, warm_up_s)
        for count in callers:
            for round in range(rounds):
                for tool in TOOLS:
                    # The order alternates, so that a machine whose speed changes favours neither.
                    for name in (FLOOR, PRODUCT) if round % 2 == 0 else (PRODUCT, FLOOR):
                        sample = await measure(name, tool, count, seconds)
                        samples.setdefault((count, tool, name), []).append(sample)
                print(f"{count} callers, round {round + 1} of {rounds}", file=sys.stderr, flush=True)
    return samples


def report(samples: Samples) -> str:
    rows = []
    for (count, tool, name), mine in samples.items():
        floor = samples[count, tool, FLOOR]
        failures = sum(sample.failures for sample in mine)
        rows.append(
            [
                _label(count, tool, name) + (f" ({failures} FAILED)" if failures else ""),
                f"{median(sample.calls_per_s for sample in mine):,.0f}",
                spread([one.calls_per_s / other.calls_per_s for one, other in zip(mine, floor, strict=True)]),
                f"{median(sample.p50_ms for sample in mine):.2f}",
                spread([one.p50_ms / other.p50_ms for one, other in zip(mine, floor, strict=True)]),
                f"{median(sample.p99_ms for sample in mine):.2f}",
            ]
        )
    return table(["", "calls/s", "× floor", "p50 ms", "× floor", "p99 ms"], rows)


def _label(count: int, tool: str, name: str) -> str:
    return f"{count} caller{'s' if count > 1 else ''}, {TOOLS[tool]}: {name}"


def stages(samples: Samples) -> str:
    """Processor time by stage."""
    rows = []
    for (count, tool, name), mine in samples.items():
        sums = [[sum(sample.cpu_us.values()) for sample in each] for each in (mine, samples[count, tool, FLOOR])]
        rows.append(
            [
                _label(count, tool, name),
                *(f"{median(sample.cpu_us[stage] for sample in mine):,.0f}" for stage in STAGES),
                f"{median(sums[0]):,.0f}",
                spread([one / other for one, other in zip(*sums, strict=True)]),
            ]
        )
    return table(["CPU µs/call", *STAGES, "all", "× floor"], rows)


def picture(samples: Samples) -> str:
    rows = []
    for (count, tool, name), mine in samples.items():
        rates = [sample.calls_per_s for sample in mine]
        rows.append(Bar(_label(count, tool, name), median(rates), min(rates), max(rates)))
    return bars("Calls per second through Chromium", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--warm-up", type=float, default=4.0, metavar="SECONDS", help="for each tool, unmeasured")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    args = parser.parse_args()
    about = machine.describe()
    samples = asyncio.run(run(args.rounds, args.seconds, args.callers, args.warm_up))
    print("\n".join(about), f"{args.rounds} interleaved rounds of {args.seconds:g} s", sep="\n", end="\n\n")
    print(report(samples), stages(samples), sep="\n\n")
    if args.plot:
        args.plot.write_text(picture(samples))
    return 1 if any(sample.failures for mine in samples.values() for sample in mine) else 0


if __name__ == "__main__":
    sys.exit(main())
