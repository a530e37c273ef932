"""Background tasks of an object: kept until they end, and cancelled together.

asyncio has only weak references to tasks: without another reference, a task may disappear before it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any


class BackgroundTasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """The tasks that run."""
        return iter(list(self._running))

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks; they have ended when this returns."""
        await cancel(*self)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks; they have ended when this returns. What they raise is dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
