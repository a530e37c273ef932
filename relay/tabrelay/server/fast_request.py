"""A request in the fast lane, in the place where uvicorn has its cycle of request and response.

It writes an answer that is there at once in one piece. When anything else happens (something is said before the answer,
the call fails, takes long or has a large result, the client leaves or reads too slowly), it makes the
cycle that uvicorn would have made, and the ordinary way carries on with the same call.

This is the one file that knows how uvicorn works inside; `fits` says whether that is still so.
"""

from __future__ import annotations

import asyncio
import inspect
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
_CYCLE_PARAMETERS: Final = (
    *("self", "scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers"),
    *("message_event", "expect_100_continue", "keep_alive", "on_response"),
)
_PROTOCOL_METHODS: Final = (
    *("_start_asgi_task", "_unset_keepalive_if_required", "timeout_keep_alive_handler", "on_message_begin"),
    *("on_response_complete", "on_headers_complete", "on_body", "on_message_complete", "handle_websocket_upgrade"),
)


class FastPathProtocol(Protocol):
    """The lane, as a connection sees it."""

    deadlines: DeadlineQueue[Any]
    exchanges: InFlightCounter

    def would_admit(self, url: bytes, headers: Sequence[Header]) -> bool: ...

    def take(self, url: bytes, headers: Sequence[Header], body: bytes) -> tuple[StartedCall, Any] | None: ...

    def take_again(self, known: Any, body: bytes) -> StartedCall | None: ...


def is_uvicorn_supported() -> bool:
    """Is uvicorn as this file knows it? If not, everything goes the ordinary way."""
    made_of = tuple(inspect.signature(RequestResponseCycle.__init__).parameters)
    return made_of == _CYCLE_PARAMETERS and all(hasattr(HttpToolsProtocol, name) for name in _PROTOCOL_METHODS)


def _lines(headers: tuple[Header, ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


# What stands in an answer between its length and its body.
_KEEP_ALIVE: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"\r\n"
_CLOSE: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"connection: close\r\n\r\n"


class FastConnection(HttpToolsProtocol):
    """A connection whose requests may take the lane. `is_finished`: nothing more can be written to it."""

    cycle_transport: CycleTransport
    is_finished = False

    def finish(self) -> None:
        """Close it so that the client can read everything that was written."""
        raise NotImplementedError

    def fast_response_written(self) -> None:
        """The answer to one that did is written."""
        raise NotImplementedError


class CycleTransport:
    """What uvicorn's cycles have for a transport: closing it closes the write side first (`finish`)."""

    __slots__ = ("_http",)

    def __init__(self, http: FastConnection) -> None:
        self._http: FastConnection | None = http

    def detach(self) -> None:
        """The connection is gone, or speaks another protocol now."""
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
    """Nobody waits for this request's events."""

    def set(self) -> None: ...


class RequestTemplate:
    """What uvicorn knows of a request: enough to make a scope of it, for it or for another with the same header. And
    how the answer to the last of them began."""

    __slots__ = ("_default_headers", "_head", "_headers", "_scope", "url")

    def __init__(self, http: HttpToolsProtocol) -> None:
        self._scope, self.url = http.scope, http.url
        self._default_headers: list[Header] = []
        self._headers: tuple[Header, ...] = ()
        self._head = b""

    def head(self, status: int, default_headers: list[Header], headers: tuple[Header, ...]) -> bytes:
        """An answer's first lines, up to the number of its length. `firsts`: the headers that uvicorn puts before all
        others; it makes another list of them every second."""
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
    """One request. What is public here uvicorn looks at, or sets, on its cycles."""

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
        """For the answer, or for a reason to go the ordinary way."""
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
        except Exception:  # it would end the link that the reply came by
            log.exception("An answer could not be written.")
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
        del self._started, self._body  # the connection keeps its last ticket until the next
        fast_path.exchanges.__exit__()
        if not keep_alive:
            http.finish()
        http.fast_response_written()

    def hand_over(self) -> None:
        """From here on the ordinary way answers. It finds a request whose body has come, and the call under way."""
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
        if current is self:  # else the client has sent its next request already, which waits for this one
            http.cycle = cycle
        http._start_asgi_task(cycle, http.app)
        # The task begins before this is called, and counts by itself: a drain sees the request all the time.
        http.loop.call_soon(self._fast_path.exchanges.__exit__)
