"""The fast lane: a call that can start at once, and is answered at once, crosses the relay without ASGI and tasks.

It decides nothing by itself. Gate and faces are asked in the order in which the ordinary way passes them; whatever they
would refuse, wait for or look at twice goes the ordinary way from its beginning, as if nobody had looked before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.admission.gate import Gate
from tabrelay.calls.principal import Principal
from tabrelay.calls.started import Header, RepeatCall, StartedCall
from tabrelay.faces.mcp.endpoint import McpEndpoint
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import InFlightCounter

# A call that takes longer goes on in the ordinary way, where streams begin, and those whose token is revoked are sent
# away. Both have time until half a second is over.
WAIT_S: Final = 0.25
# A server's own address and nothing more: no escapes, no query, nothing below it.
_ADDRESS: Final = re.compile(rb"/[A-Za-z0-9][A-Za-z0-9._~-]*")


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """What was found out about a request, for others that say the same of themselves. `path`: what its address stood
    for when its principal was let in there."""

    address: str
    path: str
    server: str
    headers: RequestHeaders
    principal: Principal
    repeat: RepeatCall | None


class FastPath:
    """One per relay. `waits`: who was not answered soon has to go the ordinary way."""

    def __init__(
        self, gate: Gate, endpoint: McpEndpoint, exchanges: InFlightCounter, resolve: Callable[[str], str]
    ) -> None:
        """`exchanges` counts who is inside. `resolve`: the path that an address stands for."""
        self.exchanges = exchanges
        self._gate = gate
        self._endpoint = endpoint
        self._resolve = resolve
        self.deadlines: DeadlineQueue[Any] = DeadlineQueue(WAIT_S, lambda ticket: ticket.hand_over())

    def would_admit(self, url: bytes, headers: Sequence[Header]) -> bool:
        """Would whoever sends this be let in? Asked when the body takes its time."""
        if _ADDRESS.fullmatch(url) is None:
            return False
        principal = self._gate.try_admit(self._resolve(url.decode()), RequestHeaders(headers))
        if principal is not None:
            self._gate.undo_admit(principal)
        return principal is not None

    def take(self, url: bytes, headers: Sequence[Header], body: bytes) -> tuple[StartedCall, KnownRequest] | None:
        """Start the call of a POST that is complete; None, and nothing was done, if it has to go the ordinary way."""
        if _ADDRESS.fullmatch(url) is None:
            return None
        fields, address = RequestHeaders(headers), url.decode()
        path = self._resolve(address)
        principal = self._gate.try_admit(path, fields)
        if principal is None:
            return None
        server = path[1:]
        started = self._endpoint.begin(server, fields, principal, body)
        if started is None:
            self._gate.undo_admit(principal)
            return None
        return started, KnownRequest(address, path, server, fields, principal, started.repeat)

    def take_again(self, known: KnownRequest, body: bytes) -> StartedCall | None:
        """The same for a request whose address and headers are those of one that was taken."""
        principal = known.principal
        if self._resolve(known.address) != known.path:
            return None  # it stands for another server now: may this principal go there?
        if not self._gate.admit_again(principal):
            return None
        started = self._endpoint.begin_again(known.server, known.headers, principal, body, known.repeat)
        if started is None:
            self._gate.undo_admit(principal)
        return started
