"""Fast path: a small POST is decided where it is received, and written there if its response comes soon.

It makes no decisions: it asks gate and endpoint, once for each request. What can't be written at once continues on the
regular path with what was decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tabrelay.admission.gate import Admission, Gate
from tabrelay.calls.principal import Principal
from tabrelay.faces.mcp.endpoint import McpEndpoint
from tabrelay.faces.mcp.outcomes import Outcome
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import InFlightCounter

# A longer call continues on the regular path, where streams start and callers with a revoked token are cut off. Both
# must happen within half a second.
WAIT_S: Final = 0.25
# The address of a server and nothing more: no escapes, no query, no subpath.
_ADDRESS: Final = re.compile(rb"/(?!favicon\.ico$)[A-Za-z0-9][A-Za-z0-9._~-]*")


class FastPath:
    """One per relay. `deadlines`: requests without a response by then continue on the regular path."""

    def __init__(
        self, gate: Gate, endpoint: McpEndpoint, exchanges: InFlightCounter, aliases: Mapping[str, str]
    ) -> None:
        """`exchanges` counts running requests. `aliases`: from an address to the path of a server."""
        # Decides about an admitted POST: server, headers, principal, body, and members of an ASGI scope. Without a hop,
        # because each call needs it.
        self.decide: Callable[[str, RequestHeaders, Principal, bytes, Any], Outcome] = endpoint.decide
        self.exchanges = exchanges
        self._gate = gate
        self._aliases = aliases
        self.deadlines: DeadlineQueue[Any] = DeadlineQueue(WAIT_S, lambda request: request.hand_over())

    def is_address(self, url: bytes) -> bool:
        """Is it the address of a server? Requests for other addresses are decided on the regular path."""
        return _ADDRESS.fullmatch(url) is not None

    def admit(self, address: str, request: RequestHeaders) -> Admission:
        """Decide about a POST before its body is known."""
        return self._gate.admit("http", "POST", self._aliases.get(address, address), request)
