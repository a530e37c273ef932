"""Distribution of the suite over processes: their number, and the order of the files.

A pytest plugin. The tests of a file stay in one process, because they share a browser and a relay; so long files must
not come last, when the other processes are idle. Files that drive a browser compute most of their time, and others wait
most of theirs: both kinds are spread evenly over the run, so that the cores always have work. `durations.txt` has the
seconds of each long file, measured by a run with `TABRELAY_WRITE_DURATIONS=1`. It does not decide which tests run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
DURATIONS: Final = HERE / "durations.txt"
# Files that are not in the table and probably start browsers or programs.
SLOW_FOLDERS: Final = ("e2e", "conformance", "browsers", "behaviour")
UNKNOWN_SLOW_S: Final = 15.0
UNKNOWN_S: Final = 1.0
# Files that compute most of their time.
BUSY_FOLDERS: Final = ("e2e", "conformance", "browsers")
# Shorter files are not listed.
SHORTEST_S: Final = 3.0
# A test waits part of its time: for a browser, a child process, a deadline. With three processes per core, tests of
# deadlines failed occasionally. Each process may have a browser, so memory limits their number on a small machine.
PROCESSES_PER_CORE: Final = 2
MOST_PROCESSES: Final = 12
PROCESS_BYTES: Final = 1_200_000_000

_spent: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
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
    names = {path: path.relative_to(HERE).as_posix() for path in {item.path for item in items}}
    places = _places({name: _expected_s(name, seconds) for name in names.values()})
    items.sort(key=lambda item: (places[names[item.path]], names[item.path]))


def _expected_s(name: str, seconds: dict[str, float]) -> float:
    return seconds.get(name, UNKNOWN_SLOW_S if name.startswith(SLOW_FOLDERS) else UNKNOWN_S)


def _places(expected_s: dict[str, float]) -> dict[str, float]:
    """When each file should start, as a fraction of the run: within each kind, the long ones first. Each process of a
    run computes the same result."""
    places: dict[str, float] = {}
    by_length = sorted(expected_s, key=lambda name: (-expected_s[name], name))
    for is_busy in (True, False):
        names = [name for name in by_length if name.startswith(BUSY_FOLDERS) == is_busy]
        total = sum(expected_s[name] for name in names)
        before = 0.0
        for name in names:
            places[name] = before / total
            before += expected_s[name]
    return places


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _spent[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "TABRELAY_WRITE_DURATIONS" in os.environ and not hasattr(session.config, "workerinput"):
        by_length = sorted(_spent.items(), key=lambda item: -item[1])
        lines = [f"{spent:.0f} {path}\n" for path, spent in by_length if spent >= SHORTEST_S]
        DURATIONS.write_text("".join(lines), encoding="utf-8")
