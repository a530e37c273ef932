"""The two places where the worker can run, for tests that hold in both.

What the worker is carried by (attaching, calling, tabs, reconnecting, the page's API, Python) is tried in both by the
fixture `place`. `TABRELAY_MODE=elected make test ARGS=tests/e2e` runs every test of the browser in the second one.
"""

from __future__ import annotations

import os

import pytest
from playwright.async_api import BrowserContext

MODES = ("shared", "elected")

# For what only a worker of its own can do: outlive the tabs. What becomes of an elected one is in test_election.py.
SHARED_ONLY = pytest.mark.skipif(
    os.environ.get("TABRELAY_MODE") == "elected", reason="a worker that a tab runs goes with the tab"
)

# For every page, before its own scripts.
NO_SHARED_WORKERS = "delete globalThis.SharedWorker"


def chosen_modes() -> tuple[str, ...]:
    """Both, or the one that was asked for."""
    asked = os.environ.get("TABRELAY_MODE")
    return (asked,) if asked else MODES


async def carry(context: BrowserContext, mode: str) -> None:
    """Let the workers of a browser profile run there."""
    if mode == "elected":
        await context.add_init_script(NO_SHARED_WORKERS)
