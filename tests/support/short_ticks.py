"""uvicorn's waits, shortened in the processes of the suite.

A pytest plugin. uvicorn checks ten times a second whether it should stop, and as often whether its connections have
ended: a stop takes 0.2 s, in which nothing happens. Tests stop a thousand relays. Relays in other processes stop as
those of users do.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
import uvicorn.server

TICK_S: Final = 0.005


class ShortTicks:
    """The module `asyncio` as uvicorn sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(min(delay_s, TICK_S))


def pytest_configure(config: pytest.Config) -> None:
    server: Any = uvicorn.server
    server.asyncio = ShortTicks()
