"""Cooperative CPU work: a generator that runs in several iterations of the event loop, so that other callbacks run too.

The generator yields wherever it may be interrupted. No thread is used: for code that must stay on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

TURN_S: Final = 0.005
"""The work runs for at most this long in one iteration, plus one step."""


async def run_in_turns(steps: Generator[Any, None, Result]) -> Result:
    """Run all steps; returns the generator's result."""
    began = time.perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        # defence: loop time: long work in turns
        if time.perf_counter() - began > TURN_S:
            await asyncio.sleep(0)
            began = time.perf_counter()
