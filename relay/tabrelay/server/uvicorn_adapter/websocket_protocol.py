"""WebSocket frames: complete texts go straight to the receiver, all other frames through the websockets library.

Reads are parsed frame by frame. A text in one frame is unmasked and delivered at once, past ASGI (`asgi_bypass`):
nearly all messages are such texts. A large text that arrives in several reads is collected in a `FrameBuffer`, and
queued if it can't be delivered at once. Every other frame (RFC 6455: control frames, fragments, binary, invalid ones)
is left to the websockets library: a small one as it arrives; of a large one first the header, by which the library may
refuse it, and the payload when it is complete. Limits over all connections are in `websocket_connection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from websockets.http11 import Request
from websockets.protocol import State

from tabrelay.peers.browsers.asgi_bypass import EXTENSION
from tabrelay.server.accept_limiter import HandshakeLimiter
from tabrelay.server.uvicorn_adapter.frame_header import EIGHT_BYTES, MASKED, TWO_BYTES, frame_bounds
from tabrelay.server.uvicorn_adapter.websocket_buffers import FrameBuffer
from tabrelay.server.uvicorn_adapter.websocket_connection import WebSocketConnection
from tabserver.wire.frames import CLOSE_SLOW

try:  # the compiled function, where the library has it
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

FRAMES_PER_CALLBACK: Final = 128  # of one connection, in one callback of the event loop; the rest waits for the next
FEED_CHUNK: Final = 16 * 1024  # bytes that the library parses at once, so that a flood of headers is detected early
# The first bytes of frames (RFC 6455, 5.2): a text that is complete.
WHOLE_TEXT: Final = 0x81
OPEN: Final = State.OPEN  # in Python 3.11, reading a member of an enum costs a function call each time
NOT_A_HANDSHAKE: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nThis is no WebSocket request.\n"
)
TOO_MANY_HANDSHAKES: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 48\r\n"
    b"retry-after: 1\r\nconnection: close\r\n\r\nToo many browsers come at once. Try again soon.\n"
)


class WebSocketProtocol(WebSocketConnection):
    """One connection, as uvicorn creates it."""

    max_handshakes = 128  # that wait to be started

    # -- handshake ----------------------------------------------------------------------------------------------------

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: Any = self.scope["extensions"]
            extensions[EXTENSION] = self
            # uvloop sends at the end of the loop iteration, unless the buffer is over its limit.
            self.transport.set_write_buffer_limits(high=0)

    def _start_handshake(self, request: bytes) -> None:
        limiter = HandshakeLimiter.of(self.loop)

        def start() -> None:
            if not self.transport.is_closing():
                self.transport.resume_reading()
                self._feed(request)

        # defence: the number of waiting handshakes
        if limiter.waiting >= self.max_handshakes:
            self._refuse_handshake(TOO_MANY_HANDSHAKES)
        elif not limiter.admit(start):
            self.transport.pause_reading()

    def _refuse_handshake(self, answer: bytes) -> None:
        self.handshake_complete = self.close_sent = self._refused = True
        self.transport.write(answer)
        self.transport.close()

    # -- receiving ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated and not self.handshake_complete:
            # RFC 6455, 4.1: a client sends nothing before the handshake is complete. What it sent would be buffered,
            # and a socket in this state can't be closed in order.
            self._refused = True
            self.transport.abort()
            return
        if self._backlog:
            self._backlog += data
            self._defer()
        elif self.handshake_initiated:
            self._read_frames(self._partial_frame + data if self._partial_frame else data)
        else:
            self._start_handshake(data)  # the request alone: no frame may arrive before its response
        self._update_buffered()

    def _read_frames(self, data: bytes) -> None:
        """Read frame by frame. `data` begins with a frame, or inside one that is large or left to the library."""
        at, end, is_idle, left = 0, len(data), self._is_idle, FRAMES_PER_CALLBACK
        self._partial_frame = b""
        while at < end and not self._refused:
            # defence: loop time: frames of one read
            if not left:
                self._backlog = data[at:]
                self._defer()
                return
            if self._large_frame is not None:
                stop = min(end, at + self._large_frame.missing)
                self._add_to_large_frame(self._large_frame, memoryview(data)[at:stop])
                at, is_idle = stop, self._is_idle
                continue
            if self._library_bytes:
                stop = min(end, at + self._library_bytes)
                self._library_bytes -= stop - at
                self._feed(data[at:stop])
                at, is_idle = stop, self._is_idle
                continue
            left -= 1
            start, stop = frame_bounds(data, at)
            is_ours = data[at] == WHOLE_TEXT and start and data[at + 1] >= MASKED
            if start and stop - start > FEED_CHUNK:
                if is_ours and stop <= end and is_idle and self._is_deliverable(stop - start):
                    self._deliver_text(memoryview(data)[start:stop], data[start - 4 : start])
                    at = stop
                else:
                    self._start_large_frame(data[at:start], stop - start)
                    at, is_idle = start, self._is_idle
            elif start == 0 or (is_ours and stop > end and is_idle):
                self._partial_frame = data[at:]
                return
            elif is_ours and is_idle and self._on_text is not None:  # nearly all frames: `_deliver_text`, inlined
                try:
                    text = apply_mask(data[start:stop], data[start - 4 : start]).decode()
                except UnicodeDecodeError:
                    self._fail_invalid_utf8()
                    return
                self._on_text(text)
                at = stop
            else:
                self._library_bytes = stop - at

    def _defer(self) -> None:
        """Read no more until the backlog is empty. The backlog waits until the application has read the queue."""
        if self.transport.is_closing():
            return
        self.transport.pause_reading()
        if self._backlog_read is None and not self.read_paused:
            self._backlog_read = self.loop.call_soon(self._read_backlog)

    def _read_backlog(self) -> None:
        self._backlog_read = None
        data, self._backlog = self._backlog, b""
        if self._refused or self.transport.is_closing():
            return
        self._read_frames(data)
        if not self._backlog and not self.read_paused:
            self.transport.resume_reading()
        self._update_buffered()

    def _is_deliverable(self, size: int) -> bool:
        # defence: a frame that is too large and comes at once
        return self._on_text is not None and size <= self.config.ws_max_size

    def _deliver_text(self, data: bytes | memoryview, mask: bytes) -> None:
        assert self._on_text is not None
        try:
            text = apply_mask(data, mask).decode()
        except UnicodeDecodeError:
            self._fail_invalid_utf8()
            return
        self._on_text(text)

    def _start_large_frame(self, head: bytes, size: int) -> None:
        """Start a large frame. The library gets its header, unless it is a text that the library can't object to."""
        # defence: the header of a large frame
        is_text = head[0] == WHOLE_TEXT and head[1] >= MASKED and size <= self.config.ws_max_size
        # defence: a large text within another message
        if is_text and not self.frames and self.conn.state is OPEN and not self.close_sent:
            self._mask = head[-4:]
        else:
            self._mask = b""
            self._feed(head)
            if self.conn.parser_exc is not None:
                self._library_bytes = size  # the library closes the connection and drops the rest
                return
        self._large_frame = FrameBuffer(size)

    def _add_to_large_frame(self, large: FrameBuffer, data: memoryview) -> None:
        large.add(data)
        if large.missing:
            return
        self._large_frame = None
        if not self._mask:
            self._feed_chunk(large.take())
        elif self._is_idle and self._on_text is not None:
            self._deliver_text(large.take(), self._mask)
        elif not self.close_sent:
            self.curr_msg_data_type = "text"
            self.frames = [apply_mask(large.take(), self._mask)]
            self.send_receive_event_to_app()

    @property
    def _is_idle(self) -> bool:
        """Are all earlier messages delivered, and is neither side closing?"""
        return not self.frames and self.queue.empty() and self.conn.state is OPEN and not self.close_sent

    def _feed(self, data: bytes) -> None:
        if len(data) <= FEED_CHUNK:
            self._feed_chunk(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), FEED_CHUNK):
            if not self._refused:
                self._feed_chunk(bytes(view[start : start + FEED_CHUNK]))

    def _feed_chunk(self, data: bytes) -> None:
        super().data_received(data)
        # For a request that is no handshake (with a body, or too large a header) uvicorn neither answers nor closes.
        if self.conn.handshake_exc is not None and not self.close_sent:
            self._refuse_handshake(b"".join(self.conn.data_to_send()) or NOT_A_HANDSHAKE)

    async def receive(self) -> ASGIReceiveEvent:
        while True:
            message: Any = await super().receive()
            if self._backlog:
                self._defer()
            if self._queued and message["type"] == "websocket.receive":
                self._queued -= len(message.get("text") or message.get("bytes") or b"")
                self._update_buffered()
            if type(text := message.get("text")) is bytes:
                try:
                    message["text"] = text.decode()
                except UnicodeDecodeError:
                    self._fail_invalid_utf8()
                    continue
            return message  # type: ignore[no-any-return]

    # -- sending ------------------------------------------------------------------------------------------------------

    def try_write(self, texts: Sequence[str]) -> bool:
        if self.close_sent or not self.writable.is_set() or self.conn.state is not OPEN:
            return False
        if self.transport.is_closing():
            return False
        written: list[bytes] = []
        for text in texts:
            data = text.encode()
            size = len(data)
            if size < TWO_BYTES:
                head = bytes((WHOLE_TEXT, size))
            elif size < 1 << 16:
                head = bytes((WHOLE_TEXT, TWO_BYTES, size >> 8, size & 0xFF))
            else:
                head = bytes((WHOLE_TEXT, EIGHT_BYTES)) + size.to_bytes(8, "big")
            written += (head, data)
        self.transport.write(b"".join(written))
        return True

    async def send(self, message: ASGISendEvent) -> None:
        # A browser that reads too slowly would never read a close frame that is queued behind the other data.
        is_close = message["type"] == "websocket.close"
        if is_close and message.get("code") == CLOSE_SLOW and not self.writable.is_set():
            self.transport.abort()
            return
        if self.conn.eof_sent and not self.handshake_complete:
            return  # the relay stops: the request already has a response
        await super().send(message)
        if self._backlog:
            self._defer()
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # it was refused with a response, which is no error to log
