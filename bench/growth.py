"""Growth of costs with load: idle browsers, tools in a list, handshake sessions, and all browsers at once after a
restart of the relay.

Each figure is beside the one of a minimal load: another relay, with one browser and no session, which runs all the time
and takes turns with it in each round. Both use the same core, so the time that many idle browsers take of it slows
both; a separate column shows it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import httpx2

from bench import machine, stage
from bench.hop import call, spread
from bench.load import LEGACY, MODERN
from bench.plot import Curve, curves
from bench.table import table

CALLERS = 16
IDLE_S = 20.0  # how long relays are measured without calls: each browser is pinged every 15 to 20 s, many at once
NAME = "io.modelcontextprotocol"
META = {
    f"{NAME}/protocolVersion": MODERN,
    f"{NAME}/clientCapabilities": {},
    f"{NAME}/clientInfo": {"name": "bench", "version": "1"},
}
# Bounds that protect a relay from its clients are raised, because the cost beyond them is measured here.
ROOM = {
    "TABRELAY_MAX_CONNECTIONS": "40000",
    "TABRELAY_MAX_SERVERS": "20000",
    "TABRELAY_MAX_SESSIONS": "20000",
    "TABRELAY_MAX_TOOLS": "10000",
    "TABRELAY_MAX_LIST": str(64 * 1024 * 1024),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One relay in one round. `cpu_us`: of the relay, for one call among many, without the share of the idle
    browsers."""

    calls_per_s: float
    p50_ms: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Size:
    """One row: the number, the time of a call, the relay's memory, and its load without calls."""

    label: str
    count: int
    samples: list[Sample]
    least: list[Sample]  # of the reference relay, in the same rounds
    idle: float  # of one core
    rss: int

    def median(self, figure: str) -> float:
        return float(median(getattr(sample, figure) for sample in self.samples))

    def ratios(self, figure: str) -> list[float]:
        pairs = zip(self.samples, self.least, strict=True)
        return [getattr(one, figure) / getattr(other, figure) for one, other in pairs]


@contextlib.contextmanager
def relay(*flags: str, tools: int = 1) -> Iterator[stage.Pair]:
    here, other_cores = stage.cores(True)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(stage.lone_relay(on=here, env=ROOM, flags=flags))
        secret = {stage.TOKEN: str(server.said["token"])}
        peer = stage.Child(
            "bench.peer", "link", server.said["base_url"], "--tools", str(tools), on=other_cores, env=secret
        )
        stack.callback(peer.stop)
        yield stage.Pair(server, peer)


def weigh(
    pair: stage.Pair, least: stage.Pair, label: str, count: int, rounds: int, seconds: float
) -> tuple[Size, Size]:
    """A relay, and the reference relay."""
    both = (least, pair)
    idle = _idle(both)
    samples: tuple[list[Sample], list[Sample]] = [], []
    for round in range(rounds):
        for which in (0, 1) if round % 2 == 0 else (1, 0):
            samples[which].append(measure(both[which], idle[which], label, seconds))
    alone, many = samples
    first = Size("the least", 0, alone, alone, idle[0], least.server.rss())
    return first, Size(label, count, many, alone, idle[1], pair.server.rss())


def measure(pair: stage.Pair, idle: float, label: str, seconds: float) -> Sample:
    began, before = perf_counter(), pair.server.cpu_s()
    many = call(pair.url, pair.token, "modern", CALLERS, seconds, pin=True)
    spent = pair.server.cpu_s() - before - idle * (perf_counter() - began)
    one = call(pair.url, pair.token, "modern", 1, seconds, pin=True)
    if failures := many["failures"] + one["failures"]:
        raise SystemExit(f"{label}: {failures} calls failed: {many['first_failure'] or one['first_failure']}")
    return Sample(many["calls_per_s"], one["p50_ms"], spent / many["total"] * 1e6)


def _idle(pairs: Sequence[stage.Pair]) -> list[float]:
    """The share of a core that each relay uses without calls."""
    began, before = perf_counter(), [pair.server.cpu_s() for pair in pairs]
    sleep(IDLE_S)
    took_s = perf_counter() - began
    return [(pair.server.cpu_s() - spent) / took_s for pair, spent in zip(pairs, before, strict=True)]


def crowd(pair: stage.Pair, count: int) -> stage.Child:
    """Ready when all of them are connected."""
    env = {stage.TOKEN: pair.token}
    return stage.Child("bench.crowd", str(pair.server.said["base_url"]), str(count), on=stage.cores(True)[1], env=env)


def idle_browsers(counts: Sequence[int], rounds: int, seconds: float) -> list[Size]:
    rows, all_alone = [], list[Sample]()
    with relay() as alone:
        for count in counts:
            with relay() as pair:
                others = crowd(pair, count - 1)
                try:
                    least, row = weigh(pair, alone, f"{count:,} browsers", count, rounds, seconds)
                finally:
                    others.stop()
            rows.append(row)
            all_alone += least.samples
            print(f"{count:,} idle browsers: done", file=sys.stderr, flush=True)
    return [replace(least, label="1 browser", count=1, samples=all_alone, least=all_alone), *rows]


