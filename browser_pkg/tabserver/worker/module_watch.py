"""Polling schedule for page modules in development: one task for all tabs, which asks rarely while nothing happens.

Time and the check are arguments. What is fetched, and what happens after a change, is in `page_modules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

# A saved file must be in force within 2 s while its developer may be editing.
BUSY_S: Final = 0.5
CALM_S: Final = 1.0
HIDDEN_S: Final = 1.5
IDLE_S: Final = 10.0
BUSY_FOR_S: Final = 120.0
CALM_FOR_S: Final = 1800.0


def pause_s(since_use_s: float, is_visible: bool) -> float:
    """The pause between two polls. `since_use_s`: time since a file changed, or a tab came or was turned to."""
    if since_use_s > CALM_FOR_S:
        return IDLE_S
    if not is_visible:
        return HIDDEN_S
    return BUSY_S if since_use_s < BUSY_FOR_S else CALM_S


class ModuleWatch:
    """Runs `check` again and again while `is_wanted`. `check` returns whether anything changed."""

    def __init__(
        self,
        check: Callable[[], Awaitable[bool]],
        *,
        now_s: Callable[[], float],
        is_wanted: Callable[[], bool],
        is_visible: Callable[[], bool],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._check, self._now_s, self._pause = check, now_s, pause
        self._is_wanted, self._is_visible = is_wanted, is_visible
        self._used_s = now_s()
        self._task: asyncio.Task[None] | None = None
        self._sleep: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def used(self) -> None:
        """A tab attached or was turned to: poll often from now on."""
        self._used_s = self._now_s()
        if not self.is_running:
            if self._is_wanted():
                self._task = asyncio.get_running_loop().create_task(self._run())
        elif self._sleep is not None:
            self._sleep.cancel()

    async def _run(self) -> None:
        while self._is_wanted():
            if await self._check():
                self._used_s = self._now_s()
            await self._wait(pause_s(self._now_s() - self._used_s, self._is_visible()))

    async def _wait(self, pause: float) -> None:
        """Sleep, or until `used`."""
        self._sleep = asyncio.ensure_future(self._pause(pause))
        await asyncio.wait([self._sleep])
        self._sleep = None
