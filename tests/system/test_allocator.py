"""The relay returns memory to the system after use."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from tabrelay.system import allocator

MB = 1e6
# Allocations of the relay when a browser loads its files and when many large results arrive: one block of 20 MB, then
# 40 MB in small blocks, all of which is freed again.
SCRIPT = """
import json, socket, sys
from tabrelay.server import runner
from tabrelay.config.settings import Settings

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def work(self, sockets):
    del sockets
    before = resident()
    bytearray(20_000_000)
    blocks = [bytes([1]) * 64_000 for _ in range(40_000_000 // 64_000)]
    most = resident()
    # One is freed last, as in a list of results that clients read one by one.
    del blocks[0], blocks
    print(json.dumps([before, most, resident()]))

runner.RelayServer.run = work
runner.run(lambda: None, Settings(), socket.socket(), lambda: None)
"""
# A running relay: 6 MB in small blocks, which is less than glibc keeps, then idle for a while.
QUIET = """
import asyncio, json, os, signal, socket
from tabrelay.server import runner
from tabrelay.config.settings import Settings
from tabrelay.system.allocator import HeapTrimmer

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

async def work():
    HeapTrimmer().trim()
    before = resident()
    blocks = [bytes([1]) * 64_000 for _ in range(6_000_000 // 64_000)]
    del blocks
    kept = left = resident() - before
    for _ in range(1_500):
        left = min(left, resident() - before)
        if left < 2_000_000:
            break
        await asyncio.sleep(0.02)
    print(json.dumps([kept, left]))
    os.kill(os.getpid(), signal.SIGTERM)

async def app(scope, receive, send):
    raise NotImplementedError

tasks = []
sock = runner.bind("127.0.0.1", 0)
runner.run(app, Settings(), sock, lambda: tasks.append(asyncio.get_running_loop().create_task(work())))
"""
# A heap that grows to three times the size up to which it is trimmed.
LARGE = """
import json
from tabrelay.system import allocator

trimmer = allocator.HeapTrimmer()
small = trimmer.trim()
blocks = [bytes([1]) * 64_000 for _ in range(3 * allocator.MOST_TRIMMED // 64_000)]
print(json.dumps([small, trimmer.trim()]))
"""
IS_GLIBC = platform.libc_ver()[0] == "glibc"


def taken(**more: str) -> tuple[float, float]:
    """MB at the peak of the work, and MB that remain after it."""
    before, most, after = output(SCRIPT, **more)
    return (most - before) / MB, (after - before) / MB


def output(script: str, **more: str) -> list[float]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ | more, capture_output=True, text=True, check=True, timeout=60
    )
    figures: list[float] = json.loads(done.stdout)
    return figures


@pytest.mark.skipif(not IS_GLIBC, reason="only glibc has these settings")
def test_memory_of_large_messages_and_files_is_given_back_when_they_are_done() -> None:
    most, left = taken()
    assert most > 30
    assert left < 12


@pytest.mark.skipif(not IS_GLIBC, reason="only glibc has these settings")
def test_free_memory_that_is_kept_for_the_next_results_is_given_back_after_some_seconds() -> None:
    kept, left = output(QUIET)
    assert kept / MB > 4
    assert left / MB < 2


@pytest.mark.skipif(not IS_GLIBC, reason="only glibc has these settings")
def test_a_large_heap_is_not_trimmed_because_that_takes_long() -> None:
    """In a separate process: a test process has free memory in its heap, which the blocks would fill first."""
    assert output(LARGE) == [True, False]


@pytest.mark.skipif(not IS_GLIBC, reason="only glibc has these settings")
def test_settings_of_the_allocator_that_the_user_chose_are_kept() -> None:
    _, left = taken(MALLOC_TRIM_THRESHOLD_="1000000000", MALLOC_MMAP_THRESHOLD_="30000000")
    assert left > 15
    assert not allocator.limit_free_memory({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"})
