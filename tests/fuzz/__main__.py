"""Coverage-guided fuzzing with atheris: `make fuzz SECONDS=600`, or `python -m tests.fuzz TARGET --seconds 600`.

Each target runs in a separate process, one after the other, for an equal share of the time. The inputs that a target
finds are kept in build/fuzz, so that the next run continues from there; `--keep` copies the smallest inputs that cover
as much into the committed corpus. The first fault ends the run with exit code 1 and prints the path of its input; move
that file into tests/fuzz/corpus when the fault is fixed, and the tests replay it from then on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.fuzz.targets import CORPUS, NAMES, seeds

ROOT: Final = Path(__file__).resolve().parent.parent.parent
BUILD: Final = ROOT / "build" / "fuzz"
MAX_INPUT: Final = 4096
INPUT_TIMEOUT_S: Final = 20


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=summary, epilog=rest)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"one or more of {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together (default: 60)")
    parser.add_argument("--keep", action="store_true", help="copy what was learnt into the committed corpus")
    args = parser.parse_args()
    unknown = [name for name in args.targets if name not in NAMES]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}. There are {', '.join(NAMES)}.")
    targets = args.targets or list(NAMES)
    for name in targets:
        code = _run(name, max(1, args.seconds // len(targets)))
        if code:
            return code
        if args.keep:
            _keep(name)
    return 0


def _run(name: str, seconds: int) -> int:
    learnt, faults = BUILD / name, BUILD / f"{name}-faults"
    for folder in (learnt, faults):
        folder.mkdir(parents=True, exist_ok=True)
    print(f"== {name}: {seconds} s, from {len(seeds(name))} committed inputs", flush=True)
    began = time.monotonic()
    flags = [f"-max_total_time={seconds}", f"-max_len={MAX_INPUT}", f"-timeout={INPUT_TIMEOUT_S}"]
    flags += [f"-artifact_prefix={faults}/", "-print_final_stats=1", str(learnt), str(CORPUS / name)]
    code = _atheris(name, flags)
    print(
        f"== {name}: {'a FAULT, see above; its input is in ' + str(faults) if code else 'nothing found'} "
        f"after {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 1 if code else 0


def _keep(name: str) -> None:
    """libFuzzer's merge: the smallest inputs that add coverage."""
    _atheris(name, ["-merge=1", str(CORPUS / name), str(BUILD / name)])
    print(f"== {name}: {len(seeds(name))} inputs are in the corpus now", flush=True)


def _atheris(name: str, flags: list[str]) -> int:
    return subprocess.call([sys.executable, "-m", "tests.fuzz.runner", name, *flags], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
