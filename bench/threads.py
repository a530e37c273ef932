"""Processor time of a relay and a browser by the purpose of their threads: shows the stages of a call, and hardly
depends on other load.

Linux only: it reads /proc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

RELAY, PIPES, WORKER, TAB = "relay", "browser's plumbing", "worker's thread", "tab's thread"
STAGES = (RELAY, PIPES, WORKER, TAB)


def processor_us(ancestor: int, relay: int) -> Counter[str]:
    """So far, in microseconds, by stage: of a relay, and of all Chromium processes that descend from `ancestor`."""
    spent: Counter[str] = Counter()
    for pid, command in _descendants(ancestor):
        if pid != relay and "chrom" not in command:
            continue
        is_renderer = "--type=renderer" in command
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                name = (thread / "comm").read_text().strip()
                nanoseconds = int((thread / "schedstat").read_text().split()[0])
                spent[_stage(pid == relay, is_renderer, name, int(thread.name) == pid)] += nanoseconds // 1000
    return spent


def _stage(is_relay: bool, is_renderer: bool, name: str, is_first: bool) -> str:
    if is_relay:
        return RELAY
    if name.startswith("SharedWorker"):
        return WORKER
    return TAB if is_renderer and is_first else PIPES


def _descendants(ancestor: int) -> Iterator[tuple[int, str]]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        above = pid
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor:
            with suppress(OSError):
                yield pid, Path(f"/proc/{pid}/cmdline").read_text()
