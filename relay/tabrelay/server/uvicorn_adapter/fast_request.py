"""Request on the fast path, in place of uvicorn's request-response cycle.

It writes a complete response in one piece, and an event stream whose events come soon, one by one. In all other cases
(an error, a slow call, a large result, a client that disconnects or reads too slowly) it creates the cycle that uvicorn
would have created, and the regular path continues with the same call, and with the stream (`hand_over`).

This file depends on uvicorn's internals; `private_api` checks that they have not changed. It does not decide which
requests take the fast path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sized
from functools import lru_cache
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tabrelay.admission.gate import ADMISSION, Admission
from tabrelay.admission.responses import DEFAULT_HEADERS, with_default_headers
from tabrelay.calls.calls import Header, Notice, Pending, Reply
from tabrelay.errors import RelayError
from tabrelay.faces.mcp.endpoint import NO_SCOPE
from tabrelay.faces.mcp.outcomes import OUTCOME, Answer, Outcome
from tabrelay.http.exchange import EVENT_HEAD, STREAMING
from tabrelay.http.headers import RequestHeaders
from tabrelay.server.fast_path import FastPath
from tabrelay.server.header_cache import HeaderCache

log = logging.getLogger(__name__)

MAX_RESPONSE: Final = (
    256 * 1024
)  # characters; a larger response takes the regular path, which writes at the client's pace


def _lines(headers: tuple[Header, ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


# The part of a response between the number of its length and its body.
_KEEP_ALIVE: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"\r\n"
_CLOSE: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"connection: close\r\n\r\n"


@lru_cache(maxsize=4)
def _stream_head(headers: tuple[Header, ...], is_last: bool) -> bytes:
    """The rest of the head of an event stream. `is_last`: the connection ends with it."""
    close = b"connection: close\r\n" if is_last else b""
    return _lines(tuple(with_default_headers(headers, True))) + close + b"transfer-encoding: chunked\r\n\r\n"


def _event(payload: bytes) -> bytes:
    """One chunk with one event, as `http.exchange` writes it."""
    return b"%x\r\n%b%b\n\n\r\n" % (len(EVENT_HEAD) + len(payload) + 2, EVENT_HEAD, payload)


class FastConnection(HttpToolsProtocol):
    """HTTP connection that supports the fast path. `is_finished`: nothing more can be written to it."""

    cycle_transport: CycleTransport
    is_finished: bool

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


class KnownRequest:
    """All that a connection keeps of its last request, for the next one with the same header block: the bytes of that
    block, what was found in it, its ASGI scope, and the start of the last response."""

    __slots__ = (
        *("_default_headers", "_head", "_head_headers", "_scope", "address", "fast_path", "header_cache", "headers"),
    )

    def __init__(self, http: HttpToolsProtocol, fast_path: FastPath, header_cache: HeaderCache | None) -> None:
        """`header_cache`: None if the next request has to be parsed in any case."""
        self.fast_path = fast_path
        self._scope = http.scope
        self.address = http.url.decode()
        self.header_cache = header_cache
        self.headers = RequestHeaders(http.headers)
        self._default_headers: list[Header] = []
        self._head_headers: tuple[Header, ...] = ()
        self._head = b""

    def head(self, status: int, default_headers: list[Header], headers: tuple[Header, ...]) -> bytes:
        """The first lines of a response, up to the number of its length. `default_headers`: the headers that uvicorn
        puts first; it makes a new list of them every second."""
        if default_headers is self._default_headers and headers is self._head_headers and status == 200:
            return self._head
        head = b"%b%b%bcontent-length: " % (STATUS_LINE[status], _lines(tuple(default_headers)), _lines(headers))
        if status == 200:
            self._default_headers, self._head_headers, self._head = default_headers, headers, head
        return head

    def scope(self, length: int, decided: dict[str, Any]) -> Any:
        """Of a request with a body of this length. `decided`: what was decided about it."""
        headers = list(self._scope["headers"])
        at = next(at for at, (name, _) in enumerate(headers) if name == b"content-length")
        headers[at] = (b"content-length", b"%d" % length)
        return {
            **self._scope,
            "method": "POST",
            "path": self.address,
            "raw_path": self.address.encode(),
            "query_string": b"",
            "headers": headers,
            "state": dict(self._scope.get("state") or {}),
            **decided,
        }


class FastRequest:
    """One request. uvicorn reads or sets the public attributes on its cycles."""

    __slots__ = (
        *("_admission", "_body", "_http", "_known", "_length", "_outcome"),
        *("keep_alive", "response_complete", "response_started"),
    )

    message_event: Final = _NoWaiter()

    def __init__(
        self,
        http: FastConnection,
        known: KnownRequest,
        admission: Admission,
        body: bytes,
        keep_alive: bool,
    ) -> None:
        self._http = http
        self._known = known
        self._admission = admission
        self._length = len(body)
        self._outcome: Outcome | None = None  # of a request that was not admitted, or not yet
        self._body = body
        self.keep_alive = keep_alive
        self.response_started = False  # an event stream has begun
        self.response_complete = False

    def start(self, scope: Any = NO_SCOPE) -> None:
        """Decide. Write the response, or wait for it, or for a reason to take the regular path. `scope`: what is known
        of the request beside its headers."""
        admission, known, outcome = self._admission, self._known, None
        fast_path, principal = known.fast_path, admission.principal
        if principal is not None:
            decide = fast_path.decide  # a name is called sooner than an attribute that is no method
            outcome = decide(admission.path[1:], known.headers, principal, self._body, scope)
            self._outcome, self._body = outcome, b""
        # defence: an Origin on the fast path
        if admission.origin is not None:
            self.hand_over()  # the response needs headers for the page that sent the request
        elif isinstance(outcome, Pending):
            fast_path.exchanges.__enter__()
            fast_path.deadlines.add(self)
            outcome.watch(self._on_event)
        elif isinstance(outcome, Answer) and self._can_write(outcome.body):
            self._write(outcome.status, outcome.headers, outcome.body)
        else:
            self.hand_over()

    def _can_write(self, body: Sized) -> bool:
        http = self._http
        return len(body) <= MAX_RESPONSE and not http.flow.write_paused and not http.transport.is_closing()

    def _on_event(self, event: Notice | Reply | None) -> None:
        pending = self._outcome
        assert isinstance(pending, Pending)
        assert pending.owner is not None
        try:
            while type(event) is Notice and self._write_notice(pending, event):
                event = pending.peek()
            if event is None and not pending.is_done:
                return
            if type(event) is not Reply or not self._can_write(event.raw):
                self.hand_over()
                return
            status, headers, body = pending.owner.response(pending, event)
            if self.response_started:
                self._finish(_event(body) + b"0\r\n\r\n")
            else:
                self._write(status, headers, body)
        except RelayError:
            self.hand_over()
        except Exception:  # it would close the link that delivered the reply
            log.exception("A response could not be written.")
            self._http.transport.close()

    def _write_notice(self, pending: Pending, notice: Notice) -> bool:
        """Write a notice as an event; False if the regular path must."""
        http, owner = self._http, pending.owner
        # defence: a client that does not read its stream, on the fast path
        if not self._can_write(notice.payload) or owner is None or (headers := owner.stream_headers) is None:
            return False
        data = _event(notice.payload.encode())
        if not self.response_started:
            self.response_started = True
            start = STATUS_LINE[200] + _lines(tuple(http.server_state.default_headers))
            data = start + _stream_head(headers, not self.keep_alive) + data
        http.transport.write(data)
        pending.notice_written()
        return True

    def _write(self, status: int, headers: tuple[Header, ...], body: bytes) -> None:
        head = self._known.head(status, self._http.server_state.default_headers, headers)
        self._finish(b"%b%d%b%b" % (head, len(body), _KEEP_ALIVE if self.keep_alive else _CLOSE, body))

    def _finish(self, data: bytes) -> None:
        """Write the last of the response, or all of it."""
        http, keep_alive, outcome = self._http, self.keep_alive, self._outcome
        self.response_complete = True
        self._outcome = None  # the connection keeps its last request until the next one
        http.transport.write(data)
        if isinstance(outcome, Pending):
            fast_path = self._known.fast_path
            outcome.release()
            fast_path.deadlines.pop(self, None)
            fast_path.exchanges.__exit__()
        if not keep_alive:
            http.finish()
        http.fast_response_written()

    def hand_over(self) -> None:
        """Continue on the regular path, with what was decided about the request, or with its complete body."""
        if self.response_complete:
            return
        http, outcome, fast_path = self._http, self._outcome, self._known.fast_path
        is_counted = isinstance(outcome, Pending) and self._admission.origin is None
        if isinstance(outcome, Pending):
            outcome.watch(None)
            fast_path.deadlines.pop(self, None)
        decided: dict[str, Any] = {ADMISSION: self._admission, STREAMING: self.response_started}
        if outcome is not None:
            decided[OUTCOME] = outcome
        cycle = RequestResponseCycle(
            scope=self._known.scope(self._length, decided),
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
        if self.response_started:
            cycle.response_started = cycle.chunked_encoding = True
        cycle.message_event.set()
        current: object = http.cycle
        if current is self:  # else the client has already sent its next request, which waits for this one
            http.cycle = cycle
        http._start_asgi_task(cycle, http.app)
        if is_counted:
            # The task starts before this callback and counts itself, so that the request is counted all the time.
            http.loop.call_soon(fast_path.exchanges.__exit__)
