"""Children of a killed program: the guard ends the whole process group, whatever signals it ignores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

BOUND_S = 25.0

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no process groups")

# A child that ignores the end of its input and every signal that can be ignored, and a grandchild like it.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
if os.fork():
    open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
else:
    open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
time.sleep(600)
"""
PARENT = """
import asyncio, subprocess, sys
from tabrelay.system import process_group

async def main():
    pipe = asyncio.subprocess.PIPE
    child = (sys.executable, "-c", sys.argv[1], sys.argv[2])
    processes = [await process_group.start(*child, stdin=pipe) for _ in range(2)]
    if sys.argv[3] == "without guard first":
        process_group._guard._process.kill()
        process_group._guard._process.wait()
        processes.append(await process_group.start(sys.executable, "-c", sys.argv[1], sys.argv[2], stdin=pipe))
    if sys.argv[3] == "one has ended":
        await process_group.stop(processes[0], 0, 0)
        process_group.release(processes[0])
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie is no longer alive
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


@pytest.mark.parametrize(("scene", "count"), [("plain", 4), ("without guard first", 6), ("one has ended", 2)])
def test_nothing_that_a_child_started_is_left_when_its_program_is_killed(
    tmp_path: Path, scene: str, count: int
) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    command = [sys.executable, "-c", PARENT, STUBBORN, str(pids), scene]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        wait_until(lambda: len(pids.read_text().split()) >= count)
        os.kill(parent.pid, signal.SIGKILL)
    # The guard waits a second, then sends SIGKILL.
    wait_until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))
