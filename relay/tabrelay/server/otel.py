"""OpenTelemetry spans: one trace from the HTTP request to the tab. Loaded only if traces are on.

    face (SERVER: from the arrival of the request at the gate to the last byte of the response)
      └ switch (INTERNAL: lookup of the server, waiting for it, deadline of the call)
          └ link (CLIENT: at the browser or the upstream), which these get as their parent

The OTEL_* variables, which the SDK reads, choose exporter and sampling. Names and attributes are those of
OpenTelemetry's conventions for MCP. Arguments, results, error texts, resource URIs, session ids, principals and tokens
are never written into a span. A request that starts no call (refused, a notification, a stream) is one span.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabrelay import __version__
from tabrelay.admission.routes import route
from tabrelay.calls.calls import Call, Notice
from tabrelay.calls.peer import Peer
from tabrelay.calls.trace_context import (
    CallTap,
    Headers,
    NoTap,
    Trace,
    context_in_headers,
    context_of,
    write_context,
)
from tabrelay.errors import RelayError
from tabrelay.http.headers import RequestHeaders
from tabrelay.observe.call_metrics import outcome_of
from tabrelay.observe.log_setup import redact
from tabrelay.payloads.sliced import Payload
from tabserver.wire import methods
from tabserver.wire.call_times import ReportedTimes
from tabserver.wire.clock_offset import ClockOffset
from tabserver.wire.trace_context import TraceContext

FLUSH_S: Final = 3.0  # time to send the remaining spans when the relay stops
MAX_TEXT: Final = 128
TRACED_REQUEST: Final = "traced_request"  # in a request's state
# The parameter in the name of a call's span. The URI of a resource may contain private data and is left out.
TARGETS: Final = {methods.TOOLS_CALL: "gen_ai.tool.name", methods.PROMPTS_GET: "gen_ai.prompt.name"}
METHODS: Final = frozenset({"GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH"})
SUCCESS: Final = frozenset({"ok", "asks_client"})
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class SpanIds(RandomIdGenerator):
    """Allows choosing the id of a span before it starts: the message that contains the id is written earlier."""

    def __init__(self) -> None:
        self._next_id: int | None = None

    @contextmanager
    def fixed(self, id: int) -> Iterator[None]:
        """The first span that starts in this context gets this id."""
        self._next_id = id
        try:
            yield
        finally:
            self._next_id = None

    def generate_span_id(self) -> int:
        next_id, self._next_id = self._next_id, None
        return super().generate_span_id() if next_id is None else next_id


class Exporter(OTLPSpanExporter):
    """Can be shut down twice: by the SDK, which waits for it, and by the relay, which has stopped waiting."""

    _is_over = False

    def shutdown(self) -> None:
        if not self._is_over:
            self._is_over = True
            super().shutdown()  # type: ignore[no-untyped-call]


class TracedRequest:
    """One HTTP request: its arrival time, and the spans of its calls, which end with its response."""

    __slots__ = ("began_ns", "is_over", "spans")

    def __init__(self) -> None:
        self.began_ns = time.time_ns()
        self.is_over = False
        self.spans: list[Span] = []


class CallTrace:
    """One running call. Implements Trace."""

    is_timed: Final = False
    is_held: Final = False
    hold_result: Final = None
    __slots__ = ("_attributes", "_ends_face", "_face", "_ids", "_link", "_link_id", "_name", "_switch", "_tracer")

    def __init__(
        self, tracer: api.Tracer, ids: SpanIds, face: Span, name: str, attributes: dict[str, Any], *, ends_face: bool
    ) -> None:
        """`ends_face`: the HTTP request already has its response, as in HTTP+SSE."""
        self._ends_face = ends_face
        self._tracer = tracer
        self._ids = ids
        self._face = face
        self._name = name
        self._attributes = attributes
        self._switch: Span | None = None
        self._link: Span | None = None
        self._link_id = RandomIdGenerator().generate_span_id()

    @property
    def context(self) -> TraceContext:
        """Trace context for the server. Its parent is the span of the link, which starts when the call is sent."""
        context = self._face.get_span_context()
        parent = f"00-{context.trace_id:032x}-{self._link_id:016x}-{context.trace_flags:02x}"
        return TraceContext(parent, context.trace_state.to_header())

    def lookup_started(self, server: str, call: Call) -> None:
        self._switch = self._tracer.start_span("switch", api.set_span_in_context(self._face))

    def sent(self, place: str, kind: str, peer: Peer) -> None:
        above = api.set_span_in_context(self._switch or self._face)
        attributes = {**self._attributes, "tabrelay.place": place, "tabrelay.peer": kind}
        with self._ids.fixed(self._link_id):
            self._link = self._tracer.start_span(self._name, above, SpanKind.CLIENT, attributes)

    def noticed(self, notice: Notice) -> None: ...

    async def let_call_go(self, call: Call, until: float) -> Call:
        return call

    def waits(self, why: str) -> None: ...

    def happened(self, kind: str, text: str) -> None: ...

    def answered(self, reported: ReportedTimes | None, clock: ClockOffset) -> None: ...

    def released(self) -> None: ...

    def ended(self, outcome: RelayError | tuple[int | None, str], reply: Payload | None) -> None:
        how = outcome_of(outcome)
        code = outcome[0] if isinstance(outcome, tuple) else outcome.code
        for span in (self._link, self._switch, self._face):
            if span is None or not span.is_recording():
                continue
            if how not in SUCCESS:
                span.set_attribute("error.type", str(code) if how == "error" else how)
                span.set_status(Status(StatusCode.ERROR))
            if how not in SUCCESS and how != "tool_error":
                span.set_attribute("rpc.response.status_code", str(code))
            if span is not self._face or self._ends_face:
                span.end()


class Tracing:
    """Makes the spans. Implements Traces. One per relay."""

    def __init__(self, url: str, tap: CallTap | None = None) -> None:
        """`url` identifies this relay among several."""
        self._tap: CallTap = tap or NoTap()
        self._ids = SpanIds()
        self._provider = TracerProvider(resource=_resource(url), id_generator=self._ids)
        self._exporter = Exporter()
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("tabrelay", __version__)

    def begin(self, scope: Any, headers: Headers, server: str, message: dict[str, Any]) -> Trace | None:
        request: TracedRequest = scope["state"][TRACED_REQUEST]
        method = message["method"]
        params = message.get("params")
        target = params.get("name") if method in TARGETS and isinstance(params, dict) else None
        attributes: dict[str, Any] = {"mcp.method.name": _text(method), "tabrelay.server": server}
        if isinstance(target, str):
            attributes[TARGETS[method]] = _text(target)
        if method == methods.TOOLS_CALL:
            attributes["gen_ai.operation.name"] = "execute_tool"
        name = f"{_text(method)} {_text(target)}" if isinstance(target, str) else _text(method)
        parent = context_of(headers, message)
        about = {**attributes, "jsonrpc.request.id": _text(str(message["id"])), "network.protocol.name": "http"}
        face = self._tracer.start_span(
            name, _context(parent), SpanKind.SERVER, about, _links(headers, parent), request.began_ns
        )
        if not request.is_over:
            request.spans.append(face)
        call = CallTrace(self._tracer, self._ids, face, name, attributes, ends_face=request.is_over)
        write_context(message, call.context)
        return self._tap.begin(scope, headers, server, message, call) if self._tap.is_on else call

    def finish(self, request: TracedRequest, scope: Scope, status: int) -> None:
        """The response to a request was sent."""
        request.is_over = True
        if not request.spans:
            method = scope["method"] if scope["method"] in METHODS else "_OTHER"
            attributes = {"http.request.method": method, "http.route": "/{server}"}
            parent = context_in_headers(RequestHeaders(scope["headers"]).first)
            name = f"{method} /{{server}}"
            request.spans.append(
                self._tracer.start_span(name, _context(parent), SpanKind.SERVER, attributes, None, request.began_ns)
            )
        for span in request.spans:
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end()

    def close(self) -> None:
        """Send the remaining spans. A collector that can't be reached does not delay the end."""
        thread = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        thread.start()
        thread.join(FLUSH_S)
        self._exporter.shutdown()  # or its thread would retry for a minute after the relay has ended


class Traced:
    """Wraps the gate, so that refused requests have a span too."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not route("http", scope["method"], scope["path"]).is_jsonrpc:
            await self._app(scope, receive, send)
            return
        request = scope.setdefault("state", {})[TRACED_REQUEST] = TracedRequest()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._tracing.finish(request, scope, status)


def _resource(url: str) -> Resource:
    """The environment takes precedence. Without it the service is named tabrelay."""
    about = {"service.version": __version__, "service.instance.id": url}
    if "OTEL_SERVICE_NAME" not in os.environ and "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        about["service.name"] = "tabrelay"
    return Resource.create(about)


def _context(parent: TraceContext | None) -> Context:
    """Always a new context, so that nothing of this process is added to it."""
    return Context() if parent is None else _PROPAGATOR.extract(parent.to_dict(), Context())


def _links(headers: Headers, parent: TraceContext | None) -> list[Link] | None:
    """Conventions for MCP: the context in `_meta` is the parent, and that of the HTTP headers is linked."""
    beside = context_in_headers(headers)
    if beside is None or parent is None or beside.span_id == parent.span_id:
        return None
    return [Link(api.get_current_span(_context(beside)).get_span_context())]


def _text(value: str) -> str:
    return redact(value[:MAX_TEXT])
