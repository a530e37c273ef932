"""HTTP requests on a connection: one at a time, each bounded in bytes and time.

`request_framing` finds where requests begin and end; uvicorn's parser is not used. A request is read when the previous
one has its response; until then at most `max_ahead` bytes of pipelined requests are kept. A POST with a small body is
buffered until it is complete and offered to the fast path (`fast_request`); what that does not take, uvicorn gets as if
it had just arrived. The next request with the same header block is not parsed at all (`header_cache`). The size of a
body is limited by its reader, not here.
"""

from __future__ import annotations

import time
from http import HTTPStatus

import httptools

from tabrelay.admission.gate import ADMISSION, Admission
from tabrelay.calls.trace_context import RECEIVED
from tabrelay.faces.mcp.endpoint import NO_SCOPE
from tabrelay.http.request_framing import ChunkedBody, FramingError, RequestHead, SizedBody
from tabrelay.server.header_cache import header_cache_of
from tabrelay.server.uvicorn_adapter.fast_request import FastRequest, KnownRequest
from tabrelay.server.uvicorn_adapter.http_connection import HttpConnection

MAX_BUFFERED_BODY = 64 * 1024  # bytes of a body that is buffered for the fast path; uvicorn buffers as many


class HeadAsParser:
    """The head of a request, with the methods by which uvicorn asks its own parser."""

    __slots__ = ("head",)

    def __init__(self, head: RequestHead) -> None:
        self.head = head

    def get_method(self) -> bytes:
        return self.head.method

    def get_http_version(self) -> str:
        return self.head.version

    def should_keep_alive(self) -> bool:
        return self.head.keeps_alive

    def should_upgrade(self) -> bool:
        return False


