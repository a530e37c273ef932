"""Limits of memory of the relay and of a browser.

First part: 64 callers request 8 MiB each at the same moment, repeatedly for some seconds, through one synthetic peer.
The relay's resident memory is sampled meanwhile; it may grow by the budget of its links and 64 MiB, no more. Second
part: the cost of a page's first visit for the browser and the relay (`bench/first_visit.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from bench import first_visit, machine, stage
from bench.table import table
from tabrelay.config.settings import Settings

MIB = 1024 * 1024
SLACK = 64 * MIB
SAMPLE_S = 0.02


def load(pair: stage.Pair, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.load", pair.url, *arguments]
    env = {**os.environ, stage.TOKEN: pair.token}
    return subprocess.Popen(command, cwd=stage.ROOT, env=env, stdout=subprocess.PIPE, text=True)


def peak_during(child: subprocess.Popen[str], server: stage.Child) -> int:
    """The largest resident size of the server until the child has ended."""
    peak = 0
    while True:
        peak = max(peak, server.rss())
        try:
            child.wait(SAMPLE_S)
        except subprocess.TimeoutExpired:
            continue
        return peak


def large_results(args: argparse.Namespace) -> int:
    budget = Settings().replay_budget
    with stage.relay(pin=False) as pair:
        load(pair, "--callers", str(args.callers), "--seconds", "1").communicate()
        before = pair.server.rss()
        child = load(
            pair,
            *("--callers", str(args.callers), "--result", str(args.mib * MIB), "--era", args.era),
            *("--seconds", str(args.seconds), "--warm-up", "0"),
        )
        peak = peak_during(child, pair.server)
        assert child.stdout is not None
        got = json.loads(child.stdout.read())
        after = pair.server.rss()
    grown, allowed = peak - before, budget + SLACK
    rows = [
        ["before", f"{before / MIB:,.0f}"],
        ["largest", f"{peak / MIB:,.0f}"],
        ["after", f"{after / MIB:,.0f}"],
        ["grown by", f"{grown / MIB:,.0f}"],
        ["allowed", f"{allowed / MIB:,.0f}"],
    ]
    print(f"{args.callers} callers, {args.mib} MiB each, {args.era}", end="\n\n")
    print(table(["resident memory of the relay", "MiB"], rows))
    print(f"\n{got['total']} results, {got['bytes_per_s'] / MIB:,.0f} MiB/s, p50 {got['p50_ms']:,.0f} ms")
    if got["failures"]:
        print(f"{got['failures']} calls failed; the first: {got['first_failure']}")
    is_good = grown <= allowed and not got["failures"]
    print("pass" if is_good else "FAIL")
    return 0 if is_good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("results", "visit"), help="one part instead of both")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--mib", type=int, default=8, help="size of each result")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--era", choices=("modern", "legacy"), default="modern")
    parser.add_argument("--rounds", type=int, default=3, help="visits of each tree")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="TREE", help="another source tree")
    args = parser.parse_args()
    print("\n".join(machine.describe()), end="\n\n")
    codes = [large_results(args)] if args.only != "visit" else []
    if args.only != "results":
        codes.append(asyncio.run(first_visit.measure(args.rounds, [path.resolve() for path in args.beside])))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
