"""An OpenTelemetry collector on a loopback port: receives OTLP over HTTP, and keeps the spans."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.waiting import BOUND_S

WAIT_S = BOUND_S
KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass(frozen=True)
class Span:
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    links: tuple[str, ...]
    is_error: bool
    began_ns: int
    ended_ns: int
    service: str


@dataclass
class Collector:
    """Start it with `with`. `raw` is every received byte."""

    spans: list[Span] = field(default_factory=list)
    raw: bytes = b""

    def __enter__(self) -> Self:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """No access log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a relay that sends its spans to this collector, without a long delay."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for of_resource in request.resource_spans:
            about = {each.key: each.value.string_value for each in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                self.spans += [_span(each, about.get("service.name", "")) for each in of_scope.spans]
        self.raw += body

    async def until(self, *names: str) -> list[Span]:
        """All spans, once requests with these names are among them: the span of a request ends after its children."""
        async with asyncio.timeout(WAIT_S):
            while not set(names) <= {span.name for span in self.spans if span.kind == "server"}:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return list(self.spans)


def _span(each: Any, service: str) -> Span:
    values = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in each.attributes}
    return Span(
        name=each.name,
        kind=KINDS[each.kind],
        trace=each.trace_id.hex(),
        id=each.span_id.hex(),
        parent=each.parent_span_id.hex(),
        attributes=values,
        links=tuple(link.trace_id.hex() for link in each.links),
        is_error=each.status.code == 2,
        began_ns=each.start_time_unix_nano,
        ended_ns=each.end_time_unix_nano,
        service=service,
    )
