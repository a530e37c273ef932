"""Waiting for a condition, under a bound: there is nothing that could tell the test when it comes true."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            is_so = condition()
            if await is_so if inspect.isawaitable(is_so) else is_so:
                return
            await asyncio.sleep(0.02)