def sessions(count: int, rounds: int, seconds: float) -> list[Size]:
    with relay() as alone, relay() as pair:
        asyncio.run(begin(pair, count))
        least, row = weigh(pair, alone, f"{count:,} sessions", count, rounds, seconds)
    return [replace(least, label="no session"), row]


async def begin(pair: stage.Pair, count: int) -> None:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    async with client(pair) as http:
        gate = asyncio.Semaphore(16)

        async def one() -> None:
            async with gate:
                (await http.post(pair.url, json=body)).raise_for_status()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(one())


def client(pair: stage.Pair) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {pair.token}", "Accept": "application/json, text/event-stream"}
    return httpx2.AsyncClient(headers=headers, trust_env=False, timeout=120)


async def listing(pair: stage.Pair, rounds: int) -> tuple[float, int]:
    """Milliseconds for one tools/list, and its bytes."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    took, size = [], 0
    async with client(pair) as http:
        for _ in range(rounds * 4):
            began = perf_counter()
            answer = await http.post(pair.url, json=body, headers=headers)
            took.append((perf_counter() - began) * 1000)
            size = len(answer.content)
            assert "result" in answer.json(), answer.text[:200]
    return median(took), size


def reconnects(count: int) -> list[float]:
    """Seconds until all are back, after an announced stop and after a kill."""
    found = []
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(_folder())
        first = _start(home, 0)
        port = int(str(first.said["base_url"]).rpartition(":")[2])
        pair = stage.Pair(first, first)
        others = crowd(pair, count)
        stack.callback(others.stop)
        for how in ("stop", "kill"):
            first.stop() if how == "stop" else first.kill()
            first = _start(home, port)
            found.append(float(others.next()["after_s"]))
        first.stop()
    return found


def _start(home: str, port: int) -> stage.Child:
    command = ("serve", stage.SERVER, "--port", str(port), "--json", "--home", home)
    return stage.Child("tabrelay", *command, on=stage.cores(True)[0], env={**stage.ROOMY, **ROOM})


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-") as home:
        yield home


def report(rows: Sequence[Size]) -> str:
    least = rows[0]
    cells = []
    for row in rows:
        each = (row.rss - least.rss) / (row.count - least.count) / 1000 if row.count > least.count else 0.0
        cells.append(
            [
                row.label,
                f"{row.median('calls_per_s'):,.0f}",
                spread(row.ratios("calls_per_s")),
                f"{row.median('p50_ms'):.2f}",
                spread(row.ratios("p50_ms")),
                f"{row.median('cpu_us'):,.0f}",
                spread(row.ratios("cpu_us")),
                f"{row.idle:.1%}",
                f"{row.rss / 2**20:,.0f}",
                f"{each:,.0f}" if each else "",
            ]
        )
    head = ["", f"calls/s, {CALLERS} callers", "×", "p50 ms, 1 caller", "×", "CPU µs/call", "×", "idle"]
    return table([*head, "memory, MiB", "kB each"], cells)


def picture(rows: Sequence[Size], lists: Sequence[tuple[int, float]]) -> str:
    """What wall time shows as a ratio: a machine that is busier for a while would bend a curve of seconds."""

    def by_count(figure: str) -> list[tuple[int, float]]:
        return [(row.count, median(row.ratios(figure))) for row in rows]

    drawn = [
        Curve("processor time of a call, × that with one browser", by_count("cpu_us")),
        Curve("p50 of a call, 1 caller, × that with one browser", by_count("p50_ms")),
        Curve(f"calls per second, {CALLERS} callers, × those with one browser", by_count("calls_per_s")),
        Curve("memory of the relay, MiB, by idle browsers", [(row.count, row.rss / 2**20) for row in rows]),
        Curve("of a core without calls, by idle browsers", [(row.count, row.idle * 100) for row in rows], " %"),
        Curve("tools/list, ms, by tools", lists),
    ]
    return curves("Growth", drawn)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--browsers", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--tools", type=int, nargs="*", default=[10, 100, 1000, 5000])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--reconnect", type=int, default=2_000, help="browsers that a restart sends away")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("\n".join(machine.describe()), f"{args.rounds} rounds of {args.seconds:g} s", sep="\n", end="\n\n")
    crowds = idle_browsers(args.browsers, args.rounds, args.seconds)
    print(report(crowds), end="\n\n", flush=True)
    print(report(sessions(args.sessions, args.rounds, args.seconds)), end="\n\n", flush=True)
    rows, lists = [], []
    for count in args.tools:
        with relay(tools=count) as pair:
            took_ms, size = asyncio.run(listing(pair, args.rounds))
        lists.append((count, took_ms))
        rows.append([f"{count:,} tools", f"{took_ms:.1f}", f"{took_ms / count * 1000:,.0f}", f"{size / 1000:,.0f}"])
    print(table(["tools/list", "ms", "µs a tool", "kB"], rows), end="\n\n", flush=True)
    stopped, killed = reconnects(args.reconnect)
    print(f"{args.reconnect:,} browsers were back {stopped:.1f} s after a stop and {killed:.1f} s after a kill.")
    if args.plot:
        args.plot.write_text(picture(crowds, lists))
    return 0


if __name__ == "__main__":
    sys.exit(main())
