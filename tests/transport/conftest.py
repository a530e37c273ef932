"""The transport fixture of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.transport_harness import TransportHarness


@pytest.fixture
async def bench() -> AsyncIterator[TransportHarness]:
    bench = TransportHarness()
    yield bench
    await bench.transport.close()
