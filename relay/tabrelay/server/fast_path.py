"""Fast path: a call that can start and finish at once crosses the relay without ASGI and without tasks.

It makes no decisions: it asks gate and faces in the order of the regular path. A request that they would refuse, delay
or examine again takes the regular path from the beginning, and nothing of the attempt remains.
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

# A longer call continues on the regular path, where streams start and callers with a revoked token are cut off. Both
# must happen within half a second.
WAIT_S: Final = 0.25
# The address of a server and nothing more: no escapes, no query, no subpath.
_ADDRESS: Final = re.compile(rb"/[A-Za-z0-9][A-Za-z0-9._~-]*")


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """Checked properties of a request, for later ones with the same header block. `path`: what its address resolved to
    when its principal was admitted."""

    address: str
    path: str
    server: str
    headers: RequestHeaders
    principal: Principal
    repeat: RepeatCall | None


class FastPath:
    """One per relay. `deadlines`: requests without a response by then continue on the regular path."""

    def __init__(
        self, gate: Gate, endpoint: McpEndpoint, exchanges: InFlightCounter, resolve: Callable[[str], str]
    ) -> None:
        """`exchanges` counts running requests. `resolve`: path aliases, from an address to the path of a server."""
        self.exchanges = exchanges
        self._gate = gate
        self._endpoint = endpoint
        self._resolve = resolve
        self.deadlines: DeadlineQueue[Any] = DeadlineQueue(WAIT_S, lambda ticket: ticket.hand_over())

    def would_admit(self, url: bytes, headers: Sequence[Header]) -> bool:
        """Would the gate admit this client? Checked when the body is slow."""
        if _ADDRESS.fullmatch(url) is None:
            return False
        principal = self._gate.try_admit(self._resolve(url.decode()), RequestHeaders(headers))
        if principal is not None:
            self._gate.undo_admit(principal)
        return principal is not None

    def take(self, url: bytes, headers: Sequence[Header], body: bytes) -> tuple[StartedCall, KnownRequest] | None:
        """Start the call of a complete POST; None, and nothing was done, if it must take the regular path."""
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
        """The same for a request with the address and headers of an earlier one."""
        principal = known.principal
        if self._resolve(known.address) != known.path:
            return None  # the alias has changed, and this principal may not be admitted at the new server
        if not self._gate.admit_again(principal):
            return None
        started = self._endpoint.begin_again(known.server, known.headers, principal, body, known.repeat)
        if started is None:
            self._gate.undo_admit(principal)
        return started
