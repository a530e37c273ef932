"""Sleep and wake: stops the relay, a real Chromium or both with SIGSTOP for 1, 20 and 90 s, and checks all calls.

A cell of the matrix is named WHO-SECONDS-LOAD, such as both-90s-calls. In an `idle` cell nothing is in flight. In a
`calls` cell tools in the tab and in the worker, called in both eras, end while the processes are stopped and after it,
return large results, are called just before and meanwhile. After waking one more call is made at once.

Promises: each call gets exactly one answer. A result means that its tool ran once. An error is right about whether the
call was delivered, and is permitted only where Chromium alone is stopped for so long that the relay must give it up (90
s): `browser_gone`, `delivered: "unknown"`. The call made after waking has its result within 5 s. Neither the relay's
log nor the consoles of page and worker have an exception.

Each finished cell is one line of build/bench/sleep.jsonl. `--resume` runs only the missing ones. The exit code is 1 if
a promise was broken. Ten rounds take about 40 minutes with three browsers at a time. Linux and macOS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Playwright, async_playwright

from bench import machine
from bench.stage import ROOT
from bench.table import table
from tests.support.suspended_browser import CELLS, Cell, Outcome, SuspendablePair

RESULTS: Final = ROOT / "build" / "bench" / "sleep.jsonl"
UP_WITHIN_S: Final = 5.0
MOST_FAILURES: Final = 3  # failures to start in a row: on a very busy machine a start takes longer than its bounds

Row = dict[str, Any]


class Matrix:
    """The remaining cells, which several pairs of relay and browser take, and the file of finished ones."""

    def __init__(self, left: list[tuple[int, Cell]], done: int, file: Path) -> None:
        self._left, self._done, self._file = left, done, file
        self._total = done + len(left)

    async def run(self, playwright: Playwright, at_once: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(at_once, len(self._left))):
                tasks.create_task(self._take(playwright))

    async def _take(self, playwright: Playwright) -> None:
        failures = 0
        while self._left:
            # A pair that broke a promise may do so again for the same reason: the next cell gets a new one.
            async with AsyncExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabrelay-sleep-")))
                try:
                    pair = await stack.enter_async_context(SuspendablePair(folder, playwright, UP_WITHIN_S))
                except (TimeoutError, PlaywrightError) as error:
                    failures += 1
                    print(f"A relay and a browser did not start: {error!r}", file=sys.stderr, flush=True)
                    if failures == MOST_FAILURES:
                        raise
                    continue
                while self._left and not (await self._one(pair)).violations:
                    failures = 0

    async def _one(self, pair: SuspendablePair) -> Outcome:
        round, cell = self._left.pop(0)
        outcome = await pair.run(cell)
        self._done += 1
        with self._file.open("a") as out:
            out.write(json.dumps({"round": round, **asdict(outcome)}) + "\n")
        errors = "".join(f", {count} × {name}" for name, count in outcome.errors.items())
        said = f"[{self._done}/{self._total}] round {round} {cell.name}: up after {outcome.up_s:.2f} s{errors}"
        print("\n  VIOLATION: ".join([said, *outcome.violations]), file=sys.stderr, flush=True)
        return outcome


def report(rows: Sequence[Row]) -> str:
    lines = []
    for cell in CELLS:
        found = [row for row in rows if row["cell"] == cell.name]
        if found:
            errors = sum(sum(row["errors"].values()) for row in found)
            calls = sum(row["calls"] for row in found)
            slowest = max(row["up_s"] for row in found)
            broken = sum(len(row["violations"]) for row in found)
            figures = (len(found), calls, calls - errors, errors, f"{slowest:.2f}", broken)
            lines.append([cell.name, *map(str, figures)])
    head = ["cell", "rounds", "calls", "results", "errors", "up after, s, at most", "violations"]
    return table(head, lines)


def read(file: Path) -> list[Row]:
    """The finished cells. An incomplete last line of an interrupted run does not count."""
    rows = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


async def measure(matrix: Matrix, at_once: int) -> None:
    async with async_playwright() as playwright:
        await matrix.run(playwright, at_once)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="how often each cell is run (default: 10)")
    known = ", ".join(cell.name for cell in CELLS)
    parser.add_argument("--cells", default="*", help=f"names or patterns, with commas between them, of: {known}")
    parser.add_argument("--at-once", type=int, default=3, help="pairs of relay and Chromium at a time (default: 3)")
    parser.add_argument("--resume", action="store_true", help="keep the results there are, and do the others only")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results")
    args = parser.parse_args(arguments)
    patterns = args.cells.split(",")
    cells = [cell for cell in CELLS if any(fnmatch(cell.name, pattern) for pattern in patterns)]
    if not cells:
        parser.error(f"no cell is named {args.cells}; there are {known}")
    args.results.parent.mkdir(parents=True, exist_ok=True)
    if not args.resume:
        args.results.write_text("")
    wanted = [(round, cell) for round in range(1, args.rounds + 1) for cell in cells]
    done = {(row["round"], row["cell"]) for row in read(args.results)}
    left = [(round, cell) for round, cell in wanted if (round, cell.name) not in done]
    try:
        asyncio.run(measure(Matrix(left, len(wanted) - len(left), args.results), args.at_once))
    except KeyboardInterrupt:
        print("Interrupted. To go on: python -m bench.sleep --resume, with the same flags.", file=sys.stderr)
        return 130
    rows = [row for row in read(args.results) if (row["round"], row["cell"]) in {(n, cell.name) for n, cell in wanted}]
    print("\n".join(machine.describe()) + "\n\n" + report(rows))
    broken = [f"round {row['round']} {row['cell']}: {one}" for row in rows for one in row["violations"]]
    print("\n".join(["", *broken]) if broken else "\nNo violations.")
    return 1 if broken or len(rows) < len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
