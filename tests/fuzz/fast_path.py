"""A fast path (`tabrelay.server.fast_path`) that takes every POST to a plain address.

It answers as the application does.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tabrelay.admission.gate import Admission
from tabrelay.admission.policy import Refuse
from tabrelay.admission.routes import Route
from tabrelay.calls.principal import Principal
from tabrelay.faces.mcp.outcomes import Answer, Outcome
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import InFlightCounter
from tabrelay.server.fast_path import FastPath

_ADDRESS: Final = re.compile(rb"/[a-z]+")


def has_one_host(headers: Any) -> bool:
    return [name for name, _ in headers].count(b"host") == 1


class FakeFastPath(FastPath):
    def __init__(self, requests: list[tuple[bytes, bytes, bytes]]) -> None:
        self._requests = requests
        self.exchanges = InFlightCounter(lambda: None)
        self.decide = self._decide
        self.deadlines: DeadlineQueue[Any] = DeadlineQueue(60.0, lambda request: request.hand_over())

    def is_address(self, url: bytes) -> bool:
        return _ADDRESS.fullmatch(url) is not None

    def admit(self, address: str, request: RequestHeaders) -> Admission:
        if len(request.all.get(b"host", ())) != 1:
            return Admission(Route(), address, refusal=Refuse(421, "", ""))
        return Admission(Route(), address, Principal("fuzz", frozenset()))

    def _decide(self, server: str, request: RequestHeaders, principal: Principal, body: bytes, scope: Any) -> Outcome:
        self._requests.append((b"POST", f"/{server}".encode(), body))
        return Answer(200, b"ok")
