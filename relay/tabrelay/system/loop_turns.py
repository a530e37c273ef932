"""Long work in several turns of the event loop: other callbacks run in between.

The work is a generator that yields wherever it may be interrupted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

TURN_S: Final = 0.005
"""The work goes on for this long in one turn."""


async def run_in_turns(steps: Generator[Any, None, Result]) -> Result:
    """Run all steps; gives what the generator returns."""
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
