"""HTTP connections with limits, on uvicorn's httptools protocol: one request at a time, each bounded in bytes and time.

`request_framing` finds where requests begin and end; uvicorn's own parser is not used. A request is read when the one
before it has been answered. Until then at most `max_ahead` bytes of what the client sends ahead are kept. A connection
is closed in two steps: the write side first, then the rest when the client has closed too or `linger_s` is over, so
that no reset destroys an answer that the client has not read. How large a body may be is decided where it is read.

A POST with a small body is kept until it is complete, and then offered to the fast lane (`ticket`); what that does not
take, uvicorn gets as if it had come just now. The next one with the same header is not parsed at all (`stencil`).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

import httptools

from tabrelay.http.request_framing import ChunkedBody, FramingError, HeadReader, RequestHead, SizedBody
from tabrelay.routing.deadline_queue import EARLY_S
from tabrelay.server.connection_slots import ConnectionSlots
from tabrelay.server.fast_request import CycleTransport, FastConnection, FastPathProtocol, FastRequest, RequestTemplate
from tabrelay.server.header_cache import HeaderCache, header_cache_of
from tabrelay.server.listener_close import has_unread
from tabrelay.system.patient_timer import PatientTimer

MAX_BUFFERED_BODY = 64 * 1024  # bytes of a body that waits here; uvicorn has room for as many
RECHECK_S = 0.05


class HttpProtocol(FastConnection):
    """One connection. The limits are the process's, so they stand on the class."""

    max_header = 64 * 1024
    max_ahead = 16 * 1024
    header_deadline_s = 10.0
    body_deadline_s = 30.0
    max_connections = 1024
    stall_s = 30.0  # a client that takes nothing of its answer for this long is gone, whatever its connection says
    linger_s = 1.0
    idle_close_s = 0.3  # when the relay stops, a connection without a request is kept this long
    is_stopping = False  # the relay stops: every answer closes its connection
    fast_path: FastPathProtocol | None = None
    slots: ClassVar[ConnectionSlots[HttpProtocol]] = ConnectionSlots()
    cycle: Any  # uvicorn's, or a Ticket that stands in its place
    parser: Any  # the head of the current request; uvicorn asks it what it would ask its own parser

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: PatientTimer | None = None
        self._stall: PatientTimer | None = None
        self._head = HeadReader(self.max_header)
        self._body: SizedBody | ChunkedBody | None = None  # the rest of a body that is not complete
        self._pipelined = bytearray()  # what came behind a request that has no answer yet
        self._pipelined_read: asyncio.Handle | None = None  # reads that
        self._since = 0.0
        self._idle_from: float | None = None  # since when nothing came after an answer that went out by the lane
        self._idle_timer: asyncio.TimerHandle | None = None  # looks for how long that is
        self._data = b""  # the read that the current request began with
        self._buffered_body: list[bytes] | None = None  # the body so far of a request that uvicorn has not seen yet
        self._cached_header: tuple[HeaderCache, Any, RequestTemplate] | None = (
            None  # the header of the last one that took the lane
        )
        self._is_full = False  # ends with the answer that is under way
        self.cycle_transport = CycleTransport(self)

    # -- slots --------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        # defence: headers that come slowly
        self._arm(self.header_deadline_s)
        self.slots.enter(self)
        # defence: the number of connections
        while len(self.connections) > self.max_connections:
            others = [each for each in self.connections if isinstance(each, HttpProtocol)]
            # defence: connections that say nothing
            victim = self.slots.victim(self, others)
            if victim is None:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
                break
            victim._free_slot()

    @property
    def is_admitted(self) -> bool:
        if self.is_finished:
            return False
        cycle = self.cycle
        if self._buffered_body is not None or isinstance(cycle, FastRequest):
            return True
        return cycle is not None and cycle.scope["state"].get("principal") is not None

    @property
    def is_idle(self) -> bool:
        """Is there no request, not even half of one that was admitted?"""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and self._buffered_body is None and not self._pipelined and not self.transport.is_closing()

    @property
    def idle_since(self) -> float:
        return self._since

    @property
    def stalled_until(self) -> float | None:
        return None if self._stall is None or self.transport.is_closing() else self._stall.when()

    def _free_slot(self) -> None:
        """Free this slot at once."""
        self.connections.discard(self)
        self.slots.leave(self)
        is_asking = self.cycle is not None and not self.cycle.response_started and not self.is_finished
        if is_asking and self._stall is None:
            self._write_refusal(HTTPStatus.SERVICE_UNAVAILABLE)
            self.finish()
            self.transport.close()
        else:
            self.transport.abort()

    # -- the client reads or does not ---------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        # defence: a client that reads nothing
        self._stall = PatientTimer(self.loop, self.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Close the write side once everything is written; the client's next close, or `linger_s`, ends the rest."""
        if self.is_finished or self.transport.is_closing():
            return
        self.is_finished = True
        self._discard_input()
        self.slots.finish(self)
        cycle = self.cycle
        if cycle is not None and not isinstance(cycle, FastRequest) and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.flow.resume_reading()  # and nothing is kept of it
        if self.transport.can_write_eof():
            # defence: a refusal on its way to a client that sends on
            self.transport.write_eof()
        self._deadline = PatientTimer(self.loop, self.linger_s, self.transport.close)

    def _discard_input(self) -> None:
        self._disarm()
        self._end_idle()
        if self._pipelined_read is not None:
            self._pipelined_read.cancel()
            self._pipelined_read = None
        self._pipelined.clear()
        self._head.data.clear()
        self._body = self._buffered_body = self._cached_header = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard_input()
        self._cancel_stall()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.slots.leave(self)
        if isinstance(self.cycle, FastRequest):
            self.cycle.hand_over()  # what it means that a client leaves is known there
        super().connection_lost(exc)
        # They know each other: what was read would stay until the garbage collector comes.
        self.cycle = None
        self.cycle_transport.detach()

    def close_after_response(self) -> None:
        """The relay stops: the answers that have not begun tell their clients to close."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.response_started:
            cycle.keep_alive = False

    def shutdown(self) -> None:
        """The relay takes no more connections and ends soon. A request that comes on this one is still answered."""
        self._start_regular_path()
        self.close_after_response()
        # defence: idle connections when the relay stops
        self.loop.call_later(self.idle_close_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without a request, unless one came just now."""
        if self.is_finished or self._body is not None or self._head.data or not self.is_idle:
            return
        # defence: the end of an idle connection after a suspension
        if _has_unread(self.transport):
            self.timeout_keep_alive_task = self.loop.call_later(RECHECK_S, self.timeout_keep_alive_handler)
        else:
            self.finish()

    # -- requests -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._cached_header is not None and self._try_cached_header(data):
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
        """RFC 9112, 9.3.2: a client should not send what changes something before the last answer is there."""
        if not self._is_full:
            self._pipelined += data
        # defence: requests sent ahead
        if len(self._pipelined) > self.max_ahead:
            self._is_full = True
            self._pipelined.clear()
            self.flow.pause_reading()

    def _read(self, data: bytes) -> None:
        """Not beyond the end of one request."""
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
        except httptools.HttpParserError:  # of the address, which uvicorn takes apart
            self._refuse(HTTPStatus.BAD_REQUEST)
        finally:
            self._data = b""

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        self._disarm()
        self.slots.enter(self)
        super().on_message_begin()
        self.parser = head
        self.url = head.target
        self.headers += head.fields
        self.expect_100_continue = head.expects_continue
        if head.names_another_host():
            raise FramingError(HTTPStatus.MISDIRECTED_REQUEST)
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
        """Make uvicorn's cycle, and run the application."""
        super().on_headers_complete()
        self.cycle.transport = self.cycle_transport
        if self.is_stopping:
            self.cycle.keep_alive = False

    def _upgrade(self, head: RequestHead, rest: bytes) -> None:
        """RFC 6455, 4.1: a GET without a body, and nothing before the answer."""
        if head.method != b"GET" or head.get_http_version() != "1.1" or head.has_body or rest:
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
            if (
                self._buffered_body is not None
                and self.fast_path is not None
                and not self.fast_path.would_admit(self.url, self.headers)
            ):
                self._start_regular_path()  # a client that is not let in is told so before the body has come
            # defence: bodies that come slowly
            self._arm(self.body_deadline_s)

    def _end(self, rest: bytes) -> None:
        """The request is complete; `rest` came behind it."""
        self._since = self.loop.time()
        self._disarm()
        if rest:
            self._keep_pipelined(rest)
        if self._buffered_body is not None and self._try_fast_path():
            return
        was_answered = self.cycle.response_complete
        super().on_message_complete()
        if was_answered:
            self._next_request()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.cycle is not None and self.cycle.response_complete and not isinstance(self.cycle, FastRequest):
            # defence: bodies that nobody reads
            self.cycle.body = b""  # the answer came before the body was read, so it is never read
        if self.is_finished or self.transport.is_closing():
            return
        if self._body is None or self._is_full:
            self._next_request()
        else:
            self.flow.resume_reading()

    def _next_request(self) -> None:
        """The request was read and answered."""
        if self._is_full:
            self.finish()
            return
        self.flow.resume_reading()
        if not self._pipelined:
            self._end_idle()
            wait_s = self.idle_close_s if self.is_stopping else self.timeout_keep_alive
            self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)
        elif self._pipelined_read is None:
            self._pipelined_read = self.loop.call_soon(
                self._read_pipelined
            )  # other connections have their turn in between

    def _read_pipelined(self) -> None:
        self._pipelined_read = None
        if self._is_full:
            self.finish()
            return
        data = bytes(self._pipelined)
        self._pipelined.clear()
        self._end_idle()
        self._read(data)

    # -- the fast lane ------------------------------------------------------------------------------------------------

    def _may_be_buffered(self, head: RequestHead) -> bool:
        """Whole and of a size that is known: all others go the ordinary way."""
        if self.fast_path is None or head.method != b"POST" or self.expect_100_continue or head.target[:1] != b"/":
            return False
        return 0 < head.body_length <= MAX_BUFFERED_BODY and head.get_http_version() == "1.1"

    def _try_fast_path(self) -> bool:
        assert self._buffered_body is not None and self.fast_path is not None
        body = b"".join(self._buffered_body)
        taken = self.fast_path.take(self.url, self.headers, body)
        if taken is None:
            self._start_regular_path()
            return False
        self._buffered_body = None
        started, known = taken
        # An answer leaves when it is written: whoever waits for it has the next call ready while others are answered.
        self.transport.set_write_buffer_limits(high=0)
        template, keep_alive = RequestTemplate(self), self.parser.should_keep_alive() and not self.is_stopping
        header = header_cache_of(self._data) if keep_alive else None
        self._cached_header = None if header is None else (header, known, template)
        self.cycle = request = FastRequest(self, self.fast_path, started, body, template, keep_alive=keep_alive)
        request.wait()
        return True

    def _try_cached_header(self, data: bytes) -> bool:
        """A whole request after one that was answered, with the same header: the parser need not see it."""
        assert self._cached_header is not None and self.fast_path is not None
        header, known, template = self._cached_header
        if not self.cycle.response_complete or self._body is not None or self._pipelined or self._head.data:
            return False
        if self.is_stopping or self.is_finished or self.transport.is_closing():
            return False
        body = header.body(data)
        if body is None or len(body) > MAX_BUFFERED_BODY:
            return False
        started = self.fast_path.take_again(known, body)
        if started is None:
            return False
        self._end_idle()
        self._since = self.loop.time()
        self.cycle = request = FastRequest(self, self.fast_path, started, body, template, keep_alive=True)
        request.wait()
        return True

    def fast_response_written(self) -> None:
        """An answer went out by the lane, and nothing else is to be done: `on_response_complete` without a timer for
        each answer, which takes longer than the rest of it. One that is there already looks again when it is due."""
        is_busy = self._is_full or self._pipelined or self.flow.read_paused or self._deadline is not None
        if is_busy or self.transport.is_closing():
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self._idle_from = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self._idle_from is None:
            return  # the next answer that goes out by the lane begins anew
        left_s = self._idle_from + self.timeout_keep_alive - self.loop.time()
        if left_s > EARLY_S:
            self._idle_timer = self.loop.call_later(left_s, self._check_idle)
        else:
            self.timeout_keep_alive_handler()

    def _end_idle(self) -> None:
        """It asks again, or is gone. Its last answer may have gone out either way."""
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._idle_from = None

    def _start_regular_path(self) -> None:
        """What was held goes the ordinary way."""
        buffered, self._buffered_body = self._buffered_body, None
        if buffered is not None:
            self._start()
            for piece in buffered:
                super().on_body(piece)

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _arm(self, wait_s: float) -> None:
        self._disarm()
        self._deadline = PatientTimer(self.loop, wait_s, self._deadline_passed)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _deadline_passed(self) -> None:
        self._deadline = None
        if self._head.data or self._body is not None:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.finish()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer the request that is being read, unless its answer has begun, and close the connection."""
        is_begun = self._body is not None and self._buffered_body is None and self.cycle.response_started
        if not is_begun and not self.is_finished and not self.transport.is_closing():
            self._write_refusal(status)
        self.finish()

    def _write_refusal(self, status: HTTPStatus) -> None:
        text = f"{status.phrase}.\n".encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        head += "retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
        head += f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + text)


def _has_unread(transport: asyncio.Transport) -> bool:
    """Did bytes come, or the end, that the event loop has not read yet?"""
    sock = transport.get_extra_info("socket")
    return sock is not None and has_unread(sock.fileno())
