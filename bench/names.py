"""Cost of names on the bus, and the time until very many of them are registered: for the million browsers of
docs/guides/scale.md.

`python -m bench.names`: a node with this many names, a second one that looks for them, and a real nats-server. The
names have no browsers, whose cost `bench.growth` measures. Times are of both nodes together, in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import uvloop

from bench import machine
from bench.table import table
from tabrelay.bus import envelope
from tests.support.nats_server import NatsServer
from tests.support.node_without_faces import PresenceNode
from tests.support.waiting import until

LOOKS = 500
BEATS = 20_000
PATIENCE_S = 120.0


async def names(bus: NatsServer, home: Path, count: int) -> tuple[str, ...]:
    owner, seeker = PresenceNode(bus, home, 2 * count), PresenceNode(bus, home, 2 * count)
    for house in (owner, seeker):
        await house.cluster.start()
    await until(lambda: len(seeker.cluster.nodes) == 1)
    before, began, spent = bus.rss, perf_counter(), process_time()
    for number in range(count):
        owner.hold(f"name-{number}")
        if number % 100 == 99:
            await asyncio.sleep(0)  # as browsers connect: not all in one iteration of the loop
    last = f"name-{count - 1}"

    async def is_found() -> bool:
        await seeker.locator.find(last)
        return seeker.held_by(last) is not None

    await until(is_found, PATIENCE_S)
    took, cpu, memory = perf_counter() - began, process_time() - spent, bus.rss - before
    looks = [await look(seeker, f"name-{number}") for number in range(min(LOOKS, count - 1))]
    missing = [await look(seeker, f"missing-{number}") for number in range(50)]
    await bus.kill()
    await until(lambda: not owner.cluster.is_up and not seeker.cluster.is_up)
    await bus.start()
    began, spent = perf_counter(), process_time()
    await until(lambda: owner.cluster.is_up and seeker.cluster.is_up, PATIENCE_S)
    await until(is_found, PATIENCE_S)
    back, back_cpu = perf_counter() - began, process_time() - spent
    for house in (owner, seeker):
        await house.cluster.stop()
    return (
        f"{count:,} names",
        f"{took:.2f}",
        f"{cpu / count * 1e6:,.0f}",
        f"{memory / count / 1000:.1f}",
        f"{median(looks):.2f}",
        f"{median(missing):.2f}",
        f"{back:.2f}",
        f"{back_cpu / count * 1e6:,.0f}",
    )


async def look(seeker: PresenceNode, name: str) -> float:
    began = perf_counter()
    await seeker.locator.find(name)
    return (perf_counter() - began) * 1000


async def beats(bus: NatsServer, home: Path) -> float:
    """Processor time in µs of a heartbeat that is sent and received."""
    speaker, hearer = PresenceNode(bus, home, 10), PresenceNode(bus, home, 10)
    for house in (speaker, hearer):
        await house.cluster.start()
    await until(lambda: len(hearer.cluster.nodes) == 1)
    about = {"op": "beat", "since": 1.0, "version": "0.1.0", "port": 8000, "browsers": 10_000, "in_flight": 12}
    spent = process_time()
    for number in range(BEATS):
        data = envelope.pack({**about, "from": f"node-{number % 100}"})
        speaker.nats.send(speaker.cluster.subjects.beats, data)
        if number % 100 == 99:
            await asyncio.sleep(0)
    speaker.nats.send(speaker.cluster.subjects.beats, envelope.pack({**about, "from": "the last"}))
    await until(lambda: "the last" in hearer.cluster.nodes and "the last" in speaker.cluster.nodes, PATIENCE_S)
    cpu = process_time() - spent
    for house in (speaker, hearer):
        await house.cluster.stop()
    return cpu / BEATS / 2 * 1e6  # both have received it


async def run(counts: list[int]) -> None:
    print("\n".join(machine.describe()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        async with NatsServer(Path(folder) / "nats") as bus:
            rows = [await names(bus, Path(folder), count) for count in counts]
            heads = ("", "s until found", "CPU µs a name", "kB in NATS", "look ms", "no holder ms", "s after a restart")
            print(table((*heads, "CPU µs a name"), rows), flush=True)
            print(f"A received heartbeat: {await beats(bus, Path(folder)):.0f} µs of processor time.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, nargs="+", default=[1000, 10_000, 30_000])
    uvloop.run(run(parser.parse_args().names))


if __name__ == "__main__":
    main()
