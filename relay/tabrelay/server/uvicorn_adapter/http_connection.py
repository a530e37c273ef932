"""Lifecycle of an HTTP connection on uvicorn's httptools protocol: slot, deadlines, idle time, refusal, close.

A connection is closed in two steps: the write side first, the rest when the client has closed too or after `linger_s`,
so that no reset destroys a response that the client has not read. Which connection is closed when all slots are taken
is decided in `connection_slots`. Requests are read in `http_protocol`.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from tabrelay.admission.gate import Admission
from tabrelay.http.request_framing import ChunkedBody, HeadReader, SizedBody
from tabrelay.routing.deadline_queue import EARLY_S
from tabrelay.server.connection_slots import ConnectionSlots
from tabrelay.server.fast_path import FastPath
from tabrelay.server.listener_close import has_unread
from tabrelay.server.uvicorn_adapter.fast_request import (
    CycleTransport,
    FastConnection,
    FastRequest,
    KnownRequest,
)
from tabrelay.server.uvicorn_adapter.refusals import refusal
from tabrelay.system.patient_timer import PatientTimer

RECHECK_S = 0.05


class HttpConnection(FastConnection):
    """One connection. The limits hold for the process, so they are class attributes."""

    max_header = 64 * 1024
    max_ahead = 16 * 1024
    header_deadline_s = 10.0
    body_deadline_s = 30.0
    max_connections = 1024
    stall_s = 30.0  # a client that reads nothing of its response for this long is gone, whatever TCP reports
    linger_s = 1.0
    idle_close_s = 0.3  # when the relay stops, a connection without a request is kept this long
    is_stopping = False  # the relay stops: every response closes its connection
    fast_path: FastPath | None = None
    slots: ClassVar[ConnectionSlots[HttpConnection]] = ConnectionSlots()
    cycle: Any  # uvicorn's cycle, or a FastRequest in its place
    parser: Any  # the head of the current request; uvicorn asks it what it would ask its own parser

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_finished = False
        self._deadline: PatientTimer | None = None
        self._stall: PatientTimer | None = None
        self._head = HeadReader(self.max_header)
        self._body: SizedBody | ChunkedBody | None = None  # reads the rest of a body that is not complete
        self._pipelined = bytearray()  # what arrived behind a request that has no response yet
        self._pipelined_read: asyncio.Handle | None = None  # reads that
        self._since = 0.0
        self._idle_from: float | None = None  # when the last fast response was written, if nothing arrived since
        self._idle_timer: asyncio.TimerHandle | None = None  # checks how long ago that was
        self._data = b""  # the read that the current request began with
        self._buffered_body: list[bytes] | None = None  # the body so far of a request that uvicorn has not seen yet
        # The last request that was decided here.
        self._known: KnownRequest | None = None
        self._admission: Admission | None = None  # of a request whose body is not complete
        self._is_full = False  # the connection ends with the current response
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
            others = [each for each in self.connections if isinstance(each, HttpConnection)]
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
        """Is there no request, not even a part of one that was admitted?"""
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
            self.transport.write(refusal(HTTPStatus.SERVICE_UNAVAILABLE))
            self.finish()
            self.transport.close()
        else:
            self.transport.abort()

    # -- clients that do not read -------------------------------------------------------------------------------------

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

    # -- idle time ----------------------------------------------------------------------------------------------------

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without a request, unless one has just arrived."""
        if self.is_finished or self._body is not None or self._head.data or not self.is_idle:
            return
        # defence: the end of an idle connection after a suspension
        if _has_unread(self.transport):
            self.timeout_keep_alive_task = self.loop.call_later(RECHECK_S, self.timeout_keep_alive_handler)
        else:
            self.finish()

    def fast_response_written(self) -> None:
        """`on_response_complete` for the fast path. It sets no timer per response, which would take longer than all the
        rest: one timer stays, and checks again when it is due."""
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
            return  # the next fast response starts the timer again
        left_s = self._idle_from + self.timeout_keep_alive - self.loop.time()
        if left_s > EARLY_S:
            self._idle_timer = self.loop.call_later(left_s, self._check_idle)
        else:
            self.timeout_keep_alive_handler()

    def _end_idle(self) -> None:
        """A request arrived, or the connection is lost. The last response may have taken either path."""
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._idle_from = None

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
        """Answer the request that is being read, unless its response has started, and close the connection."""
        is_started = self._body is not None and self._buffered_body is None and self.cycle.response_started
        if not is_started and not self.is_finished and not self.transport.is_closing():
            self.transport.write(refusal(status))
        self.finish()

    # -- close --------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Close the write side once all is written. The rest ends when the client closes, or after `linger_s`."""
        if self.is_finished or self.transport.is_closing():
            return
        self.is_finished = True
        self._discard_input()
        self.slots.finish(self)
        cycle = self.cycle
        if cycle is not None and not isinstance(cycle, FastRequest) and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.flow.resume_reading()  # what arrives is dropped
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
        self._body = self._buffered_body = self._known = self._admission = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard_input()
        self._cancel_stall()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.slots.leave(self)
        if isinstance(self.cycle, FastRequest):
            self.cycle.hand_over()  # the regular path handles clients that disconnect
        super().connection_lost(exc)
        # Break the reference cycle: what was read would stay until the garbage collector runs.
        self.cycle = None
        self.cycle_transport.detach()

    def close_after_response(self) -> None:
        """The relay stops: a response that has not started will close the connection."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.response_started:
            cycle.keep_alive = False
        if self._known is not None:
            self._known.header_cache = None


def _has_unread(transport: asyncio.Transport) -> bool:
    """Are there bytes, or the end of the stream, that the event loop has not read yet?"""
    sock = transport.get_extra_info("socket")
    return sock is not None and has_unread(sock.fileno())
