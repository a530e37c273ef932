"""Limits and lifecycle of a WebSocket connection on uvicorn's websockets protocol: buffered bytes, fragments, close.

uvicorn limits only the size of one message. Many messages that are almost complete, or one message in fragments of one
byte (or of none), would take any amount of memory. So all connections together have a budget for bytes that are not
complete or not yet read by the application, and one message has a limit of fragments. Frames are read in
`websocket_protocol`; what a message means is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from tabrelay.peers.browsers.asgi_bypass import EXTENSION
from tabrelay.server.uvicorn_adapter.websocket_buffers import BufferedBytes, FrameBuffer
from tabrelay.system.patient_timer import PatientTimer
from tabserver.wire.frames import CLOSE_SLOW

MIB: Final = 1024 * 1024
MAX_FRAGMENTS: Final = 1024  # of one message; browsers send few, and large ones
FRAGMENT_OVERHEAD: Final = 64  # bytes of memory of one fragment beside its payload
# A connection with at most this much is not closed while another one has more: a small message that is not complete.
SMALL_MESSAGE: Final = 16 * 1024


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One connection. The limits hold for the process, so they are class attributes.

    uvicorn closes a socket whose peer is silent with ``transport.close()``, which waits for a flush that can't happen
    when the peer is gone: the connection would never be freed. This class aborts it a moment later.
    """

    abort_after_s = 1.0
    budget = 64 * MIB  # bytes that are not complete or not read yet, of all connections together
    buffered: ClassVar[BufferedBytes[WebSocketConnection]] = BufferedBytes()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._fragments = 0
        self._fragment_bytes = 0
        self._queued = 0  # bytes of complete messages that the application has not read yet
        self._counted = 0  # bytes of this connection in `buffered`
        self._refused = False
        self._on_text: Callable[[str], None] | None = None
        self._partial_frame = b""  # the beginning of a frame, until its header shows how to read it
        self._library_bytes = 0  # bytes to come of a frame that the library reads
        self._large_frame: FrameBuffer | None = None  # the payload of a large frame
        self._mask = b""  # of that frame, if it is a text; the library reads all others
        self._backlog = b""  # was read, and waits for a later callback
        self._backlog_read: asyncio.Handle | None = None  # reads the backlog

    def start_direct(self, on_text: Callable[[str], None]) -> None:
        """See `peers.browsers.asgi_bypass`."""
        self._on_text = on_text

    def end_direct(self) -> None:
        self._on_text = None

    # -- fragments ----------------------------------------------------------------------------------------------------

    def handle_text(self, event: Frame) -> None:
        self._fragment_bytes = len(event.data)
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._fragment_bytes = len(event.data)
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        self._fragments += 1
        # defence: fragments
        if self._fragments > MAX_FRAGMENTS:
            self._fail(CloseCode.MESSAGE_TOO_BIG, "a message in too many fragments")
            return
        self._fragment_bytes += len(event.data) + FRAGMENT_OVERHEAD
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        self._fragments = self._fragment_bytes = 0
        self._uncount()  # the next bytes belong to another message
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            return
        self._queued += len(data)
        # Text stays encoded until the application reads it: decoded, it may take four times as much.
        self.queue.put_nowait({"type": "websocket.receive", self.curr_msg_data_type: data})  # type: ignore[arg-type]
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    # -- buffered bytes -----------------------------------------------------------------------------------------------

    def _update_buffered(self) -> None:
        unfinished = len(self._partial_frame) + len(self.conn.reader.buffer) + self._fragment_bytes
        if self._large_frame is not None:
            unfinished += self._large_frame.cost
        # defence: complete messages that the application has not taken yet
        held = unfinished + self._queued + len(self._backlog)
        if held == self._counted:
            return
        if self._refused or self.disconnected:
            self._uncount()
            return
        self._counted = held
        self.buffered.set(self, held, is_large=unfinished > SMALL_MESSAGE)
        # The connection that takes longest is closed: a well-behaved browser completes a message in a moment. If none
        # has more than a small message, too many have one, and the last of them is closed.
        # defence: frames that never end
        while self.buffered.total > self.budget and not self._refused:
            # defence: small frames that never end
            (self.buffered.oldest or self)._fail(CLOSE_SLOW, "the message took too long while many others were read")

    def _uncount(self) -> None:
        self._counted = 0
        self.buffered.remove(self)

    def _discard_buffers(self) -> None:
        """Drop all incomplete data now. The connection may take a moment to end, and the garbage collector counts
        objects, not their size."""
        self._uncount()
        self.frames, self._partial_frame, self._large_frame, self._backlog = [], b"", None, b""
        self._fragment_bytes = 0
        self.conn.reader.discard()

    # -- close --------------------------------------------------------------------------------------------------------

    def _fail(self, code: int, reason: str) -> None:
        if self._refused:
            return
        self._refused = True
        self.conn.fail(code, reason)
        self._discard_buffers()
        self.handle_parser_exception()
        self.loop.call_later(self.abort_after_s, self.transport.abort)

    def _fail_invalid_utf8(self) -> None:
        """RFC 6455, 8.1: the connection fails. Messages that the application has not read are dropped."""
        waiting = [self.queue.get_nowait() for _ in range(self.queue.qsize())]
        for event in waiting:
            if event["type"] != "websocket.receive":
                self.queue.put_nowait(event)
        self._queued = 0
        self._fail(CloseCode.INVALID_DATA, "a text that is not UTF-8")

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard_buffers()
        super().connection_lost(exc)
        self._break_cycles()

    def _break_cycles(self) -> None:
        """Reference counts free the connection now. The garbage collector may find it only after an hour: its full
        collections are rare, and a lost connection is small."""
        if self.handshake_initiated and hasattr(self, "scope"):
            # defence: memory: a lost socket does not refer to itself by its scope
            self.scope["extensions"].pop(EXTENSION, None)
        parser: Any = self.conn.parser
        # defence: memory: the parser of a lost socket is closed
        parser.close()

    def send_keepalive_ping(self) -> None:
        super().send_keepalive_ping()
        if self.pong_timer is not None and self.ping_timeout is not None:
            # After a stall of this process the pong may be unread: it is read before the peer is considered dead.
            self.pong_timer.cancel()
            # defence: stalls: a pong that waited unread is read before the socket is cut
            timer: Any = PatientTimer(self.loop, self.ping_timeout, self.keepalive_timeout)
            self.pong_timer = timer

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.loop.call_later(self.abort_after_s, self.transport.abort)
