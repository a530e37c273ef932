"""A call that is under way already, and what becomes of its answer: between the fast lane and the ordinary way.

Whoever has one can send the whole answer at once; if it turns out otherwise, the ordinary way carries on with it. How
an answer is written to a connection is not known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tabrelay.calls.calls import Pending, Reply
from tabrelay.calls.principal import Principal

# Where it stands in the scope of a request that the ordinary way carries on with. No client can put anything there.
STARTED_CALL: Final = "tabrelay.calls.started"

Header = tuple[bytes, bytes]


# Server, principal and message; None: it has to be looked at in full.
RepeatCall = Callable[[str, Principal, Any], "StartedCall | None"]


class StartedCall:
    """`carry_on` is given the exchange (`faces.exchange`) and answers as if it had made the call itself."""

    __slots__ = ("_status_of", "headers", "pending", "principal", "repeat", "resume")

    def __init__(
        self,
        pending: Pending,
        principal: Principal,
        *,
        headers: tuple[Header, ...],
        status_of: Callable[[Reply], int],
        carry_on: Callable[[Any], Awaitable[None]],
        again: RepeatCall | None = None,
    ) -> None:
        """`again` begins the next call of whoever sent this, if that has the same header. `status_of` says with which
        status an error of the server's is answered; a result has 200."""
        self.pending = pending
        self.principal = principal
        self.headers = headers
        self._status_of = status_of
        self.resume = carry_on
        self.repeat = again

    def response(self, reply: Reply) -> tuple[int, tuple[Header, ...], bytes]:
        """A short answer at once: status, headers of its own, body."""
        raw = reply.raw
        body = raw.encode() if type(raw) is str else reply.payload.encode()
        return 200 if reply.error_code is None else self._status_of(reply), self.headers, body
