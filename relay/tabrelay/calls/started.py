"""Call that the fast path has started, and how to finish it on either path.

The fast path sends a complete response at once. If it can't (a notice, an error, a large or late result, a client that
disconnects), it puts the call into the ASGI scope, and a face continues with it. Writing to a connection is not known
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tabrelay.calls.calls import Pending, Reply
from tabrelay.calls.principal import Principal

# Key in the ASGI scope of a request that the regular path continues. Clients can't set it.
STARTED_CALL: Final = "tabrelay.calls.started"

Header = tuple[bytes, bytes]


# Starts a call from server, principal and message; None: the request must be examined in full.
RepeatCall = Callable[[str, Principal, Any], "StartedCall | None"]


class StartedCall:
    """`resume` gets the exchange (`http.exchange`) and answers on the regular path."""

    __slots__ = ("_status_of", "headers", "pending", "principal", "repeat", "resume")

    def __init__(
        self,
        pending: Pending,
        principal: Principal,
        *,
        headers: tuple[Header, ...],
        status_of: Callable[[Reply], int],
        resume: Callable[[Any], Awaitable[None]],
        repeat: RepeatCall | None = None,
    ) -> None:
        """`repeat` starts the next call of the same client, if it has the same header block. `status_of`: the HTTP
        status for an error of the server; a result has 200."""
        self.pending = pending
        self.principal = principal
        self.headers = headers
        self._status_of = status_of
        self.resume = resume
        self.repeat = repeat

    def response(self, reply: Reply) -> tuple[int, tuple[Header, ...], bytes]:
        """Status, headers and body of a complete response."""
        raw = reply.raw
        body = raw.encode() if type(raw) is str else reply.payload.encode()
        return 200 if reply.error_code is None else self._status_of(reply), self.headers, body
