"""What was decided about a POST: the value that the fast writer and the ASGI writer of a response both consume.

A running call (`Pending`, whose owner knows how to respond), a call that can't start yet (`WaitingCall`), a complete
answer, or another step that has to be awaited. The decision is made once; a request that leaves the fast path carries
the value in its ASGI scope.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tabrelay.calls.calls import Pending
from tabrelay.errors import RelayError
from tabrelay.http.exchange import Exchange, Header
from tabrelay.routing.waiting_call import WaitingCall
from tabserver.wire.jsonrpc import RequestId

# Key of the outcome in the ASGI scope of a request that was decided before. Clients can't set it.
OUTCOME: Final = "tabrelay.outcome"


class Answer:
    """A complete response that is known now."""

    __slots__ = ("__weakref__", "body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: tuple[Header, ...] = ()) -> None:
        self.status = status
        self.body = body
        self.headers = headers


class Deferred:
    """A response that needs a wait, or a stream from its beginning. `respond` may raise RelayError."""

    __slots__ = ("__weakref__", "id", "respond")

    def __init__(self, respond: Callable[[Exchange], Awaitable[None]], id: RequestId | None = None) -> None:
        self.respond = respond
        self.id = id


Outcome = Pending | WaitingCall | Answer | Deferred


async def write(exchange: Exchange, outcome: Outcome, server: str) -> None:
    """The ASGI writer: respond to an exchange with what was decided about it."""
    if isinstance(outcome, Answer):
        await exchange.reply(outcome.status, outcome.body, outcome.headers)
        return
    try:
        if isinstance(outcome, Deferred):
            await outcome.respond(exchange)
        else:
            pending = await outcome.started()
            assert pending.owner is not None
            await pending.owner.respond(exchange, pending)
    except RelayError as error:
        await exchange.error(error, outcome.id if isinstance(outcome, Deferred) else outcome.call.id, server)
