"""Cost of the relay's hop: the bare forwarder and Tabrelay in each era, side by side.

Every round measures each candidate once, one right after the other, so that other load of the machine affects all of
them; ratios are taken within a round, and the table shows the median ratio and its spread. The server under test has
one core for itself (`--no-pin` if not), peer and load generator share the rest: the same three processes for each.
Processor time per call is the figure that depends least on other load.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine, stage
from bench.load import CALL
from bench.plot import Bar, bars
from bench.stage import Pair
from bench.table import table

MIB = 1024 * 1024
MODERN, LEGACY = "tabrelay, modern", "tabrelay, legacy"
LAST = 10  # nice value of a process that yields
BIG_LONGER = 3  # large results are few: their rounds take longer


@dataclass(frozen=True, slots=True)
class Candidate:
    name: str
    pair: Pair
    era: str


@dataclass(frozen=True, slots=True)
class Load:
    """The number of callers, and the size of results (None: 200 bytes that are sent and come back)."""

    callers: int
    result: int | None = None

    @property
    def label(self) -> str:
        size = "200 B" if self.result is None else f"{self.result // MIB} MiB"
        return f"{self.callers} callers, {size}" if self.callers > 1 else f"1 caller, {size}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One candidate in one round."""

    candidate: str
    load: str
    round: int
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    bytes_per_s: float
    server_us: float
    peer_us: float
    failures: int
    first_failure: str | None


def call(
    url: str,
    token: str,
    era: str,
    callers: int,
    seconds: float,
    *,
    tool: str = "echo",
    method: str = CALL,
    progress: str = "",
    result: int | None = None,
    pin: bool = False,
    yields: bool = False,
) -> dict[str, Any]:
    """The load generator's outcome. `yields`: it has a lower priority where they share a core."""
    command = [sys.executable, "-m", "bench.load", url, "--era", era, "--callers", str(callers), "--tool", tool]
    command += ["--method", method, "--progress", progress, "--seconds", str(seconds)] + (
        ["--result", str(result)] if result is not None else []
    )
    env = {**os.environ, stage.TOKEN: token}
    child = subprocess.Popen(command, cwd=stage.ROOT, env=env, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(child.pid, stage.cores(pin)[1])
    if yields:
        os.setpriority(os.PRIO_PROCESS, child.pid, LAST)
    said, _ = child.communicate(timeout=seconds + 120)
    got: dict[str, Any] = json.loads(said)
    return got


def measure(candidate: Candidate, load: Load, round: int, seconds: float, pin: bool) -> Sample:
    pair = candidate.pair
    before = pair.server.cpu_s(), pair.peer.cpu_s()
    got = call(pair.url, pair.token, candidate.era, load.callers, seconds, result=load.result, pin=pin)
    server_s, peer_s = pair.server.cpu_s() - before[0], pair.peer.cpu_s() - before[1]
    return Sample(
        candidate=candidate.name,
        load=load.label,
        round=round,
        server_us=server_s / got["total"] * 1e6,
        peer_us=peer_s / got["total"] * 1e6,
        **{name: got[name] for name in ("calls_per_s", "p50_ms", "p99_ms", "bytes_per_s", "failures", "first_failure")},
    )


def ratios(samples: Sequence[Sample], floor: Sequence[Sample], figure: str) -> list[float]:
    """Within each round: this candidate's figure by the floor's."""
    base = {sample.round: getattr(sample, figure) for sample in floor}
    return [getattr(sample, figure) / base[sample.round] for sample in samples]


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def report(samples: Sequence[Sample], loads: Sequence[Load]) -> str:
    names = list(dict.fromkeys(sample.candidate for sample in samples))
    rows = []
    for load in loads:
        by_name = {name: [s for s in samples if (s.candidate, s.load) == (name, load.label)] for name in names}
        floor = by_name[names[0]]
        for name in names:
            mine = by_name[name]
            failures = sum(sample.failures for sample in mine)
            rows.append(
                [
                    f"{load.label}: {name}" + (f" ({failures} FAILED)" if failures else ""),
                    f"{median(s.calls_per_s for s in mine):,.0f}",
                    spread(ratios(mine, floor, "calls_per_s")),
                    f"{median(s.p50_ms for s in mine):.2f}",
                    f"{median(s.p99_ms for s in mine):.2f}",
                    spread(ratios(mine, floor, "p99_ms")),
                    f"{median(s.server_us for s in mine):,.0f}",
                    spread(ratios(mine, floor, "server_us")),
                    f"{median(s.peer_us for s in mine):,.0f}",
                ]
            )
    head = ["", "calls/s", "× floor", "p50 ms", "p99 ms", "× floor", "CPU µs/call", "× floor", "peer µs"]
    return table(head, rows)


def eras(samples: Sequence[Sample], loads: Sequence[Load]) -> str:
    """Sessions beside modern calls, within each round."""
    rows = []
    for load in loads:
        modern, legacy = ([s for s in samples if (s.candidate, s.load) == (n, load.label)] for n in (MODERN, LEGACY))
        rows.append([load.label, *(spread(ratios(legacy, modern, figure)) for figure in ("calls_per_s", "server_us"))])
    return table(["legacy × modern", "calls/s", "CPU µs/call"], rows)


def picture(samples: Sequence[Sample], loads: Sequence[Load]) -> str:
    """For small results: the number of large ones depends on their size."""
    rows = []
    small = [load.label for load in loads if load.result is None]
    for label, name in dict.fromkeys((s.load, s.candidate) for s in samples if s.load in small):
        rates = [s.calls_per_s for s in samples if (s.load, s.candidate) == (label, name)]
        rows.append(Bar(f"{label}: {name}", median(rates), min(rates), max(rates)))
    return bars("Calls per second over the relay's hop", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement, after half a second's warm-up")
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--big", type=int, nargs="*", default=[], metavar="MIB", help="also results of this size")
    parser.add_argument("--big-callers", type=int, default=4)
    parser.add_argument("--no-pin", dest="pin", action="store_false", help="leave the cores to the system")
    parser.add_argument("--console", action="store_true", help="one relay, with and without an open console, in pairs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    args = parser.parse_args()
    if args.console:
        from bench import console_cost

        return console_cost.run(args.callers, args.rounds, args.seconds, args.pin)
    loads = [Load(callers) for callers in args.callers] + [Load(args.big_callers, size * MIB) for size in args.big]
    about = machine.describe()
    samples: list[Sample] = []
    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(stage.forwarder(args.pin))
        relay = stack.enter_context(stage.relay(args.pin))
        candidates = [
            Candidate("bare forwarder", floor, "modern"),
            Candidate(MODERN, relay, "modern"),
            Candidate(LEGACY, relay, "legacy"),
        ]
        for load in loads:
            for round in range(args.rounds):
                for candidate in candidates:
                    seconds = args.seconds * (BIG_LONGER if load.result is not None else 1)
                    samples.append(measure(candidate, load, round, seconds, args.pin))
                print(f"{load.label}, round {round + 1} of {args.rounds}", file=sys.stderr, flush=True)
    print("\n".join(about), f"{args.rounds} interleaved rounds of {args.seconds:g} s", sep="\n", end="\n\n")
    print(report(samples, loads), eras(samples, loads), sep="\n\n")
    for text in {sample.first_failure for sample in samples if sample.first_failure}:
        print("failed:", text)
    if args.plot:
        args.plot.write_text(picture(samples, loads))
    if args.json:
        args.json.write_text(json.dumps({"machine": about, "samples": [asdict(s) for s in samples]}, indent=1))
    return 1 if any(sample.failures for sample in samples) else 0


if __name__ == "__main__":
    sys.exit(main())
