"""Specs of the scripted child as an upstream, and checks of what remains of processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabrelay.config.specs import StdioSpec
from tests.support.waiting import BOUND_S

CHILD = Path(__file__).with_name("scripted_child.py")
WAIT_S = BOUND_S


def child(name: str, era: str = "legacy", **more: Any) -> StdioSpec:
    """Starts without site packages, which takes a fraction of the time."""
    return StdioSpec(name, sys.executable, ("-I", "-S", str(CHILD), era), **more)


def is_alive(pid: int) -> bool:
    """A zombie does not count as alive once its last thread has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


async def until(is_so: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.02)
