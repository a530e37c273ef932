"""Does anything grow? Browsers come and go and calls are made for as long as you like; memory is read all the while.

The browsers are synthetic workers that speak the real link. Each lives for some seconds, loses its socket without a
word (and sometimes its whole self: then it comes back as another worker), and dials again. Calls take up to a second,
so that cuts find them under way, and some callers hang up. The relay's resident memory, descriptors, tasks and objects
are sampled; a straight line through the samples, without the first fifth, gives what an hour would add.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

import httpx2
import uvloop

from bench import machine, stage
from bench.load import MODERN
from bench.peer import Linked, Socket, bearer
from bench.table import table
from tabserver.wire.events import Received
from tabserver.wire.frames import SUBPROTOCOL

MIB = 1024 * 1024
LIFE_S = (0.5, 6.0)
AWAY_S = (0.05, 2.0)
WORK_S = (0.0, 1.0)
PAUSE_S = (0.01, 0.3)
REBORN = 0.1  # how often a lost browser comes back as another worker
HANG_UP = 0.05
SKIPPED = 0.2


class Working(Linked):
    """A worker whose tools take a while."""

    def __init__(self, server: str, chance: random.Random) -> None:
        super().__init__(server, f"{chance.getrandbits(64):x}")
        self._chance = chance
        self._working: list[tuple[float, int, Received[str]]] = []

    def due(self) -> float | None:
        times = [time for time in (super().due(), self._working[0][0] if self._working else None) if time is not None]
        return min(times, default=None)

    def _due_now(self, requests: list[Received[str]], now: float) -> list[Received[str]]:
        for request in requests:
            heapq.heappush(self._working, (now + self._chance.uniform(*WORK_S), id(request), request))
        done = []
        while self._working and self._working[0][0] <= now:
            done.append(heapq.heappop(self._working)[2])
        return done


async def browser(url: str, token: str, server: str, chance: random.Random) -> None:
    """One name, held by one worker after another."""
    address = url.replace("http", "ws", 1) + "/" + server
    worker = Working(server, chance)
    while True:
        with contextlib.suppress(OSError):
            socket = await Socket.dial(address, [SUBPROTOCOL, bearer(token)], worker)
            await asyncio.sleep(chance.uniform(*LIFE_S))
            socket.cut()
            await socket.gone
        await asyncio.sleep(chance.uniform(*AWAY_S))
        if chance.random() < REBORN:
            worker = Working(server, chance)


async def caller(http: httpx2.AsyncClient, server: str, chance: random.Random, outcomes: Counter[str]) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "soak", "version": "1"},
    }
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
    while True:
        arguments = {"bytes": 2 * MIB} if chance.random() < 0.01 else {"text": "x" * 200}
        params = {"name": "echo", "arguments": arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        patience_s = chance.uniform(0, 0.5) if chance.random() < HANG_UP else 120.0
        try:
            async with asyncio.timeout(patience_s):
                answer = (await http.post(f"/{server}", json=body, headers=headers)).json()
            outcomes["ok" if "result" in answer else answer["error"]["data"]["reason"]] += 1
        except TimeoutError:
            outcomes["hung up" if patience_s < 1 else "NO ANSWER"] += 1
        await asyncio.sleep(chance.uniform(*PAUSE_S))


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    rss: int
    descriptors: int
    tasks: int
    objects: int


async def sample(relay: stage.Child, began: float) -> Sample:
    counts = await asyncio.to_thread(relay.ask)
    return Sample(monotonic() - began, relay.rss(), relay.descriptors(), counts["tasks"], counts["objects"])


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Least squares: what one second adds."""
    mean_time, mean_value = sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - mean_time) ** 2 for time in times)
    both = zip(times, values, strict=True)
    return sum((time - mean_time) * (value - mean_value) for time, value in both) / spread if spread else 0.0


def report(samples: Sequence[Sample]) -> str:
    kept = samples[int(len(samples) * SKIPPED) :]
    times = [item.at_s for item in kept]
    columns: dict[str, Iterable[float]] = {
        "resident memory, MiB": [item.rss / MIB for item in kept],
        "descriptors": [item.descriptors for item in kept],
        "tasks": [item.tasks for item in kept],
        "objects": [item.objects for item in kept],
    }
    rows = []
    for name, found in columns.items():
        values = list(found)
        per_hour = slope(times, values) * 3600
        rows.append([name, f"{values[0]:,.0f}", f"{values[-1]:,.0f}", f"{max(values):,.0f}", f"{per_hour:+,.1f}"])
    return table(["", "first", "last", "largest", "per hour"], rows)


async def soak(minutes: float, browsers: int, callers: int, seed: int) -> tuple[list[Sample], Counter[str]]:
    outcomes: Counter[str] = Counter()
    samples: list[Sample] = []
    with stage.lone_relay(program="bench.observed") as relay:
        url, token = relay.said["base_url"], relay.said["token"]
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=None, limits=limits) as http:
            names = [stage.SERVER] + [f"{stage.SERVER}-{number}" for number in range(1, browsers)]
            crowd = [browser(url, token, name, random.Random(f"{seed} {name}")) for name in names]
            tasks = [asyncio.create_task(one) for one in crowd]
            await asyncio.sleep(1)
            for name in names:
                chances = [random.Random(f"{seed} {name} {number}") for number in range(callers)]
                tasks += [asyncio.create_task(caller(http, name, chance, outcomes)) for chance in chances]
            began = monotonic()
            every_s = max(1.0, minutes * 60 / 300)
            while monotonic() - began < minutes * 60:
                await asyncio.sleep(every_s)
                samples.append(await sample(relay, began))
                for task in tasks:
                    if task.done():
                        task.result()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return samples, outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float)
    parser.add_argument("browsers", type=int)
    parser.add_argument("--callers", type=int, default=4, help="for each browser")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    about = machine.describe()
    samples, outcomes = uvloop.run(soak(args.minutes, args.browsers, args.callers, args.seed))
    print(
        "\n".join(about), f"{args.minutes:g} minutes, {args.browsers} browsers, {args.callers} callers each", sep="\n"
    )
    print("\ncalls: " + ", ".join(f"{count:,} {name}" for name, count in outcomes.most_common()), end="\n\n")
    print(report(samples))
    return 1 if outcomes["NO ANSWER"] else 0


if __name__ == "__main__":
    sys.exit(main())
