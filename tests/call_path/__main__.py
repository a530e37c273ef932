"""Prints the product files and functions that a `tools/call` enters, for each path: see docs/project/call-path.md.

Takes about half a minute, with a Chromium. `--short`: only the numbers, and the files that are entered too often.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.call_path import report
from tests.call_path.paths import measure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.call_path", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="only the numbers, and the files that are entered too often"
    )
    parser.add_argument("--path", default="", help="only paths whose name has these words, such as 'fast, modern'")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tabrelay-call-path-") as folder:
        results = asyncio.run(measure(Path(folder), args.path))
    print(report.short(results) if args.short else report.page(results))


if __name__ == "__main__":
    main()
