"""Latency of a small call while large results are sent, compared with an idle server.

For each candidate one caller makes small calls, first alone and then while others request large results, in the same
round; the table shows the median of the rounds and the spread of the ratios. The peer is one process and answers both,
so its work for a large result is part of the latency of either candidate. Peer and callers share one core: the callers
of large results have a lower priority. Otherwise the table would show the system's scheduling.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench import machine, stage
from bench.hop import MIB, Candidate, call, spread
from bench.table import table

LEAD_S = 1.0  # the large ones begin earlier and end later than the small ones


@dataclass(frozen=True, slots=True)
class Sample:
    """One candidate in one round; times in milliseconds."""

    size: int
    candidate: str
    alone: dict[str, Any]
    beside: dict[str, Any]
    large: dict[str, Any]

    def ratio(self, figure: str) -> float:
        return float(self.beside[figure] / self.alone[figure])


def measure(candidate: Candidate, size: int, callers: int, seconds: float, pin: bool) -> Sample:
    url, token, era = candidate.pair.url, candidate.pair.token, candidate.era
    alone = call(url, token, era, 1, seconds, pin=pin)
    large: list[dict[str, Any]] = []

    def ask_for_large() -> None:
        large.append(call(url, token, era, callers, seconds + 2 * LEAD_S, result=size * MIB, pin=pin, yields=True))

    others = threading.Thread(target=ask_for_large)
    others.start()
    threading.Event().wait(LEAD_S)
    beside = call(url, token, era, 1, seconds, pin=pin)
    others.join()
    return Sample(size, candidate.name, alone, beside, large[0])


def report(samples: Sequence[Sample]) -> str:
    rows = []
    for size, name in dict.fromkeys((sample.size, sample.candidate) for sample in samples):
        mine = [sample for sample in samples if (sample.size, sample.candidate) == (size, name)]
        failures = sum(part["failures"] for sample in mine for part in (sample.alone, sample.beside, sample.large))
        rows.append(
            [
                f"{size} MiB: {name}" + (f" ({failures} FAILED)" if failures else ""),
                f"{median(s.large['bytes_per_s'] for s in mine) / MIB:,.0f}",
                *(f"{median(s.alone[figure] for s in mine):.2f}" for figure in ("p50_ms", "p99_ms")),
                *(f"{median(s.beside[figure] for s in mine):.2f}" for figure in ("p50_ms", "p99_ms")),
                spread([sample.ratio("p99_ms") for sample in mine]),
            ]
        )
    return table(["", "MiB/s", "alone, p50 ms", "p99 ms", "beside, p50 ms", "p99 ms", "p99 × alone"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 8, 16], metavar="MIB")
    parser.add_argument("--callers", type=int, default=2, help="who ask for large results meanwhile")
    parser.add_argument("--no-pin", dest="pin", action="store_false", help="leave the cores to the system")
    args = parser.parse_args()
    samples: list[Sample] = []
    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(stage.forwarder(args.pin))
        relay = stack.enter_context(stage.relay(args.pin))
        candidates = [Candidate("bare forwarder", floor, "modern"), Candidate("tabrelay", relay, "modern")]
        for size in args.sizes:
            for round in range(args.rounds):
                samples += [measure(each, size, args.callers, args.seconds, args.pin) for each in candidates]
                print(f"{size} MiB, round {round + 1} of {args.rounds}", file=sys.stderr, flush=True)
    print("\n".join(machine.describe()), f"load average {os.getloadavg()[0]:.1f}", sep="\n", end="\n\n")
    print(report(samples))
    return 1 if any(sample.beside["failures"] for sample in samples) else 0


if __name__ == "__main__":
    sys.exit(main())
