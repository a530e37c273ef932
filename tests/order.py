"""How the suite is spread over processes: how many there are, and which files go first.

A pytest plugin. A file of tests stays in one process, since its tests share a browser and a relay; so the long files
must not come last, when all others are done and wait for them. It decides nothing about what is run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
# Each has a browser; more of them would want memory that a small machine does not have.
MOST_PROCESSES: Final = 4
# One long test each, which nothing can share.
LONGEST: Final = (
    "test_pyodide.py",
    "conformance/test_bridge.py",
    "conformance/test_eras.py",
    "e2e/test_liveness.py",
    "behaviour/test_random_requests.py",
    "test_wheel.py",
)
# Rooms whose tests start browsers and programs; after them come those of small change.
SLOW_ROOMS: Final = (
    *("e2e", "call_path", "conformance", "behaviour", "browsers", "peers", "bridge", "acp", "bus", "server", "faces"),
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Half of a test's time is waiting: for a browser, a child, a deadline. Two processes share a core well."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(2 * cores, MOST_PROCESSES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path))


def _turn(path: Path) -> int:
    name = path.relative_to(HERE).as_posix()
    if name in LONGEST:
        return LONGEST.index(name)
    room = name.partition("/")[0]
    return len(LONGEST) + (SLOW_ROOMS.index(room) if room in SLOW_ROOMS else len(SLOW_ROOMS))
