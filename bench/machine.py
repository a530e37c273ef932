"""The machine and the versions that a figure was measured with, in one line each."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("uvicorn", "httptools", "uvloop", "websockets", "orjson")


def describe() -> list[str]:
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = model[1].strip() if model else platform.machine()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return [
        f"{len(os.sched_getaffinity(0))} cores ({name}), {memory:.0f} GiB; load average at the start {load}",
        f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    ]
