"""Waiting for a condition by polling, with a bound, where no event reports it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

# How long a test waits for an expected condition. It promises nothing about how soon that is: with other programs on
# the same cores everything takes several times as long, and the bound costs nothing when the condition comes early.
BOUND_S: Final = 90.0

# Longest pause between two checks of `until`.
LONGEST_PAUSE_S: Final = 0.02
# Pause between two checks. A loop without one would keep a core busy, and the relay that it polls another.
POLL_S: Final = 0.05


async def pause() -> None:
    await asyncio.sleep(POLL_S)


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]], timeout_s: float = BOUND_S) -> None:
    """The pauses begin with none and grow: most conditions come within a millisecond."""
    pause_s = 0.0
    async with asyncio.timeout(timeout_s):
        while True:
            is_so = condition()
            if await is_so if inspect.isawaitable(is_so) else is_so:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s + 0.0005, LONGEST_PAUSE_S)
