"""The relay beside the packages of npm and PyPI that put an MCP server behind HTTP, in one run.

All candidates except the floor and the first two use the same child process (`echo.py`), and the same load generator
calls them in the handshake era, which all of them support. Candidates take turns within a round; ratios are taken
within a round, to the floor and to the best rival. Cores are not assigned: most candidates are several processes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import machine, stage
from bench.hop import call, spread
from bench.plot import Bar, bars
from bench.rivals.processes import RIVALS, Place, ours, rival
from bench.table import table


@dataclass(slots=True)
class Candidate:
    name: str
    place: Place
    era: str = "legacy"
    is_rival: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    calls_per_s: float
    p50_ms: float
    failures: int


def best(samples: dict[str, list[Sample]], names: Sequence[str]) -> str:
    return max(names, key=lambda name: median(sample.calls_per_s for sample in samples[name]))


def report(samples: dict[str, list[Sample]], floor: str, rivals: Sequence[str]) -> str:
    first = best(samples, rivals) if rivals else floor
    rows = []
    for name, mine in samples.items():
        ratios = [
            [one.calls_per_s / other.calls_per_s for one, other in zip(mine, samples[base], strict=True)]
            for base in (floor, first)
        ]
        failures = sum(sample.failures for sample in mine)
        rows.append(
            [
                name + (f" ({failures} FAILED)" if failures else ""),
                f"{median(sample.calls_per_s for sample in mine):,.0f}",
                *map(spread, ratios),
                f"{median(sample.p50_ms for sample in mine):.2f}",
            ]
        )
    return table(["", "calls/s", "× floor", f"× {first}", "p50 ms"], rows)


def picture(samples: dict[str, list[Sample]], callers: int) -> str:
    rows = []
    for name, mine in samples.items():
        rates = [sample.calls_per_s for sample in mine]
        rows.append(Bar(name, median(rates), min(rates), max(rates)))
    return bars(f"Calls per second, {callers} callers", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    args = parser.parse_args()
    about = machine.describe()
    missing = []
    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(stage.forwarder(False))
        relay = stack.enter_context(stage.relay(False))
        candidates = [
            Candidate("bare forwarder", Place(floor.url, floor.token), "modern"),
            Candidate("tabrelay, browser, modern", Place(relay.url, relay.token), "modern"),
            Candidate("tabrelay, browser", Place(relay.url, relay.token)),
            Candidate("tabrelay, child process", stack.enter_context(ours())),
        ]
        for each in RIVALS:
            try:
                candidates.append(Candidate(each.name, stack.enter_context(rival(each)), is_rival=True))
            except (RuntimeError, OSError) as problem:
                missing.append(f"not measured: {each.name}: {problem}")
        samples: dict[str, list[Sample]] = {candidate.name: [] for candidate in candidates}
        for round in range(args.rounds):
            for one in candidates:
                got = call(one.place.url, one.place.token, one.era, args.callers, args.seconds)
                samples[one.name].append(Sample(got["calls_per_s"], got["p50_ms"], got["failures"]))
            print(f"round {round + 1} of {args.rounds}", file=sys.stderr, flush=True)
    print("\n".join(about), f"{args.callers} callers, {args.rounds} rounds of {args.seconds:g} s", sep="\n", end="\n\n")
    print(report(samples, candidates[0].name, [one.name for one in candidates if one.is_rival]))
    print(*missing, sep="\n")
    if args.plot:
        args.plot.write_text(picture(samples, args.callers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
