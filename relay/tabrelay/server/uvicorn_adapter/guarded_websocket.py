"""WebSocket connection on uvicorn's own class, for libraries whose private API is not the one that the relay knows.

A guard is between the transport and uvicorn's object, and both see only asyncio's public interface. It has the
limits of `websocket_connection` and `websocket_protocol`: handshakes, fragments, frames per callback, and bytes that
are not complete or not read, of all connections together. It reads headers of frames only; uvicorn and the websockets
library read the frames. All messages go by ASGI.
"""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, ClassVar, Final

from starlette.types import Message, Receive, Scope, Send

from tabrelay.server.accept_limiter import HandshakeLimiter
from tabrelay.server.uvicorn_adapter.frame_header import frame_bounds
from tabrelay.server.uvicorn_adapter.guarded_app import GUARD
from tabrelay.server.uvicorn_adapter.guarded_transport import SocketTransport
from tabrelay.server.uvicorn_adapter.refusals import refusal
from tabrelay.server.uvicorn_adapter.websocket_buffers import BufferedBytes
from tabserver.wire.frames import CLOSE_SLOW

MAX_FRAGMENTS: Final = 1024
FRAGMENT_OVERHEAD: Final = 64
SMALL_MESSAGE: Final = 16 * 1024
FRAMES_PER_CALLBACK: Final = 128
TOO_LARGE: Final = 1009  # RFC 6455, 7.4.1
CLOSE_FRAME: Final = 0x88
CONTROL: Final = 0x08  # bit of the opcodes of control frames
LAST: Final = 0x80  # bit of the last frame of a message
LONGEST_HEADER: Final = 14


