"""Cost of a bus and its recovery times: calls to a browser at another relay beside calls at the same relay and beside a
bare request and reply over NATS.

Everything is on loopback; relays, nats-server, browsers and the replier of bare NATS are separate processes, callers
are in this one. `python -m bench.bus` measures processor time of all relays together for a call, then calls per second
with one, two and three nodes, then the callers' waiting time after each fault. On a busy machine only the processor
time is reliable.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import httpx2
import nats
import uvloop

from bench import load, machine
from bench.peer import Linked, Socket, bearer
from bench.stage import TOKEN
from bench.table import table
from tabserver.wire.events import Closed
from tabserver.wire.frames import SUBPROTOCOL
from tests.support.cpython_worker import CPythonWorker
from tests.support.demo import Demo
from tests.support.link_worker import SyntheticWorker
from tests.support.nats_server import NatsServer
from tests.support.running_relay import ACCEPT, modern
from tests.support.waiting import until

TICK = os.sysconf("SC_CLK_TCK")
PAYLOAD = b"x" * 300
SETTINGS = {"call_log": "none", "log_file": "none", "rate_s": 0, "in_flight_server": 256}


class Node:
    """One relay, without the taps of the tests."""

    def __init__(self, home: Path, bus: str) -> None:
        self.process = Demo(home, "--bus", bus, "--log-level", "error", verb="serve", **SETTINGS)
        self.process.recorder.env = {}

    async def start(self) -> None:
        await self.process.start()
        self.url = f"http://127.0.0.1:{self.process.port}"
        headers = {"Authorization": f"Bearer {self.process.token}", "Accept": ACCEPT}
        limits = httpx2.Limits(max_connections=256, max_keepalive_connections=256)
        self.http = httpx2.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=60, limits=limits)

    async def call(self, server: str) -> dict[str, Any]:
        params = {"name": "echo", "arguments": {"text": "x" * 150}}
        answer: dict[str, Any] = (await self.http.post(f"/{server}", **modern("tools/call", params))).json()
        return answer

    def target(self, server: str) -> load.Target:
        return load.Target(f"{self.url}/{server}", self.process.token)

    async def is_served(self, server: str) -> bool:
        return "result" in await self.call(server)

    async def knows(self, nodes: int) -> None:
        async def is_known() -> bool:
            return len((await self.http.get("/-/status")).json()["nodes"]) == nodes

        await until(is_known, 60)

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK


@asynccontextmanager
async def role(*arguments: str, token: str = "") -> AsyncIterator[None]:
    """This file as a separate process in another role; inside, it is ready."""
    command = [sys.executable, "-m", "bench.bus", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, TOKEN: token}
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline(), "it did not start"
        yield
    finally:
        process.kill()
        await process.wait()


async def echo(bus: str) -> None:
    """The minimal node: answers what it receives over NATS."""
    client = await nats.connect(bus)

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await client.subscribe("bench.echo", cb=answer)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def browsers(addresses: list[str]) -> None:
    """Browsers at these addresses: the node's URL, then the server's name."""
    protocols = [SUBPROTOCOL, bearer(os.environ[TOKEN])]
    for address in addresses:
        _, _, name = address.rpartition("/")
        await Socket.dial(address.replace("http", "ws", 1), protocols, Linked(name, f"bench-{name}"))
    print("ready", flush=True)
    await asyncio.Event().wait()


async def bare(bus: str, callers: int, seconds: float) -> load.Outcome:
    """Request and reply over NATS, as often as possible."""
    client = await nats.connect(bus)
    took: list[float] = []
    begin = perf_counter() + load.WARM_UP_S

    async def run() -> None:
        while (began := perf_counter()) < begin + seconds:
            await client.request("bench.echo", PAYLOAD, timeout=30)
            if began >= begin:
                took.append(perf_counter() - began)

    await asyncio.gather(*(run() for _ in range(callers)))
    await client.close()
    took.sort()
    p50_ms, p99_ms = (load.percentile(took, share) * 1000 for share in (0.5, 0.99))
    return load.Outcome(len(took) / seconds, p50_ms, p99_ms, len(took), len(took), 0.0, 0, None)


async def measured(made: list[Node], *work: Awaitable[load.Outcome]) -> tuple[float, float, float, float]:
    """Calls per second, p50 and p99 in ms, and processor time of the nodes for each call in µs."""
    before = sum(node.cpu_s for node in made)
    found = await asyncio.gather(*work)
    cpu_us = (sum(node.cpu_s for node in made) - before) / sum(one.total for one in found) * 1e6
    assert not any(one.failures for one in found), [one.first_failure for one in found]
    p50_ms, p99_ms = (median(getattr(one, name) for one in found) for name in ("p50_ms", "p99_ms"))
    return sum(one.calls_per_s for one in found), p50_ms, p99_ms, cpu_us


async def hop(made: list[Node], bus: NatsServer, rounds: int, seconds: float) -> None:
    a, b, _ = made
    here, there = f"{a.url}/here", f"{b.url}/there"
    rows: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    async with role("--echo", bus.url), role("--browsers", here, there, token=a.process.token):
        for name in ("here", "there"):
            await until(lambda name=name: a.is_served(name), 60)
        for _ in range(rounds):
            for callers in (1, 16):
                for name, work in (
                    ("bare NATS", bare(bus.url, callers, seconds)),
                    ("local call", load.run(a.target("here"), callers, seconds)),
                    ("remote call", load.run(a.target("there"), callers, seconds)),
                ):
                    rows.setdefault((name, callers), []).append(await measured(made, work))
    said = []
    for (name, callers), found in sorted(rows.items(), key=lambda row: row[0][1]):
        rate, p50, p99, cpu = (median(one[index] for one in found) for index in range(4))
        shown = f"{cpu:,.0f}" if name != "bare NATS" else "–"
        label = f"{callers} caller{'s' if callers > 1 else ''}: {name}"
        said.append((label, f"{rate:,.0f}", f"{p50:.2f}", f"{p99:.2f}", shown))
    print(table(("way", "calls/s", "p50 ms", "p99 ms", "CPU µs of the relays"), said), flush=True)


async def spread(made: list[Node], seconds: float) -> None:
    """Browsers spread evenly over this many nodes, with callers of each at every node: most calls are remote."""
    said = []
    for count in (1, 2, 3):
        nodes = made[:count]
        names = [f"spread-{count}-{index}" for index in range(6)]
        homes = itertools.cycle(nodes)
        async with role("--browsers", *(f"{next(homes).url}/{name}" for name in names), token=made[0].process.token):
            for node, name in itertools.product(nodes, names):
                await until(lambda node=node, name=name: node.is_served(name), 60)
            callers = [load.run(node.target(name), 4 // count or 1, seconds) for node in nodes for name in names]
            rate, p50, _, cpu = await measured(made, *callers)
        said.append((f"{count} node{'s' if count > 1 else ''}", f"{rate:,.0f}", f"{p50:.1f}", f"{cpu:,.0f}"))
    print(table(("browsers and callers spread over", "calls/s", "p50 ms", "CPU µs of the relays"), said), flush=True)


async def faults(made: list[Node], bus: NatsServer) -> None:
    said: list[tuple[str, str]] = []

    def note(fault: str, seconds: float) -> None:
        said.append((fault, f"{seconds:.2f}"))

    await owners(made, note)
    a, b, c = made
    async with SyntheticWorker(b.url, b.process.token, "after", inst="w9") as worker:
        await recovers(a, "after")
        await bus.kill()
        note("the bus is lost, until calls for other relays are refused at once", await took(lambda: is_refused(a)))
        await bus.start()
        note("the bus is back, until they are answered", await recovers(a, "after"))
        b.process.signal(signal.SIGSTOP)
        began = perf_counter()
        await a.call("after")
        note("the browser's node is stopped (SIGSTOP), until its callers get an error", perf_counter() - began)
        b.process.signal(signal.SIGCONT)
        note("it goes on, until calls are answered", await recovers(a, "after"))
        await c.knows(3)
        worker.on_call = lambda *_: None
        calls, seen = len(worker.calls), len(worker.seen)
        lost = asyncio.create_task(c.call("after"))
        await until(lambda: len(worker.calls) > calls)
        await c.process.kill()
        stopped = await took(lambda: any(isinstance(event, Closed) for event in worker.seen[seen:]))
        note("the caller's node is killed, until the browser gets the cancellation", stopped)
        await asyncio.gather(lost, return_exceptions=True)
        async with SyntheticWorker(a.url, a.process.token, "after", inst="w10"):
            dropped = await took(lambda: worker.close_code is not None)
            note("two browsers have one name at two nodes, until the older is sent away", dropped)
    print(table(("fault", "s"), said), flush=True)


async def owners(made: list[Node], note: Callable[[str, float], None]) -> None:
    """The node that has the browser stops, and the browser connects to another."""
    a, b, c = made
    async with CPythonWorker(b.url, b.process.token, "faulty") as worker:
        await recovers(a, "faulty")
        worker.dialer.set_target(c.url)
        await b.process.kill()
        note("the browser's node is killed, until a call is answered", await recovers(a, "faulty"))
        worker.dialer.set_target(a.url)
        stopping = asyncio.create_task(c.process.stop())
        note("the browser's node is stopped in order, until a call is answered", await recovers(a, "faulty"))
        await stopping
    for node in (b, c):
        await node.start()
    for node in (a, b, c):
        await node.knows(3)


async def is_refused(node: Node) -> bool:
    answer = await node.call("after")
    return "error" in answer and answer["error"]["data"]["reason"] == "relay_unavailable"


async def took(condition: Any) -> float:
    began = perf_counter()
    await until(condition, 60)
    return perf_counter() - began


async def recovers(node: Node, server: str) -> float:
    """Wait until the server answers, even with an error about an unknown tool."""
    began = perf_counter()

    async def is_there() -> bool:
        answer = await node.call(server)
        return (
            "result" in answer or not -31100 < answer["error"]["code"] < -31000
        )  # the others are the relay's own errors

    await until(is_there, 60)
    return perf_counter() - began


async def run(rounds: int, seconds: float) -> None:
    print("\n".join(machine.describe()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        async with NatsServer(Path(folder) / "nats") as bus:
            made = [Node(Path(folder) / "home", bus.url) for _ in range(3)]
            for node in made:
                await node.start()
            try:
                for node in made:
                    await node.knows(3)
                await hop(made, bus, rounds, seconds)
                await spread(made, 2 * seconds)
                await faults(made, bus)
            finally:
                for node in made:
                    await node.http.aclose()
                    node.process.signal(signal.SIGCONT)
                    node.process.signal(signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each way in each round")
    parser.add_argument("--echo", metavar="BUS", help=argparse.SUPPRESS)
    parser.add_argument("--browsers", nargs="+", metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.echo:
        uvloop.run(echo(given.echo))
    elif given.browsers:
        uvloop.run(browsers(given.browsers))
    else:
        uvloop.run(run(given.rounds, given.seconds))


if __name__ == "__main__":
    main()
