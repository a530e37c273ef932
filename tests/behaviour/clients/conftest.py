"""One Node process for every TypeScript client of the matrix."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.behaviour.clients.clients import NodeDriver, TypeScript


@pytest.fixture(scope="session", autouse=True)
async def typescript() -> AsyncIterator[None]:
    async with NodeDriver() as TypeScript.driver:
        yield
