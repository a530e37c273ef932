"""Tools for the client matrix: results, progress, cancellation, errors and oversized results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tabserver import Context
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.waiting import BOUND_S

NAMES = ["echo", "steps", "hang", "big", "fail"]


class Tools(Toolbox):
    """Counts calls that hang, and those of them that were cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.hanging = 0
        self.cancelled = 0
        self._changed = asyncio.Event()

        @tool(toolbox=self)
        def echo(text: str = "") -> str:
            """Return the text."""
            return text

        @tool(toolbox=self)
        async def steps(context: Context) -> str:
            """Take three steps."""
            for step in (1, 2, 3):
                context.progress(step, 3)
                # The TypeScript clients lose progress that arrives in one piece with the answer.
                await asyncio.sleep(0.02)
            return "done"

        @tool(toolbox=self)
        async def hang(context: Context) -> str:
            """Run until cancelled."""
            context.progress(1)
            self.hanging += 1
            self._changed.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
                self._changed.set()
            return "never"

        @tool(toolbox=self)
        def big() -> str:
            """A result that exceeds the limit of the link."""
            return "x" * 200_000

        @tool(toolbox=self)
        def fail() -> str:
            """Raise."""
            raise ValueError("the milk is sour")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
