"""Clock and random source of the bridge, as an object that tests replace.

Every wait and every random number of the bridge goes through it. It holds no state.
"""

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
