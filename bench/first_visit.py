"""Cost of a first visit: memory of the page's processes, bytes that are fetched, and memory of the relay.

A new Chromium with an empty profile opens a page that connects, beside the same page without the product. Memory of the
browser is the proportional set size (PSS) of its renderers, which include workers, when the browser has returned the
memory that only the start needed, which takes half a minute. Bytes are encoded bodies, as on the wire, of all requests
of pages and workers; they are counted in another Chromium, because a browser that records its requests keeps them in
memory. The relay's memory is its resident size.

Relays of other source trees (`--beside TREE`) take turns with this one's within a round.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import stage
from bench.boot import site
from bench.table import table
from tests.support.recording_chromium import RecordingChromium, pss_by_type, recording_chromium
from tests.support.waiting import until

MB = 1_000_000
SETTLE_S = 40.0
LIMITS = {"renderer": 80 * MB, "fetched": 14 * MB, "relay": 65 * MB}

PAGE = """<!doctype html>
<title>visit</title>
<p>A page with one tool.</p>
<script type="module">
const { connect } = await import("RELAY/-/client.js");
globalThis.connection = connect(OPTIONS);
connection.offerTool({ name: "title", description: "The page's title.", execute: () => document.title });
</script>
"""
PLAIN_PAGE = PAGE.partition("<script")[0]
LOADED = "document.readyState === 'complete'"
CONNECTED = "connection.state.state === 'connected' && connection.catalogue?.tools.some(({ name }) => name === 'title')"


@dataclass(frozen=True, slots=True)
class Visit:
    """Bytes, of one tree in one round."""

    plain: int
    connected: int
    fetched: int
    relay_before: int
    relay_after: int

    @property
    def renderer(self) -> int:
        return self.connected - self.plain

    @property
    def relay(self) -> int:
        return self.relay_after


@dataclass(frozen=True, slots=True)
class Site:
    """A relay without browsers, and the addresses of the two pages."""

    relay: stage.Child
    plain: str
    connected: str


@asynccontextmanager
async def visit_site(tree: Path = stage.ROOT) -> AsyncIterator[Site]:
    async with site() as (folder, origin):
        with stage.lone_relay(flags=("--allow-origin", origin), tree=tree) as relay:
            base = relay.said["base_url"]
            (folder / "worker.js").write_text(f'import "{base}/-/worker.js";\n')
            options = {"server": stage.SERVER, "relay": base, "token": relay.said["token"], "worker": "/worker.js"}
            page = PAGE.replace("RELAY", base).replace("OPTIONS", json.dumps(options))
            (folder / "connected.html").write_text(page)
            (folder / "plain.html").write_text(PLAIN_PAGE)
            yield Site(relay, f"{origin}/plain.html", f"{origin}/connected.html")


@asynccontextmanager
async def open_page(url: str, condition: str) -> AsyncIterator[RecordingChromium]:
    async with recording_chromium(is_recording=False) as chromium:
        await chromium.wait_for(await chromium.open(url), condition)
        yield chromium


async def settled_pss(url: str, condition: str) -> int:
    async with open_page(url, condition) as chromium:
        await asyncio.sleep(SETTLE_S)
        return renderer_pss(chromium)


def renderer_pss(chromium: RecordingChromium) -> int:
    return pss_by_type(chromium.pid)["renderer"]


async def fetched_bytes(url: str, condition: str) -> int:
    async with recording_chromium() as chromium:
        await chromium.wait_for(await chromium.open(url), condition)

        async def are_finished() -> bool:
            # Chromium does not always report the end of the small answer to a challenge.
            unfinished = [download.url for download in chromium.downloads if not download.is_finished]
            return all(url.endswith("/-/prove") for url in unfinished)

        await until(are_finished)
        return sum(download.body_bytes for download in chromium.downloads)


async def visit(tree: Path) -> Visit:
    async with visit_site(tree) as pages:
        plain = await settled_pss(pages.plain, LOADED)
        relay_before = pages.relay.rss()
        connected = await settled_pss(pages.connected, CONNECTED)
        relay_after = pages.relay.rss()
        fetched = await fetched_bytes(pages.connected, CONNECTED)
        return Visit(plain, connected, fetched, relay_before, relay_after)


def report(trees: dict[str, list[Visit]]) -> str:
    head = ["MB", "renderers, plain page", "connected", "more", "fetched", "relay before", "relay after"]
    figures = ("plain", "connected", "renderer", "fetched", "relay_before", "relay_after")
    rows = [
        [name, *(f"{median(getattr(visit, figure) for visit in visits) / MB:.1f}" for figure in figures)]
        for name, visits in trees.items()
    ]
    limits = {"renderer": "renderer", "fetched": "fetched", "relay_after": "relay"}
    rows.append(["limit", *(f"{LIMITS[limits[figure]] / MB:.0f}" if figure in limits else "" for figure in figures)])
    return table(head, rows)


def broken(visits: Sequence[Visit]) -> list[str]:
    medians = {name: median(getattr(visit, name) for visit in visits) for name in LIMITS}
    return [
        f"{name}: {medians[name] / MB:.1f} MB, the limit is {limit / MB:.0f} MB"
        for name, limit in LIMITS.items()
        if medians[name] > limit
    ]


async def measure(rounds: int, beside: Sequence[Path]) -> int:
    trees = {"this tree": stage.ROOT, **{f"beside: {path.name}": path for path in beside}}
    visits: dict[str, list[Visit]] = {name: [] for name in trees}
    for number in range(rounds):
        for name, tree in trees.items():
            visits[name].append(await visit(tree))
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    print(report(visits))
    problems = broken(visits["this tree"])
    print("\n" + ("FAIL: " + "; ".join(problems) if problems else "pass"))
    return 1 if problems else 0