class HttpProtocol(HttpConnection):
    """One connection, as uvicorn creates it."""

    _received: float | None = None  # the head of a request whose body is not complete

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._known is not None and self._decide_known(data):
            return
        if self.is_finished:
            return
        self._end_idle()
        is_busy = self._body is None and self.cycle is not None and not self.cycle.response_complete
        if is_busy or self._pipelined:
            self._keep_pipelined(data)
        else:
            self._read(data)

    def _keep_pipelined(self, data: bytes) -> None:
        """Keep a few bytes, then stop reading. RFC 9112, 9.3.2: clients should not pipeline non-idempotent requests."""
        if not self._is_full:
            self._pipelined += data
        # defence: requests sent ahead
        if len(self._pipelined) > self.max_ahead:
            self._is_full = True
            self._pipelined.clear()
            self.flow.pause_reading()

    def _read(self, data: bytes) -> None:
        """Read up to the end of one request."""
        try:
            if self._body is not None:
                self._read_body(data)
                return
            self._data = b"" if self._head.data else data
            found = self._head.feed(data)
            if found is not None:
                self._begin(*found)
            elif self._deadline is None:
                self._arm(self.header_deadline_s)
        except FramingError as error:
            self._refuse(error.status)
        except httptools.HttpParserError:  # in the URL, which uvicorn parses
            self._refuse(HTTPStatus.BAD_REQUEST)
        finally:
            self._data = b""

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        self._disarm()
        self._received = None
        self.slots.enter(self)
        super().on_message_begin()
        self.parser = HeadAsParser(head)
        self.url = head.target
        self.headers += head.fields
        self.expect_100_continue = head.expects_continue
        if head.wants_websocket:
            self._upgrade(head, rest)
            return
        if self._may_be_buffered(head):
            self._buffered_body = []
        else:
            self._start()
        if head.has_body:
            self._body = ChunkedBody(self.max_header) if head.is_chunked else SizedBody(head.body_length)
            self._read_body(rest)
        else:
            self._end(rest)

    def _start(self) -> None:
        """Create uvicorn's cycle, which runs the application."""
        super().on_headers_complete()
        self.scope[RECEIVED] = time.monotonic()  # type: ignore[typeddict-unknown-key]
        self.cycle.transport = self.cycle_transport
        if self.is_stopping:
            self.cycle.keep_alive = False

    def _upgrade(self, head: RequestHead, rest: bytes) -> None:
        """RFC 6455, 4.1: a GET without a body, and no bytes before the response."""
        if head.method != b"GET" or head.version != "1.1" or head.has_body or rest:
            raise FramingError
        self._discard_input()
        self.slots.leave(self)
        self.scope["method"] = "GET"
        self.handle_websocket_upgrade()
        self.cycle_transport.detach()

    def _read_body(self, data: bytes) -> None:
        assert self._body is not None
        piece, rest = self._body.feed(data)
        if piece and self._buffered_body is None:
            super().on_body(piece)
        elif piece and self._buffered_body is not None:
            self._buffered_body.append(piece)
        if self._body.is_complete:
            self._body = None
            self._end(rest)
        elif self._deadline is None:
            if self._buffered_body is not None and self._admit().principal is None:
                self._start_regular_path()  # a client that is not admitted is refused before its body is complete
            self._received = time.monotonic()
            # defence: bodies that come slowly
            self._arm(self.body_deadline_s)

    def _end(self, rest: bytes) -> None:
        """The request is complete; `rest` arrived behind it."""
        self._since = self.loop.time()
        self._disarm()
        was_answered = self._buffered_body is None and self.cycle.response_complete
        if rest and was_answered:
            self._pipelined += rest  # not sent ahead: the response came before the end of the body
        elif rest:
            self._keep_pipelined(rest)
        if self._buffered_body is not None:
            self._decide()
            return
        super().on_message_complete()
        if was_answered:
            self._next_request()

    # -- after a response ---------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.cycle is not None and self.cycle.response_complete and not isinstance(self.cycle, FastRequest):
            # defence: bodies that the application does not read
            self.cycle.body = b""  # the response came before the body was read, so it is never read
        if self.is_finished or self.transport.is_closing():
            return
        if self._body is None or self._is_full:
            self._next_request()
        else:
            self.flow.resume_reading()

    def _next_request(self) -> None:
        """The request was read and has its response."""
        if self._is_full:
            self.finish()
            return
        self.flow.resume_reading()
        if not self._pipelined:
            self._end_idle()
            wait_s = self.idle_close_s if self.is_stopping else self.timeout_keep_alive
            self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)
        elif self._pipelined_read is None:
            # Not at once: other connections are served in between.
            self._pipelined_read = self.loop.call_soon(self._read_pipelined)

    def _read_pipelined(self) -> None:
        self._pipelined_read = None
        if self._is_full:
            self.finish()
            return
        data = bytes(self._pipelined)
        self._pipelined.clear()
        self._end_idle()
        self._read(data)

    def shutdown(self) -> None:
        """The relay accepts no more connections and ends soon. A request on this connection is still answered."""
        self._start_regular_path()
        self.close_after_response()
        # defence: idle connections when the relay stops
        self.loop.call_later(self.idle_close_s, self.timeout_keep_alive_handler)

    # -- fast path ----------------------------------------------------------------------------------------------------

    def _may_be_buffered(self, head: RequestHead) -> bool:
        """Only a small body of known size is buffered. All other requests take the regular path."""
        if self.fast_path is None or head.method != b"POST" or self.expect_100_continue:
            return False
        if not self.fast_path.is_address(head.target):
            return False
        return 0 < head.body_length <= MAX_BUFFERED_BODY and head.version == "1.1"

    def _admit(self) -> Admission:
        """Decide about the request that is being read, by its header block."""
        fast_path = self.fast_path
        assert fast_path is not None
        keep_alive = self.parser.head.keeps_alive and not self.is_stopping
        self._known = known = KnownRequest(self, fast_path, header_cache_of(self._data) if keep_alive else None)
        self._admission = admission = fast_path.admit(known.address, known.headers)
        return admission

    def _decide(self) -> None:
        """Decide about a complete request."""
        assert self._buffered_body is not None
        body, self._buffered_body = b"".join(self._buffered_body), None
        admission, self._admission = self._admission or self._admit(), None
        assert self._known is not None
        keep_alive = self.parser.head.keeps_alive and not self.is_stopping
        # Send a response as soon as it is written: its client can prepare the next call while others are answered.
        self.transport.set_write_buffer_limits(high=0)
        scope = NO_SCOPE if self._received is None else {RECEIVED: self._received}
        self._received = None
        self.cycle = request = FastRequest(self, self._known, admission, body, keep_alive)
        request.start(scope)

    def _decide_known(self, data: bytes) -> bool:
        """Decide about a complete request with the same header block as the last one, without parsing it."""
        known = self._known
        assert known is not None
        # A connection that is finished knows none, and has no cache when the relay stops.
        if (cache := known.header_cache) is None or self._body is not None or self._pipelined or self._head.data:
            return False
        if not self.cycle.response_complete or self.transport.is_closing():
            return False
        body = cache.body(data)
        if body is None or len(body) > MAX_BUFFERED_BODY:
            return False
        self._end_idle()
        self._since = self.loop.time()
        admission = known.fast_path.admit(known.address, known.headers)
        self.cycle = request = FastRequest(self, known, admission, body, True)
        request.start()
        return True

    def _start_regular_path(self) -> None:
        """Hand a buffered request over to uvicorn."""
        buffered, self._buffered_body = self._buffered_body, None
        if buffered is not None:
            if self._admission is not None:
                self.scope[ADMISSION] = self._admission  # type: ignore[typeddict-unknown-key]
                self._admission = None
            self._start()
            for piece in buffered:
                super().on_body(piece)
