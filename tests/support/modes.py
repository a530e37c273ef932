"""The two places where the worker can run, for tests that hold in both.

`TABRELAY_MODE=elected make test ARGS=tests/e2e` runs every test of the browser in the second one.
"""

from __future__ import annotations

MODES = ("shared", "elected")

# For every page, before its own scripts.
NO_SHARED_WORKERS = "delete globalThis.SharedWorker"
