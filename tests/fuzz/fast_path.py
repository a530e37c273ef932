"""A fast path (`tabrelay.server.fast_path`) that takes every POST to a plain address.

It answers as the application does.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, Final

from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import InFlightCounter

_ADDRESS: Final = re.compile(rb"/[a-z]+")


def has_one_host(headers: Any) -> bool:
    return [name for name, _ in headers].count(b"host") == 1


class FakeFastPath:
    def __init__(self, requests: list[tuple[bytes, bytes, bytes]]) -> None:
        self._requests = requests
        self.exchanges = InFlightCounter(lambda: None)
        self.deadlines: DeadlineQueue[Any] = DeadlineQueue(60.0, lambda request: request.hand_over())

    def would_admit(self, url: bytes, headers: Any) -> bool:
        return True

    def take(self, url: bytes, headers: Any, body: bytes) -> tuple[Any, bytes] | None:
        if _ADDRESS.fullmatch(url) is None or not has_one_host(headers):
            return None
        return self._begin(url, body), url

    def take_again(self, known: bytes, body: bytes) -> Any:
        return self._begin(known, body)

    def _begin(self, url: bytes, body: bytes) -> Any:
        self._requests.append((b"POST", url, body))
        reply = SimpleNamespace(raw="ok", error_code=None)
        pending = SimpleNamespace(on_wake=None, has_event=True, sole_reply=reply, release=lambda: None)
        return SimpleNamespace(pending=pending, response=lambda reply: (200, (), b"ok"))
