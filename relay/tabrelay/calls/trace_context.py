"""W3C trace context of calls: read from the client's request and forwarded to the server.

The context is in a request's `_meta`, as MCP defines, or in its HTTP headers. `_meta` takes precedence; a context that
only the headers have is written into `_meta`, as the server sees no headers. That costs one header lookup. Spans are
made in `server.otel`, which is loaded only if traces are on.

The header `baggage` is not forwarded: it may contain internal data of the client's side. `_meta` is meant for the
server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from tabrelay.errors import RelayError
from tabserver.wire.trace_context import PARENT, STATE, TraceContext

if TYPE_CHECKING:
    from tabrelay.calls.calls import Call, Notice, Pending, Reply
    from tabrelay.calls.peer import Peer
    from tabrelay.payloads.sliced import Payload
    from tabserver.wire.call_times import ReportedTimes
    from tabserver.wire.clock_offset import ClockOffset

Headers = Mapping[bytes, str]  # of a request: the first value of each

# In the ASGI scope of a request whose body took a while: when its head was complete, by the monotonic clock.
RECEIVED: Final = "tabrelay.received"
PARENT_HEADER: Final = PARENT.encode()
STATE_HEADER: Final = STATE.encode()


class Trace(Protocol):
    """Observer of one running call."""

    @property
    def is_timed(self) -> bool:
        """Does it want the times of the call in its worker (F6)?"""

    def lookup_started(self, server: str, call: Call) -> None:
        """The switch has the call and looks for the peer of the name."""

    @property
    def is_held(self) -> bool:
        """Does a person decide about the call before it is sent? Asked once."""

    async def let_call_go(self, call: Call, until: float) -> Call:
        """Wait for that decision, at most until this time of the monotonic clock; returns the call as it should be
        sent. Raises RelayError."""

    @property
    def hold_result(self) -> Callable[[Pending, Reply], None] | None:
        """What gets the reply of the call first, and ends the call with it later. None: nothing does. Asked once."""

    def waits(self, why: str) -> None:
        """The call can't be sent yet. `why`: for users."""

    def sent(self, place: str, kind: str, peer: Peer) -> None:
        """The call is about to be sent to this peer, at this address."""

    def happened(self, kind: str, text: str) -> None:
        """Something that is no message: its connection was lost, it was sent again. `text`: for users."""

    def answered(self, reported: ReportedTimes | None, clock: ClockOffset) -> None:
        """The worker's response has arrived. `reported`: the times that the worker took, if it does that."""

    def noticed(self, notice: Notice) -> None:
        """The server sent a notification or a question during the call."""

    def ended(self, outcome: RelayError | tuple[int | None, str], reply: Payload | None) -> None:
        """`reply`: the server's response; None if there is none."""

    def released(self) -> None:
        """The caller has the reply or the error, or is gone."""


class Traces(Protocol):
    """Assigns calls to traces."""

    def begin(self, scope: Any, headers: Headers, server: str, message: dict[str, Any]) -> Trace | None:
        """Called with a client's request before it is forwarded; may change its `_meta`."""


class CallTap(Protocol):
    """Observer of all calls that can be on or off. `is_on` is read for each call."""

    is_on: bool

    def begin(
        self, scope: Any, headers: Headers, server: str, message: dict[str, Any], inner: Trace | None
    ) -> Trace | None:
        """The observer of this call: `inner`, or one that passes everything on to it."""


class NoTap:
    """An observer that is always off."""

    is_on = False

    def begin(
        self, scope: Any, headers: Headers, server: str, message: dict[str, Any], inner: Trace | None
    ) -> Trace | None:
        return inner


class PassThroughTraces:
    """Without tracing: the context is forwarded unchanged."""

    def __init__(self, tap: CallTap | None = None) -> None:
        self._tap: CallTap = tap or NoTap()

    def begin(self, scope: Any, headers: Headers, server: str, message: dict[str, Any]) -> Trace | None:
        if PARENT_HEADER in headers and context_in(message) is None:
            context = context_in_headers(headers)
            if context is not None:
                write_context(message, context)
        return self._tap.begin(scope, headers, server, message, None) if self._tap.is_on else None


def context_in(message: dict[str, Any]) -> TraceContext | None:
    params = message.get("params")
    return TraceContext.read(params.get("_meta")) if isinstance(params, dict) else None


def context_of(headers: Headers, message: dict[str, Any]) -> TraceContext | None:
    """The context of a request: from its `_meta`, or else from its headers."""
    return context_in(message) or context_in_headers(headers)


def context_in_headers(headers: Headers) -> TraceContext | None:
    parent = headers.get(PARENT_HEADER)
    return None if parent is None else TraceContext.read({PARENT: parent, STATE: headers.get(STATE_HEADER)})


def write_context(message: dict[str, Any], context: TraceContext) -> None:
    """Write the context into the request's `_meta`. The server refuses a `_meta` that is no object."""
    params = message.get("params", {})
    meta = params.get("_meta", {}) if isinstance(params, dict) else None
    if isinstance(meta, dict):
        kept = {key: value for key, value in meta.items() if key not in (PARENT, STATE)}
        written = {key: value for key, value in context.to_dict().items() if key in (PARENT, STATE)}
        message["params"] = {**params, "_meta": {**kept, **written}}


def headers_for(params: dict[str, Any] | None) -> dict[str, str]:
    """HTTP headers for an upstream, whose framework may read them there."""
    context = TraceContext.read(params.get("_meta")) if params is not None else None
    if context is None:
        return {}
    return {key: value for key, value in context.to_dict().items() if key in (PARENT, STATE)}
