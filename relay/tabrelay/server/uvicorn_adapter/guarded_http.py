"""HTTP connection on uvicorn's own class, for a uvicorn whose private API is not the one that the relay knows.

A guard is between the transport and uvicorn's object, and both see only asyncio's public interface. It has the
limits of `http_connection` and `http_protocol`: bytes and time of a request, requests sent ahead, connections,
clients that do not read. `request_framing` reads requests, and uvicorn gets one at a time, written anew from what was
read, so that both read the same. There is no fast path.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.types import Message, Receive, Scope, Send

from tabrelay.http.request_framing import ChunkedBody, FramingError, HeadReader, RequestHead, SizedBody
from tabrelay.server.connection_slots import ConnectionSlots
from tabrelay.server.uvicorn_adapter.guarded_app import GUARD
from tabrelay.server.uvicorn_adapter.guarded_transport import GuardedTransport
from tabrelay.server.uvicorn_adapter.refusals import refusal
from tabrelay.system.patient_timer import PatientTimer


class GuardedHttp(asyncio.Protocol):
    """One connection. The limits hold for the process, so they are class attributes."""

    library_class: ClassVar[Any]
    max_header = 64 * 1024
    max_ahead = 16 * 1024
    header_deadline_s = 10.0
    body_deadline_s = 30.0
    idle_s = 5.0
    max_connections = 1024
    stall_s = 30.0
    linger_s = 1.0
    is_stopping = False
    slots: ClassVar[ConnectionSlots[GuardedHttp]] = ConnectionSlots()
    connections: ClassVar[set[GuardedHttp]] = set()

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        self._loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        state = {**app_state, GUARD: self}
        # uvicorn's connection; after an upgrade, that of the WebSocket.
        self._library: Any = self.library_class(config=config, server_state=server_state, app_state=state, _loop=_loop)
        self._is_upgraded = False
        self._deadline: PatientTimer | None = None
        self._stall: PatientTimer | None = None
        self._head = HeadReader(self.max_header)
        self._body: SizedBody | ChunkedBody | None = None
        self._pipelined = bytearray()
        self._is_full = False  # the connection ends with the current response
        self._is_answered = True  # no request waits for its response
        self._is_started = False  # the response to the current request
        self._scope: Scope | None = None  # of the current or last request
        self.is_finished = False
        self.idle_since = self._loop.time()

    # -- slots --------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._library_transport = GuardedTransport(transport, self)
        self._library.connection_made(self._library_transport)
        self._arm(self.header_deadline_s)
        self.connections.add(self)
        self.slots.enter(self)
        while len(self.connections) > self.max_connections:
            victim = self.slots.victim(self, [each for each in self.connections if not each._is_upgraded])
            if victim is None:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
                break
            victim._free_slot()

    @property
    def is_admitted(self) -> bool:
        if self.is_finished or self._scope is None:
            return False
        return self._scope["state"].get("principal") is not None

    @property
    def is_idle(self) -> bool:
        is_reading = self._body is not None or self._pipelined
        return self._is_answered and not is_reading and not self._transport.is_closing()

    @property
    def stalled_until(self) -> float | None:
        return None if self._stall is None or self._transport.is_closing() else self._stall.when()

    def _free_slot(self) -> None:
        self.connections.discard(self)
        self.slots.leave(self)
        if not self._is_answered and not self._is_started and not self.is_finished and self._stall is None:
            self._transport.write(refusal(HTTPStatus.SERVICE_UNAVAILABLE))
            self.finish()
            self._transport.close()
        else:
            self._transport.abort()

    # -- reading ------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_upgraded:
            self._library.data_received(data)
        elif self.is_finished:
            return
        elif self._pipelined or self._is_full or (self._body is None and not self._is_answered):
            self._keep_pipelined(data)
        else:
            self._read(data)

    def eof_received(self) -> bool | None:
        return self._library.eof_received() if self._is_upgraded else None

    def _keep_pipelined(self, data: bytes) -> None:
        self._pipelined += data
        if len(self._pipelined) > self.max_ahead:
            self._is_full = True
            self._pipelined.clear()
            self._library_transport.hold()

    def _read(self, data: bytes) -> None:
        """Read up to the end of one request."""
        try:
            if self._body is not None:
                self._read_body(data)
                return
            if not self._head.data:
                self._arm(self.header_deadline_s)
            found = self._head.feed(data)
            if found is not None:
                self._begin(*found)
        except FramingError as error:
            self._refuse(error.status)

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        self._disarm()
        self.slots.enter(self)
        self._is_answered = self._is_started = False
        self._scope = None
        if head.wants_websocket:
            if head.method != b"GET" or head.version != "1.1" or head.has_body or rest:
                raise FramingError
            self._discard_input()
            self.slots.leave(self)
            self._library.data_received(_written(head))
            return
        self._library.data_received(_written(head))
        if head.has_body:
            self._body = ChunkedBody(self.max_header) if head.is_chunked else SizedBody(head.body_length)
            self._read_body(rest)
        else:
            self._end(rest)

    def _read_body(self, data: bytes) -> None:
        body = self._body
        assert body is not None
        piece, rest = body.feed(data)
        is_chunked = isinstance(body, ChunkedBody)
        if piece:
            self._library.data_received(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
        if not body.is_complete:
            if self._deadline is None and not self.is_finished:
                self._arm(self.body_deadline_s)
            return
        if is_chunked:
            self._library.data_received(b"0\r\n\r\n")
        self._body = None
        self._end(rest)

    def _end(self, rest: bytes) -> None:
        """The request is complete; `rest` arrived behind it."""
        self.idle_since = self._loop.time()
        if self.is_finished:
            return
        self._disarm()
        if rest and self._is_answered:
            self._pipelined += rest  # not sent ahead: the response came before the end of the body
        elif rest:
            self._keep_pipelined(rest)
        if self._is_answered:
            self._next_request()

    # -- the application ----------------------------------------------------------------------------------------------

    def watch(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        self._scope = scope

        async def watched(message: Message) -> None:
            is_start = message["type"] == "http.response.start"
            if is_start:
                self._is_started = True
            if is_start and self.is_stopping:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self._answered()

        return receive, watched

    def _answered(self) -> None:
        self._is_answered = True
        if not self.is_finished and not self._transport.is_closing() and (self._body is None or self._is_full):
            self._next_request()

    def _next_request(self) -> None:
        if self._is_full:
            self.finish()
        elif self._pipelined:
            self._loop.call_soon(self._read_pipelined)  # not at once: other connections are served in between
        else:
            self._arm(self.idle_s)

    def _read_pipelined(self) -> None:
        data = bytes(self._pipelined)
        self._pipelined.clear()
        if self._is_full:
            self.finish()
        elif data and not self.is_finished:
            self._read(data)

    # -- deadlines, refusals, close -----------------------------------------------------------------------------------

    def _arm(self, wait_s: float) -> None:
        self._disarm()
        self._deadline = PatientTimer(self._loop, wait_s, self._deadline_passed)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _deadline_passed(self) -> None:
        if self._head.data or self._body is not None:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.finish()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer the request that is being read, unless its response has started, and close the connection."""
        is_started = self._body is not None and self._is_started
        if not is_started and not self.is_finished and not self._transport.is_closing():
            self._transport.write(refusal(status))
        self.finish()

    def pause_writing(self) -> None:
        self._library.pause_writing()
        if not self._is_upgraded:
            self._stall = PatientTimer(self._loop, self.stall_s, self._transport.abort)

    def resume_writing(self) -> None:
        self._library.resume_writing()
        self._cancel_stall()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def finish(self) -> None:
        """Close the write side once all is written. The rest ends when the client closes, or after `linger_s`."""
        if self.is_finished or self._transport.is_closing():
            return
        self.is_finished = True
        self._discard_input()
        self.slots.finish(self)
        self._library.connection_lost(None)
        self._library_transport.release()  # what arrives is dropped
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._deadline = PatientTimer(self._loop, self.linger_s, self._transport.close)

    def _discard_input(self) -> None:
        self._disarm()
        self._pipelined.clear()
        self._head.data.clear()
        self._body = None

    def upgrade(self, protocol: Any) -> None:
        """uvicorn has another object for the rest of this connection."""
        self._is_upgraded = True
        self._library = protocol

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard_input()
        self._cancel_stall()
        self.slots.leave(self)
        self.connections.discard(self)
        if not self.is_finished:
            self._library.connection_lost(exc)
        self._library = self._scope = None  # break the reference cycles


def _written(head: RequestHead) -> bytes:
    """The head for uvicorn. It does not see an upgrade to other protocols than WebSocket, and ignores it as such."""
    left_out = () if head.wants_websocket else (b"upgrade", b"http2-settings")
    lines = [b"%b: %b\r\n" % field for field in head.fields if field[0] not in left_out]
    start = b"%b %b HTTP/%b\r\n" % (head.method, head.target, head.version.encode())
    return b"".join([start, *lines, b"\r\n"])
