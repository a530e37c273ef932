"""Comparison of two versions of the product in one run: the tree of a git revision, and the present one.

The revision is checked out as a worktree under build/compare, with its own assets and memory snapshot. Measurements use
the command line, HTTP and WebSockets only, so that revisions with other module names can be compared. Within a round
both trees are measured one right after the other, in alternating order. A table shows the medians and "times as fast":
the median of the ratios within the rounds, with an interval that holds the true median with 95 %. Above 1, the tree
after is faster.

`hop`: relay processes of both trees with the same load and a synthetic browser; processor time of the relay.
`connection`: the relay's Python from the bytes of a request to those of its answer, without the kernel. `worker`:
Pyodide under Node, with a socket and a tab that answer at once; wall time. `browser`: both relays and one Chromium;
processor time of relay and browser.

Each measures calls of the fast path, and of the regular path tools/list, server/discover, initialize and a call with
progress. The exit code is 1 if a call of the fast path is less than --least times as fast, or a request of the regular
path less than --least-regular times.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from statistics import median

from bench import machine
from bench.compare import browser, connection, hop, trees, worker
from bench.compare.pairs import FAST, Pairs, report
from bench.compare.trees import Tree

BENCHES: dict[str, Callable[[Sequence[Tree], int, float], list[Pairs]]] = {
    "hop": hop.run,
    "connection": lambda compared, rounds, _: connection.run(compared, rounds),
    "worker": lambda compared, rounds, _: worker.run(compared, rounds),
    "browser": lambda compared, rounds, seconds: asyncio.run(browser.run(compared, rounds, seconds)),
}


def slower(pairs: Sequence[Pairs], least: float, least_regular: float) -> list[str]:
    """The requests that are too slow."""
    found = []
    for each in pairs:
        ratio, needed = median(each.ratios), least if each.kind == FAST else least_regular
        if ratio < needed:
            found.append(f"{each.kind}: {each.name}: {ratio:.3f} × as fast, needed are {needed:g}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", metavar="REV", help="the tree before: a commit, branch or tag")
    parser.add_argument("--against", metavar="REV", help="the tree after; without it, the files as they are now")
    parser.add_argument("--benches", default=",".join(BENCHES), help=f"some of {','.join(BENCHES)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.7, help="of a turn of hop and browser, after a warm-up")
    parser.add_argument("--least", type=float, default=0.97, help="for calls of the fast path")
    parser.add_argument("--least-regular", type=float, default=0.0, help="for requests of the regular path")
    args = parser.parse_args()
    names = args.benches.split(",")
    if unknown := set(names) - set(BENCHES):
        parser.error(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    print("\n".join(machine.describe()))
    compared = [trees.revision(args.revision), trees.revision(args.against) if args.against else trees.present()]
    print(f"before: {compared[0].name}; after: {compared[1].name}; {args.rounds} rounds")
    wrong = []
    for name in names:
        print(f"-- {name}", file=sys.stderr, flush=True)
        pairs = BENCHES[name](compared, args.rounds, args.seconds)
        print("", report(name, pairs), sep="\n", flush=True)
        wrong += [f"{name}, {text}" for text in slower(pairs, args.least, args.least_regular)]
    print("", *(wrong or ["Nothing is too slow."]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
