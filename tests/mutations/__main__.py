"""Mutation test of the defences: removes each in a copy of the tree and runs the tests that must fail then.

The rows are defences of the threat table in docs/reference/threats.md and rules of docs/reference/link.md. A row whose tests all pass
without the defence, or do not end in time, is reported as not caught, and the exit code is 1. A whole run takes hours
and is not part of `make test`. Each verdict is one line of build/mutations.jsonl. `--resume` runs only the rows without
a verdict, and those whose marked file has changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutations import MUTATIONS, Mutation
from tests.mutations.mutation import ROOT, marked

TESTS_S: Final = 600  # for the tests of one row
RESULTS: Final = ROOT / "build" / "mutations.jsonl"


class TreeCopy:
    """A copy of the files that git tracks, and the environment in which Python imports the packages from it."""

    def __init__(self, place: Path) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
        for name in (".venv", "node_modules", "build"):
            (place / name).symlink_to(ROOT / name)
        self._place = place
        packages = os.pathsep.join(str(place / name) for name in ("relay", "browser_pkg"))
        self._env = {**os.environ, "PYTHONPATH": packages}

    def failing(self, mutation: Mutation) -> str:
        """The tests that fail without the defence; empty if none does."""
        path = self._place / _file(mutation)
        text = path.read_text(encoding="utf-8")
        path.write_text(mutation.apply(text), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests.split()]
        try:
            done = subprocess.run(
                command, cwd=self._place, env=self._env, capture_output=True, text=True, timeout=TESTS_S, check=False
            )
        except subprocess.TimeoutExpired:
            return ""
        finally:
            path.write_text(text, encoding="utf-8")
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
        return ", ".join(failed)


def _file(mutation: Mutation) -> str:
    [file] = marked()[mutation.name]
    return file


def _digest(mutation: Mutation) -> str:
    """Changes with the marked file and with the row."""
    return hashlib.sha256((ROOT / _file(mutation)).read_bytes() + repr(mutation).encode()).hexdigest()[:16]


def _verdicts() -> dict[str, str]:
    """The verdicts of earlier runs: digest to failing tests."""
    rows = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else ()
    return {row["digest"]: row["failed"] for row in map(json.loads, rows)}


def _run(rows: list[Mutation], jobs: int) -> Iterator[tuple[Mutation, str]]:
    """Each row with the tests that failed, in the order of the rows."""
    with ExitStack() as stack:
        copies: SimpleQueue[TreeCopy] = SimpleQueue()
        for _ in range(jobs):
            copies.put(TreeCopy(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabrelay-mutations-")))))

        def run(mutation: Mutation) -> str:
            copy = copies.get()
            try:
                return copy.failing(mutation)
            finally:
                copies.put(copy)

        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        yield from zip(rows, pool.map(run, rows), strict=True)


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=summary, epilog=rest)
    parser.add_argument("words", nargs="?", default="", help="only defences with these words in their name")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="rows at the same time (default: 1)")
    parser.add_argument("--resume", action="store_true", help="keep the verdicts of rows that have not changed")
    args = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if args.words in mutation.name]
    RESULTS.parent.mkdir(exist_ok=True)
    if not args.resume and not args.words:
        RESULTS.unlink(missing_ok=True)
    known = _verdicts() if args.resume else {}
    # A row that was not caught runs again: the reason may have been a busy machine.
    left = [mutation for mutation in chosen if not known.get(_digest(mutation))]
    if len(left) < len(chosen):
        print(f"{len(chosen) - len(left)} rows have a verdict already", flush=True)
    survived = []
    for number, (mutation, failed) in enumerate(_run(left, args.jobs), 1):
        with RESULTS.open("a", encoding="utf-8") as out:
            row = {"name": mutation.name, "digest": _digest(mutation), "failed": failed}
            out.write(json.dumps(row) + "\n")
        print(f"[{number}/{len(left)}] {mutation.name}: {failed or 'NO TEST FAILS'}", flush=True)
        if not failed:
            survived.append(mutation.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} caught", *survived, sep="\n  not caught: ", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
