"""FakePort: a page's port that remembers what the worker sent to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class FakePort:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(dict(message))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Everything of one kind, in order."""
        return [message for message in self.sent if message["t"] == kind]

    def last(self, kind: str) -> dict[str, Any]:
        return self.of(kind)[-1]
