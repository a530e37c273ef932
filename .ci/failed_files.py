"""Files of the tests that failed in the last run of pytest, one a line, for `.ci/run`.

Reads pytest's cache. Whole files, because tests of one file may depend on each other. Prints nothing if no test failed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

CACHE = Path(".pytest_cache/v/cache/lastfailed")
MOST_TESTS = 10  # with more failures the change is at fault, not the machine


def main() -> int:
    failed = json.loads(CACHE.read_text()) if CACHE.is_file() else {}
    if not 0 < len(failed) <= MOST_TESTS:
        return 1
    for test in failed:
        print(f"FAILED ONCE: {test}", file=sys.stderr)
    print("\n".join(sorted({test.partition("::")[0] for test in failed})))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
