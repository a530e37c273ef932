"""How the suite is spread over processes: how many there are, and which files go first.

A pytest plugin. A file of tests stays in one process, since its tests share a browser and a relay; so the long files
must not come last, when all others are done and wait for them. `durations.txt` has the seconds of each long file, as
the run with `TABRELAY_WRITE_DURATIONS=1` measured them. It decides nothing about what is run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
DURATIONS: Final = HERE / "durations.txt"
# Files that are not in the table and start browsers or programs, most likely.
SLOW_FOLDERS: Final = ("e2e", "conformance", "browsers", "behaviour")
UNKNOWN_SLOW_S: Final = 15.0
# Shorter files are not worth a line.
SHORTEST_S: Final = 3.0
# A test waits part of its time: for a browser, a child, a deadline. With three processes per core, tests of deadlines
# failed now and then. Each may have a browser, so that a small machine has memory for a few only.
PROCESSES_PER_CORE: Final = 2
MOST_PROCESSES: Final = 12
PROCESS_BYTES: Final = 1_200_000_000

_spent: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if config.getoption("--quick"):
        return cores
    return max(1, min(PROCESSES_PER_CORE * cores, MOST_PROCESSES, _free_bytes() // PROCESS_BYTES))


def _free_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # another system
        return 8_000_000_000
    [line] = [line for line in lines if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lines = DURATIONS.read_text(encoding="utf-8").splitlines() if DURATIONS.is_file() else []
    seconds = {path: float(spent) for spent, path in map(str.split, lines)}
    items.sort(key=lambda item: -_expected_s(item.path, seconds))


def _expected_s(path: Path, seconds: dict[str, float]) -> float:
    name = path.relative_to(HERE).as_posix()
    return seconds.get(name, UNKNOWN_SLOW_S if name.startswith(SLOW_FOLDERS) else 0.0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "TABRELAY_WRITE_DURATIONS" in os.environ and not hasattr(session.config, "workerinput"):
        by_length = sorted(_spent.items(), key=lambda item: -item[1])
        lines = [f"{spent:.0f} {path}\n" for path, spent in by_length if spent >= SHORTEST_S]
        DURATIONS.write_text("".join(lines), encoding="utf-8")
