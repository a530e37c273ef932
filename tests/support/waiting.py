"""Waiting for a condition, under a bound: there is nothing that could tell the test when it comes true."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

# How long a test waits for what must come. It says nothing about how soon that is: with other programs on the same
# cores everything takes several times as long, and a wait that ends early costs nothing.
BOUND_S: Final = 90.0


# Between two looks at a condition. A loop without a pause would keep a core busy, and the relay that it asks another.
POLL_S: Final = 0.05


async def pause() -> None:
    await asyncio.sleep(POLL_S)


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]], timeout_s: float = BOUND_S) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            is_so = condition()
            if await is_so if inspect.isawaitable(is_so) else is_so:
                return
            await asyncio.sleep(0.02)
