"""The relays of two trees as processes, with the same synthetic browser and the same load: processor time of a call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import stage
from bench.compare.pairs import FAST, REGULAR, Pairs, Sample, take_turns
from bench.compare.trees import Tree
from bench.hop import call
from bench.link_worker import PROGRESS
from bench.load import CALL, INITIALIZE
from bench.stage import Child, Pair

CALLERS = (1, 16, 64)
REGULAR_CALLERS = 16
# Era, method, and the token for progress.
REGULAR_REQUESTS = {
    "tools/list": ("modern", "tools/list", ""),
    "server/discover": ("modern", "server/discover", ""),
    "initialize": ("legacy", INITIALIZE, ""),
    "call with progress": ("modern", CALL, PROGRESS),
}


@contextlib.contextmanager
def relay_of(tree: Tree) -> Iterator[Pair]:
    """The tree's own relay; the browser is the present tree's."""
    here, other_cores = stage.cores(pin=True)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(stage.lone_relay(on=here, env=tree.env))
        peer = Child(
            "bench.peer",
            "link",
            server.said["base_url"],
            on=other_cores,
            env={stage.TOKEN: str(server.said["token"])},
        )
        stack.callback(peer.stop)
        yield Pair(server, peer)


def cpu_ns(pid: int) -> int:
    """Processor time of a process so far, in nanoseconds; finer than its ticks."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in Path(f"/proc/{pid}/task").iterdir())


def run(trees: Sequence[Tree], rounds: int, seconds: float) -> list[Pairs]:
    wanted: dict[str, tuple[str, str, str, int]] = {}
    pairs = []
    for era in ("modern", "legacy"):
        for callers in CALLERS:
            name = f"{era}, {callers} caller{'s' if callers > 1 else ''}"
            wanted[name] = era, CALL, "", callers
            pairs.append(Pairs(name, FAST))
    for name, request in REGULAR_REQUESTS.items():
        wanted[name] = *request, REGULAR_CALLERS
        pairs.append(Pairs(name, REGULAR))
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(relay_of(tree)) for tree in trees]

        def measure(which: int, what: Pairs) -> Sample:
            era, method, progress, callers = wanted[what.name]
            pair = servers[which]
            before = cpu_ns(pair.server.pid)
            got = call(pair.url, pair.token, era, callers, seconds, method=method, progress=progress, pin=True)
            spent = cpu_ns(pair.server.pid) - before
            assert not got["failures"], got["first_failure"]
            return Sample(spent / got["total"] / 1000, got["calls_per_s"])

        take_turns(pairs, rounds, measure)
    return pairs
