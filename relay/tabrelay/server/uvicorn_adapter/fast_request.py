"""Request on the fast path, in place of uvicorn's request-response cycle.

It writes a complete response in one piece. In all other cases (a notice before the response, an error, a slow call, a
large result, a client that disconnects or reads too slowly) it creates the cycle that uvicorn would have created, and
the regular path continues with the same call (`hand_over`).

This file depends on uvicorn's internals; `private_api` checks that they have not changed. It does not decide which
requests take the fast path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tabrelay.admission.responses import DEFAULT_HEADERS
from tabrelay.calls.calls import Reply
from tabrelay.calls.started import STARTED_CALL, Header, StartedCall
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import InFlightCounter

log = logging.getLogger(__name__)

MAX_RESPONSE: Final = (
    256 * 1024
)  # characters; a larger response takes the regular path, which writes at the client's pace


class FastPathProtocol(Protocol):
    """The fast path, as a connection uses it."""

    deadlines: DeadlineQueue[Any]
    exchanges: InFlightCounter

    def would_admit(self, url: bytes, headers: Sequence[Header]) -> bool: ...

    def take(self, url: bytes, headers: Sequence[Header], body: bytes) -> tuple[StartedCall, Any] | None: ...

    def take_again(self, known: Any, body: bytes) -> StartedCall | None: ...


def _lines(headers: tuple[Header, ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


# The part of a response between the number of its length and its body.
_KEEP_ALIVE: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"\r\n"
_CLOSE: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"connection: close\r\n\r\n"


class FastConnection(HttpToolsProtocol):
    """HTTP connection that supports the fast path. `is_finished`: nothing more can be written to it."""

    cycle_transport: CycleTransport
    is_finished = False

    def finish(self) -> None:
        """Close the connection so that the client can read all that was written."""
        raise NotImplementedError

    def fast_response_written(self) -> None:
        """A response on the fast path was written."""
        raise NotImplementedError


class CycleTransport:
    """The transport of uvicorn's cycles: closing it closes the write side first (`finish`)."""

    __slots__ = ("_http",)

    def __init__(self, http: FastConnection) -> None:
        self._http: FastConnection | None = http

    def detach(self) -> None:
        """The connection is lost, or was upgraded to another protocol."""
        self._http = None

    def write(self, data: bytes) -> None:
        http = self._http
        if http is not None and not http.is_finished:
            http.transport.write(data)

    def is_closing(self) -> bool:
        return self._http is None or self._http.is_finished or self._http.transport.is_closing()

    def close(self) -> None:
        if self._http is not None:
            self._http.finish()


class _NoWaiter:
    """Event for uvicorn to set. No task waits for it."""

    def set(self) -> None: ...


class RequestTemplate:
    """ASGI scope of a request, reusable for requests with the same header block, and the start of the last
    response."""

    __slots__ = ("_default_headers", "_head", "_headers", "_scope", "url")

    def __init__(self, http: HttpToolsProtocol) -> None:
        self._scope, self.url = http.scope, http.url
        self._default_headers: list[Header] = []
        self._headers: tuple[Header, ...] = ()
        self._head = b""

    def head(self, status: int, default_headers: list[Header], headers: tuple[Header, ...]) -> bytes:
        """The first lines of a response, up to the number of its length. `default_headers`: the headers that uvicorn
        puts first; it makes a new list of them every second."""
        if default_headers is self._default_headers and headers is self._headers and status == 200:
            return self._head
        head = b"%b%b%bcontent-length: " % (STATUS_LINE[status], _lines(tuple(default_headers)), _lines(headers))
        if status == 200:
            self._default_headers, self._headers, self._head = default_headers, headers, head
        return head

    def scope(self, length: int, started: StartedCall) -> Any:
        size = b"%d" % length
        headers = [(name, size if name == b"content-length" else value) for name, value in self._scope["headers"]]
        return {
            **self._scope,
            "method": "POST",
            "path": self.url.decode(),
            "raw_path": self.url,
            "query_string": b"",
            "headers": headers,
            "state": dict(self._scope.get("state") or {}),
            STARTED_CALL: started,
        }


class FastRequest:
    """One request. uvicorn reads or sets the public attributes on its cycles."""

    __slots__ = ("_body", "_fast_path", "_http", "_started", "_template", "keep_alive", "response_complete")

    message_event: Final = _NoWaiter()
    response_started = False

    def __init__(
        self,
        http: FastConnection,
        fast_path: FastPathProtocol,
        started: StartedCall,
        body: bytes,
        template: RequestTemplate,
        *,
        keep_alive: bool,
    ) -> None:
        self._http = http
        self._fast_path = fast_path
        self._started = started
        self._body = body
        self._template = template
        self.keep_alive = keep_alive
        self.response_complete = False

    def wait(self) -> None:
        """Wait for the response, or for a reason to take the regular path."""
        pending, fast_path = self._started.pending, self._fast_path
        fast_path.exchanges.__enter__()
        fast_path.deadlines.add(self)
        pending.on_wake = self._on_event
        if pending.has_event:
            self._on_event()

    def _on_event(self) -> None:
        reply, http = self._started.pending.sole_reply, self._http
        if reply is None or len(reply.raw) > MAX_RESPONSE or http.flow.write_paused or http.transport.is_closing():
            self.hand_over()
            return
        try:
            self._write(reply)
        except Exception:  # it would close the link that delivered the reply
            log.exception("A response could not be written.")
            http.transport.close()

    def _write(self, reply: Reply) -> None:
        http, started, fast_path, keep_alive = self._http, self._started, self._fast_path, self.keep_alive
        started.pending.on_wake = None
        fast_path.deadlines.pop(self, None)
        self.response_complete = True
        status, headers, body = started.response(reply)
        head = self._template.head(status, http.server_state.default_headers, headers)
        http.transport.write(b"%b%d%b%b" % (head, len(body), _KEEP_ALIVE if keep_alive else _CLOSE, body))
        started.pending.release()
        del self._started, self._body  # the connection keeps its last request until the next one
        fast_path.exchanges.__exit__()
        if not keep_alive:
            http.finish()
        http.fast_response_written()

    def hand_over(self) -> None:
        """Continue on the regular path, with a request whose body is complete and the call that is already running."""
        if self.response_complete:
            return
        self._started.pending.on_wake = None
        self._fast_path.deadlines.pop(self, None)
        http = self._http
        cycle = RequestResponseCycle(
            scope=self._template.scope(len(self._body), self._started),
            transport=http.cycle_transport,  # type: ignore[arg-type]  # all that a cycle uses
            flow=http.flow,
            logger=http.logger,
            access_logger=http.access_logger,
            access_log=http.access_log,
            default_headers=http.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=self.keep_alive,
            on_response=http.on_response_complete,
        )
        cycle.body += self._body
        cycle.more_body = False
        cycle.message_event.set()
        current: object = http.cycle
        if current is self:  # else the client has already sent its next request, which waits for this one
            http.cycle = cycle
        http._start_asgi_task(cycle, http.app)
        # The task starts before this callback and counts itself, so that the request is counted all the time.
        http.loop.call_soon(self._fast_path.exchanges.__exit__)
