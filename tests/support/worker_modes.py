"""The two modes of the worker, for tests that must hold in both.

What the worker carries (attaching, calls, tabs, reconnection, the page's API, Python) is tested in both by the fixture
`place`. `TABRELAY_MODE=elected make test ARGS=tests/e2e` runs every browser test in the second mode.
"""

from __future__ import annotations

import os

import pytest
from playwright.async_api import BrowserContext

MODES = ("shared", "elected")

# For what only a shared worker can do: outlive the tabs. test_election.py covers the elected worker.
SHARED_ONLY = pytest.mark.skipif(
    os.environ.get("TABRELAY_MODE") == "elected", reason="a worker that a tab runs goes with the tab"
)

# For every page, before its own scripts.
NO_SHARED_WORKERS = "delete globalThis.SharedWorker"


def chosen_modes() -> tuple[str, ...]:
    """Both, or the one that the environment selects."""
    asked = os.environ.get("TABRELAY_MODE")
    return (asked,) if asked else MODES


async def carry(context: BrowserContext, mode: str) -> None:
    """Make the workers of a browser profile run in this mode."""
    if mode == "elected":
        await context.add_init_script(NO_SHARED_WORKERS)
