"""Takes each defence out of a copy of the tree, and runs the tests that must fail then.

Not a part of `make test`, which it would make much longer: it runs a few tests for each row. The rows are defences of
the threat table in docs/security.md and rules of docs/link.md. A row that takes nothing away, or whose tests all pass
without the defence, is reported, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.mutations import MUTATIONS, Mutation
from tests.mutations.mutation import ROOT, marked

TESTS_S: Final = 600  # for the tests of one row


def _copy(place: Path) -> dict[str, str]:
    """Copy the files that git knows; gives the environment in which Python imports the packages from there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    for name in (".venv", "node_modules", "build"):
        (place / name).symlink_to(ROOT / name)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(place / name) for name in ("relay", "browser_pkg"))}


def _failing(mutation: Mutation, place: Path, env: dict[str, str]) -> str:
    """The tests that failed without the defence; empty if none did."""
    [file] = marked()[mutation.name]
    path = place / file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutation.apply(text), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests.split()]
    try:
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=TESTS_S, check=False)
    finally:
        path.write_text(text, encoding="utf-8")
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return ", ".join(failed)


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=summary, epilog=rest)
    parser.add_argument("words", nargs="?", default="", help="only defences with these words in their name")
    words = parser.parse_args().words
    chosen = [mutation for mutation in MUTATIONS if words in mutation.name]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="tabrelay-mutations-") as folder:
        env = _copy(Path(folder))
        for number, mutation in enumerate(chosen, 1):
            failed = _failing(mutation, Path(folder), env)
            survived += not failed
            print(f"[{number}/{len(chosen)}] {mutation.name}: {failed or 'NO TEST FAILS'}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
