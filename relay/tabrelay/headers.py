"""HTTP connections with limits: bytes and time of a request's header, time of its body, and how many there may be.

uvicorn's httptools protocol has none of them: it takes headers of any size, and keeps a connection that says nothing,
half a header, or a body byte by byte, for ever. It also loses the body of a request that would rather speak another
protocol, as Java's HTTP client says with every first one; here such a wish is passed over. How large a body may be is
decided where it is read; what a request means is not known here.

A POST with a small body is kept until it is complete, and then offered to the fast lane (`ticket`); what that does not
take, uvicorn gets as if it had come just now. The next one with the same header is not parsed at all (`stencil`).
"""

from __future__ import annotations

import asyncio
import http
import sys
from typing import Any

import httptools

from tabrelay.patient_timer import TURN_S, PatientTimer
from tabrelay.stencil import Stencil, cut
from tabrelay.ticker import EARLY_S
from tabrelay.ticket import Letter, Road, Street, Ticket

MOST_HELD = 64 * 1024  # bytes of a body that waits here; uvicorn has room for as many


class HeaderTooLarge(Exception):
    """Stops the parser; the connection is answered with 431."""


class Misdirected(Exception):
    """Stops the parser; the connection is answered with 421."""


class LimitedHttp(Street):
    """One connection. The limits are the process's, so they stand on the class."""

    max_header = 64 * 1024
    header_deadline_s = 10.0
    body_deadline_s = 30.0
    max_connections = 1024
    stall_s = 30.0  # a client that takes nothing of its answer for this long is gone, whatever its connection says
    lane: Road | None = None
    cycle: Any  # uvicorn's, or a Ticket that stands in its place

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: PatientTimer | None = None
        self._stall: PatientTimer | None = None
        self._is_waiting = True  # for a header to be complete
        self._header_bytes = 0  # of a header that came in several pieces: an upper bound
        self._has_body_to_come = False
        self._since = 0.0
        self._rested: float | None = None  # since when nothing came after an answer that went out by the lane
        self._nap: asyncio.TimerHandle | None = None  # looks for how long that is
        self._status = http.HTTPStatus.BAD_REQUEST
        self._data = b""  # what is being parsed
        self._is_new = False  # did the request begin with that?
        self._running: Any = None  # what is being answered; `cycle` may be of a request behind it
        self._ahead = 0  # bytes that came behind that
        self._is_read_again = False
        self._held: list[bytes] | None = None  # the body so far of a request that uvicorn has not seen yet
        self._known: tuple[Stencil, Any, Letter] | None = None  # the header of the last one that took the lane
        self._is_full = False  # ends with the answer that is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._arm(self.header_deadline_s)
        if len(self.connections) > self.max_connections and not self._make_room():
            self._refuse(http.HTTPStatus.SERVICE_UNAVAILABLE)

    def _make_room(self) -> bool:
        """Whoever waits longest without having asked for anything goes, then whoever takes nothing of its answer for
        longest: so many of either keep nobody out."""
        others = [each for each in self.connections if isinstance(each, LimitedHttp) and each is not self]
        idle = [each for each in others if each._is_idle]
        deaf = [each for each in others if each._stall is not None and not each.transport.is_closing()]
        if not idle and not deaf:
            return False
        oldest = min(idle or deaf, key=lambda each: each._since if idle or each._stall is None else each._stall.when())
        oldest._disarm()
        oldest.transport.abort()
        return True

    @property
    def _is_idle(self) -> bool:
        is_done = self._held is None and (self.cycle is None or self.cycle.response_complete)
        return is_done and not self.pipeline and not self.transport.is_closing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = PatientTimer(self.loop, self.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._flows()

    def _flows(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._flows()
        self._stir()
        if self._nap is not None:
            self._nap.cancel()
        # uvicorn would begin the requests that wait behind the one that ends now, with nobody to answer.
        self.pipeline.clear()
        self._held = None
        if isinstance(self._running, Ticket):
            self._running.hand_over()  # what it means that a client leaves is known there
        running, self._running = self._running, None
        super().connection_lost(exc)
        if running is not None and not running.response_complete:
            # uvicorn tells only the last of several requests.
            running.disconnected = True
            running.message_event.set()
        self.cycle = None  # they know each other: what it read would stay until the garbage collector comes

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        if self.cycle is not None and self.cycle.response_complete and not isinstance(self.cycle, Ticket):
            self.cycle.body = b""  # of a request that was answered before it was read: nobody will, and nobody counts
        if self._is_full:
            self.transport.close()
            return
        if self._deadline is not None:  # the time of what came behind it begins now
            self._arm(self.body_deadline_s if self._has_body_to_come else self.header_deadline_s)
        self._ahead = self._ahead if self.pipeline else 0
        super().on_response_complete()

    def _is_too_far_ahead(self) -> bool:
        """RFC 9112, 9.3.2: a client should not send what changes something before the last answer is there. uvicorn
        keeps whatever came with one read."""
        return bool(self.pipeline) and sum(len(cycle.body) for cycle, _ in self.pipeline) > MOST_HELD

    def data_received(self, data: bytes) -> None:
        if self._is_full or (self._known is not None and self._take_lane_again(data)):
            return
        self._stir()
        self._header_bytes += len(data)
        self._ahead += len(data) if self._is_behind else 0
        self._data = data
        super().data_received(data)
        self._data, self._is_new = b"", False
        if self._is_too_far_ahead():
            self._is_full = True
            self.pipeline.clear()
            self._disarm()
            return
        if self.pipeline and self.flow.read_paused and self._ahead <= MOST_HELD:
            self.flow.resume_reading()  # uvicorn would not notice that the client leaves
        if not self._is_waiting:
            self._header_bytes = 0
            if self._has_body_to_come and self._deadline is None:
                if self._held is not None and self.lane is not None and not self.lane.knows(self.url, self.headers):
                    self._let_go()  # whoever is not let in is told so before the body has come
                self._arm(self.body_deadline_s)
        elif self._header_bytes > self.max_header:
            self._refuse(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._deadline is None and not self.transport.is_closing():
            self._arm(self.header_deadline_s)

    def on_message_complete(self) -> None:
        if self._is_read_again:
            return
        self._has_body_to_come = False
        self._since = self.loop.time()
        self._disarm()
        if self._held is None or not self._take_lane():
            super().on_message_complete()

    def _take_lane(self) -> bool:
        assert self._held is not None and self.lane is not None
        body = b"".join(self._held)
        taken = self.lane.take(self.url, self.headers, body)
        if taken is None:
            self._let_go()
            return False
        self._held = None
        begun, known = taken
        # An answer leaves when it is written: whoever waits for it has the next call ready while others are answered.
        self.transport.set_write_buffer_limits(high=0)
        letter, keep_alive = Letter(self), self.parser.should_keep_alive()
        stencil = cut(self._data) if keep_alive and self._is_new else None
        self._known = None if stencil is None else (stencil, known, letter)
        self.cycle = self._running = ticket = Ticket(self, self.lane, begun, body, letter, keep_alive=keep_alive)
        ticket.wait()
        return True

    def _take_lane_again(self, data: bytes) -> bool:
        """A whole request after one that was answered, with the same header: the parser need not see it."""
        assert self._known is not None and self.lane is not None
        stencil, known, letter = self._known
        if self._is_waiting or self._has_body_to_come or not self._is_idle:
            return False
        body = stencil.body(data)
        if body is None or len(body) > MOST_HELD:
            return False
        begun = self.lane.take_again(known, body)
        if begun is None:
            return False
        self._stir()
        self._since = self.loop.time()
        self.cycle = self._running = ticket = Ticket(self, self.lane, begun, body, letter, keep_alive=True)
        ticket.wait()
        return True

    def rest(self) -> None:
        """An answer went out by the lane, and nothing else is to be done: `on_response_complete` without a timer for
        each answer, which takes longer than the rest of it. One that is there already looks again when it is due."""
        is_busy = self._is_full or self.pipeline or self.flow.read_paused or self._deadline is not None
        if is_busy or self.transport.is_closing():
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self._rested = self.loop.time()
        if self._nap is None:
            self._nap = self.loop.call_later(self.timeout_keep_alive, self._wake)

    def _wake(self) -> None:
        self._nap = None
        if self._rested is None:
            return  # the next answer that goes out by the lane begins anew
        left_s = self._rested + self.timeout_keep_alive - self.loop.time()
        if left_s > EARLY_S:
            self._nap = self.loop.call_later(left_s, self._wake)
        else:
            self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """An idle connection ends. A request that came while this process was suspended is read before that."""
        self.timeout_keep_alive_task = self.loop.call_later(TURN_S, super().timeout_keep_alive_handler)

    def _stir(self) -> None:
        """It asks again, or is gone. Its last answer may have gone out either way."""
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._rested = None

    def _let_go(self) -> None:
        """What was held goes the ordinary way."""
        held, self._held = self._held, None
        if held is not None:
            super().on_headers_complete()
            for piece in held:
                super().on_body(piece)

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
        else:
            self._held.append(body)

    def shutdown(self) -> None:
        self._let_go()
        super().shutdown()

    def on_message_begin(self) -> None:
        self._is_waiting = True
        self._is_new = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_read_again = self._wants_another_protocol
        if self._is_read_again:
            return
        self._is_waiting = False
        self._disarm()
        # One piece may hold a whole request, so its size alone says nothing about the header.
        if self._header_bytes > self.max_header and self._size() > self.max_header:
            self._status = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise HeaderTooLarge
        if self.url[:1] != b"/" and self._names_another_host():
            self._status = http.HTTPStatus.MISDIRECTED_REQUEST
            raise Misdirected
        self._has_body_to_come = not self.parser.should_upgrade()
        if self._may_be_held:
            self._held = []
        else:
            super().on_headers_complete()

    @property
    def _may_be_held(self) -> bool:
        """Only the first of several requests, whole and of a size that is known: all others go the ordinary way."""
        if self.lane is None or self.parser.get_method() != b"POST" or self.expect_100_continue:
            return False
        if self.url[:1] != b"/":  # which the lane would not take
            return False
        if not self._has_body_to_come or (self.cycle is not None and not self.cycle.response_complete):
            return False
        size = dict(self.headers).get(b"content-length", b"")
        return size.isdigit() and int(size) <= MOST_HELD and self.parser.get_http_version() == "1.1"

    def _names_another_host(self) -> bool:
        """RFC 9112, 3.2.2: a whole address in the request line counts, and not Host. uvicorn looks at neither."""
        _, found, rest = self.url.partition(b"://")
        authority = rest.partition(b"/")[0].partition(b"?")[0].lower()
        hosts = [value.strip(b" \t").lower() for name, value in self.headers if name == b"host"]
        return bool(found) and hosts != [authority]

    @property
    def _wants_another_protocol(self) -> bool:
        is_upgrade = self.parser.should_upgrade() and not self._should_upgrade()
        return is_upgrade and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Called when the parser has stopped after such a header. RFC 9110, 7.8: a server may ignore the wish, so the
        request is read again without it."""
        stopped = sys.exc_info()[1]
        if not self._is_read_again or not isinstance(stopped, httptools.HttpParserUpgrade):
            return
        headers = [pair for pair in self.headers if pair[0] not in (b"connection", b"upgrade", b"http2-settings")]
        named = b",".join(value for name, value in self.headers if name == b"connection").split(b",")
        kept = [token for token in named if token.strip().lower() not in (b"upgrade", b"http2-settings", b"")]
        headers += [(b"connection", b",".join(kept))] if kept else []
        version = self.parser.get_http_version().encode()
        lines = [b" ".join([self.parser.get_method(), self.url, b"HTTP/" + version])]
        lines += [name + b": " + value for name, value in headers]
        rest = self._data[stopped.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        super().data_received(b"\r\n".join([*lines, b"", b""]) + rest)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls when the parser gave up; here the reason may be another one than bad syntax."""
        if self._status is http.HTTPStatus.BAD_REQUEST:
            super().send_400_response(msg)
        else:
            self._refuse(self._status)

    def _arm(self, wait_s: float) -> None:
        self._disarm()
        self._deadline = PatientTimer(self.loop, wait_s, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def _is_behind(self) -> bool:
        """Does what is being read come behind a request that has no answer yet?"""
        running = self._running
        return running is not None and not running.response_complete and (self._is_waiting or running is not self.cycle)

    def _too_late(self) -> None:
        self._deadline = None
        if self._is_behind:
            # An answer now would be taken for that of the one before; and it may be us who do not read on.
            self._arm(self.header_deadline_s)
            return
        is_held = self._held is not None
        is_asking = self._header_bytes or is_held or (self.cycle is not None and not self.cycle.response_started)
        if is_asking:
            self._refuse(http.HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _refuse(self, status: http.HTTPStatus) -> None:
        self._disarm()
        if self.transport.is_closing():
            return
        text = f"{status.phrase}.\n".encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        head += f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + text)
        self.transport.close()
