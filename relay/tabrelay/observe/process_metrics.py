"""Process metrics for Prometheus, under its standard names: CPU time, memory, file descriptors, start time.

Read from /proc; without it, only what the standard library provides. Does not count calls (`call_metrics`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tabrelay.observe.prometheus import MetricFamily, MetricSample, counter, gauge

_PROC: Final = Path("/proc/self")
_STARTED: Final = time.time()


def families() -> Iterable[MetricFamily]:
    taken = os.times()
    spent = "Processor time, user and system."
    yield counter("process_cpu_seconds_total", spent, MetricSample(taken.user + taken.system))
    yield gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", MetricSample(_started()))
    with suppress(OSError, ValueError):
        virtual, resident = (int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in _read("statm").split()[:2])
        yield gauge("process_virtual_memory_bytes", "Mapped memory.", MetricSample(virtual))
        yield gauge("process_resident_memory_bytes", "Resident memory.", MetricSample(resident))
    with suppress(OSError):
        yield gauge("process_open_fds", "Open files and sockets.", MetricSample(len(os.listdir(_PROC / "fd"))))
    with suppress(ImportError):  # not on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield gauge("process_max_fds", "Limit of open files and sockets.", MetricSample(limit))


def _started() -> float:
    """Start of the process, which is earlier than the import of this module."""
    with suppress(OSError, ValueError, StopIteration):
        # The name in brackets may contain anything; of the fields after it, the 20th is the start time.
        ticks = int(_read("stat").rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    return _STARTED


def _read(name: str) -> str:
    return (_PROC / name).read_text(encoding="utf-8", errors="replace")
