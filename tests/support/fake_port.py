"""FakePort: a page's port that records what the worker sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tests.support.waiting import BOUND_S


class FakePort:
    reads_requests = False

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._said = asyncio.Event()

    def send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(dict(message))
        self._said.set()

    def post(self, text: str) -> None:
        self.send(json.loads(text))

    def allow(self, number: int, channel: str, words: str, meta: str, has_rivals: bool) -> None:
        """See tests/support/fake_js_calls.py."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All messages of one kind, in order."""
        return [message for message in self.sent if message["t"] == kind]

    def last(self, kind: str) -> dict[str, Any]:
        return self.of(kind)[-1]

    async def until(self, kind: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until this many messages of one kind were sent; returns them all."""
        async with asyncio.timeout(BOUND_S):
            while len(found := self.of(kind)) < count:
                self._said.clear()
                await self._said.wait()
        return found
