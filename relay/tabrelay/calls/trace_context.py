"""Which trace a call belongs to: taken from the client's request, passed on to the server, seen by whoever traces.

W3C trace context comes in a request's `_meta`, where MCP puts it, or in its HTTP headers. What `_meta` says counts;
what only the headers say is written into `_meta`, as the server sees no headers. That costs a look for one header; what
makes spans of it is in `tracing`, and is loaded only when somebody wants them.

The header `baggage` is not passed on: it may hold what programs on the client's side tell each other. What a client
puts into `_meta` it says to the server itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from tabrelay.errors import RelayError
from tabserver.wire.trace_context import PARENT, STATE, TraceContext

Header = Callable[[bytes], str | None]

PARENT_HEADER: Final = PARENT.encode()
STATE_HEADER: Final = STATE.encode()


class Trace(Protocol):
    """One call under way, as whoever traces hears of it."""

    def lookup_started(self, server: str) -> None:
        """The switch has it and looks for whoever holds the name."""

    def sent(self, place: str, kind: str) -> None:
        """It is on its way there."""

    def ended(self, outcome: RelayError | tuple[int | None, str]) -> None: ...


class Traces(Protocol):
    """Whoever says to which trace calls belong."""

    def begin(self, scope: Any, header: Header, server: str, message: dict[str, Any]) -> Trace | None:
        """A client's request, before it is passed on: its `_meta` may be changed."""


class PassThroughTraces:
    """Nobody traces here: the context goes on as it came."""

    def begin(self, scope: Any, header: Header, server: str, message: dict[str, Any]) -> Trace | None:
        if header(PARENT_HEADER) is not None and context_in(message) is None:
            context = context_in_headers(header)
            if context is not None:
                write_context(message, context)
        return None


def context_in(message: dict[str, Any]) -> TraceContext | None:
    params = message.get("params")
    return TraceContext.read(params.get("_meta")) if isinstance(params, dict) else None


def context_of(header: Header, message: dict[str, Any]) -> TraceContext | None:
    """What the request says; in its `_meta`, or else in its headers."""
    return context_in(message) or context_in_headers(header)


def context_in_headers(header: Header) -> TraceContext | None:
    parent = header(PARENT_HEADER)
    return None if parent is None else TraceContext.read({PARENT: parent, STATE: header(STATE_HEADER)})


def write_context(message: dict[str, Any], context: TraceContext) -> None:
    """Say it in the request's `_meta`. What is no object there is the server's to refuse."""
    params = message.get("params", {})
    meta = params.get("_meta", {}) if isinstance(params, dict) else None
    if isinstance(meta, dict):
        kept = {key: value for key, value in meta.items() if key not in (PARENT, STATE)}
        written = {key: value for key, value in context.to_dict().items() if key in (PARENT, STATE)}
        message["params"] = {**params, "_meta": {**kept, **written}}


def headers_for(params: dict[str, Any] | None) -> dict[str, str]:
    """For a server that is reached over HTTP: its own framework may look there."""
    context = TraceContext.read(params.get("_meta")) if params is not None else None
    if context is None:
        return {}
    return {key: value for key, value in context.to_dict().items() if key in (PARENT, STATE)}
