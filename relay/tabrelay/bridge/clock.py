"""Time and chance, as a seam: a test puts its own in the place of this one."""

from __future__ import annotations

import asyncio
import random
import time


class Clock:
    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def chance(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