class GuardedWebSocket(asyncio.Protocol):
    """One connection. The limits hold for the process, so they are class attributes."""

    library_class: ClassVar[Any]
    abort_after_s = 1.0
    budget = 64 * 1024 * 1024
    max_handshakes = 128
    buffered: ClassVar[BufferedBytes[GuardedWebSocket]] = BufferedBytes()

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        self._loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        state = {**app_state, GUARD: self}
        self._library: Any = self.library_class(config=config, server_state=server_state, app_state=state, _loop=_loop)
        self._has_request = False
        self._is_begun = False  # the application knows this connection
        self._is_answered = False  # the handshake
        self._is_refused = False
        self._is_writable = True
        self._partial = b""  # of a frame's header
        self._missing = 0  # bytes to come of the current frame
        self._opening = 0  # first byte of the current frame
        self._fragments = 0
        self._unfinished = 0  # bytes so far of the current message
        self._queued: deque[int] = deque()  # sizes of messages that the application has not read
        self._backlog = b""  # was read, and waits for a later callback
        self._backlog_read: asyncio.Handle | None = None  # reads the backlog

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._library_transport = SocketTransport(
            transport, on_write=self._answered, on_resume=self._read_soon, on_close=self._close
        )
        self._library.connection_made(self._library_transport)

    # -- handshake ----------------------------------------------------------------------------------------------------

    def _start_handshake(self, request: bytes) -> None:
        self._has_request = True
        limiter = HandshakeLimiter.of(self._loop)

        def start() -> None:
            if not self._transport.is_closing():
                self._library_transport.reading.resume("guard")
                self._library.data_received(request)
                self._loop.call_soon(self._check_handshake)  # after the first step of the application's task

        if limiter.waiting >= self.max_handshakes:
            self._refuse_handshake(HTTPStatus.SERVICE_UNAVAILABLE)
        elif not limiter.admit(start):
            self._library_transport.reading.pause("guard")

    def _check_handshake(self) -> None:
        """For a request whose header the websockets library finds too large, uvicorn neither answers nor closes."""
        if not self._is_begun and not self._is_answered:
            self._refuse_handshake(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _refuse_handshake(self, status: HTTPStatus) -> None:
        self._is_refused = True
        self._transport.write(refusal(status))
        self._close()

    def _answered(self) -> None:
        self._is_answered = True

    # -- receiving ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if not self._has_request:
            self._start_handshake(data)
            return
        if not self._is_answered:  # RFC 6455, 4.1: a client sends nothing before the handshake is complete
            self._transport.abort()
            return
        self._backlog += data
        if self._backlog_read is None:
            self._read_backlog()

    def _read_backlog(self) -> None:
        """Pass on some frames. The rest waits for another callback, and until uvicorn wants to read."""
        self._backlog_read = None
        if self._is_refused or self._transport.is_closing() or not self._backlog:
            return
        reading = self._library_transport.reading
        if not reading.is_paused_by("library"):
            end = self._read_headers(self._backlog)
            data, self._backlog = self._backlog[:end], self._backlog[end:]
            if not self._is_refused:
                self._library.data_received(data)
        if not self._backlog:
            reading.resume("guard")
        else:
            reading.pause("guard")
            if not reading.is_paused_by("library"):
                self._read_soon()
        self._update_buffered()

    def _read_soon(self) -> None:
        if self._backlog and self._backlog_read is None:
            self._backlog_read = self._loop.call_soon(self._read_backlog)

    def _read_headers(self, data: bytes) -> int:
        """Follow the frames of `data`, up to the returned position."""
        at, left = 0, FRAMES_PER_CALLBACK
        while at < len(data) and not self._is_refused:
            if self._missing:
                taken = min(self._missing, len(data) - at)
                self._missing -= taken
                at += taken
                self._count(taken)
                continue
            if not left:
                break
            left -= 1
            head = self._partial + data[at : at + LONGEST_HEADER]
            start, end = frame_bounds(head, 0)
            if not start:
                self._partial = head
                return len(data)
            at += start - len(self._partial)
            self._partial = b""
            self._opening, self._missing = head[0], end - start
            if not self._opening & CONTROL:
                self._fragments += 1
                self._unfinished += FRAGMENT_OVERHEAD if self._fragments > 1 else 0
            if self._fragments > MAX_FRAGMENTS:
                self._fail(TOO_LARGE, "a message in too many fragments")
            self._count(0)
        return at

    def _count(self, taken: int) -> None:
        """So many bytes of the current frame arrived."""
        if self._opening & CONTROL:
            return
        self._unfinished += taken
        if not self._missing and self._opening & LAST:
            self._queued.append(self._unfinished)
            self._unfinished = self._fragments = 0

    def _update_buffered(self) -> None:
        if self._is_refused:
            return
        held = self._unfinished + sum(self._queued) + len(self._backlog) + len(self._partial)
        self.buffered.set(self, held, is_large=self._unfinished > SMALL_MESSAGE)
        while self.buffered.total > self.budget and not self._is_refused:
            (self.buffered.oldest or self)._fail(CLOSE_SLOW, "the message took too long while many others were read")

    # -- the application ----------------------------------------------------------------------------------------------

    def watch(self, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
        self._is_begun = True

        async def receive_watched() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and self._queued:
                self._queued.popleft()
                self._update_buffered()
            return message

        async def send_watched(message: Message) -> None:
            # A browser that reads too slowly would never read a close frame that is queued behind the other data.
            is_close = message["type"] == "websocket.close"
            if is_close and message.get("code") == CLOSE_SLOW and not self._is_writable:
                self._transport.abort()
            else:
                await send(message)

        return receive_watched, send_watched

    # -- writing and close --------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._is_writable = False
        self._library.pause_writing()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._library.resume_writing()

    def eof_received(self) -> bool | None:
        ends: bool | None = self._library.eof_received()
        return ends

    def shutdown(self) -> None:
        """uvicorn calls this method of its own object."""

    def _fail(self, code: int, reason: str) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        payload = code.to_bytes(2, "big") + reason.encode()
        self._transport.write(bytes((CLOSE_FRAME, len(payload))) + payload)
        self._discard_buffers()
        self._close()

    def _close(self) -> None:
        """With a deadline: the bytes that wait to be sent may never be read."""
        if not self._transport.is_closing():
            self._transport.close()
            self._loop.call_later(self.abort_after_s, self._transport.abort)

    def _discard_buffers(self) -> None:
        self._backlog = self._partial = b""
        self._unfinished = 0
        self._queued.clear()
        self.buffered.remove(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard_buffers()
        self._is_refused = True
        self._library.connection_lost(exc)
        self._library = _Lost()  # break the reference cycle


class _Lost:
    """In place of uvicorn's connection, when it has ended."""

    def data_received(self, data: bytes) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...
