"""WebSocket frames: the relay's connection, with and without its direct path for texts, against wsproto.

All three are fed the same reads. They must receive the same messages in the same order, and all close or none does.
Known differences:

- a message over the limits of the relay (size, number of fragments): it closes, wsproto has none
- a length in more bytes than it needs: wsproto refuses the frame, the relay reads it; where it ends is the same
- a frame that breaks a rule: wsproto refuses it when its header has come, the relay when all of it has
- what follows an invalid text in the same read: wsproto checks UTF-8 fragment by fragment, the relay at a message's end
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import uvicorn
from uvicorn.server import ServerState
from wsproto import ConnectionType, WSConnection
from wsproto import events as ws
from wsproto.connection import ConnectionState
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from tabrelay.peers.browsers.asgi_bypass import direct_channel
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol
from tests.fuzz.slicing import sliced
from tests.fuzz.transport import FakeTransport, settle

REQUEST: Final = (
    b"GET /notes HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
INVALID_TEXT: Final = 1007
MAX_MESSAGE: Final = 100_000
Received = tuple[list[tuple[str, Any]], bool]


def check(data: bytes) -> None:
    reads = sliced(data)
    direct, ordinary = _loop.run_until_complete(_both(reads))
    assert direct == ordinary, f"with the direct path {direct}, without {ordinary}"
    has_long_length, is_within_frame = _walk(b"".join(reads))
    if has_long_length:
        return
    received, code = _by_wsproto(reads)
    assert direct[0] == received, f"the relay received {direct[0]}, wsproto {received}"
    if not is_within_frame and code != INVALID_TEXT:
        assert direct[1] == (code is not None), f"the relay closed: {direct[1]}, wsproto: {code}"


_loop: Final = asyncio.new_event_loop()


async def _both(reads: list[bytes]) -> tuple[Received, Received]:
    return await _by_relay(reads, is_direct=True), await _by_relay(reads, is_direct=False)


async def _by_relay(reads: list[bytes], *, is_direct: bool) -> Received:
    app = _Application(is_direct)
    config = uvicorn.Config(
        app,
        ws=WebSocketProtocol,
        lifespan="off",
        log_config=None,
        ws_max_size=MAX_MESSAGE,
        ws_per_message_deflate=False,
    )
    config.load()
    connection, transport = WebSocketProtocol(config, ServerState(), {}), FakeTransport()
    connection.connection_made(transport)
    connection.data_received(REQUEST)
    await settle(lambda: app.is_accepted)
    transport.written.clear()
    for data in reads:
        if data and not transport.is_closed:
            connection.data_received(data)
            await settle()
    is_closed = transport.is_closed or connection.close_sent
    received = list(app.received)
    connection.connection_lost(None)
    await settle(lambda: app.is_over)
    return received, is_closed


class _Application:
    """An ASGI application that accepts, and keeps what it receives."""

    def __init__(self, is_direct: bool) -> None:
        self._is_direct = is_direct
        self.received: list[tuple[str, Any]] = []
        self.is_accepted = self.is_over = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        if self._is_direct:
            conduit = direct_channel(scope)
            assert conduit is not None
            conduit.start_direct(lambda text: self.received.append(("text", text)))
        self.is_accepted = True
        while (message := await receive())["type"] != "websocket.disconnect":
            kind = "text" if message.get("text") is not None else "bytes"
            self.received.append((kind, message[kind]))
        self.is_over = True


def _walk(data: bytes) -> tuple[bool, bool]:
    """RFC 6455, 5.2: whether a frame has a length that is not in its shortest form, and whether the last one is cut."""
    at, is_long = 0, False
    while at + 2 <= len(data) and not is_long:
        form = data[at + 1] & 0x7F
        width = {126: 2, 127: 8}.get(form, 0)
        size = int.from_bytes(data[at + 2 : at + 2 + width], "big") if width else form
        is_long = (width == 2 and size < 126) or (width == 8 and size < 1 << 16)
        at += 2 + width + (4 if data[at + 1] & 0x80 else 0) + size
    return is_long, at != len(data)


def _by_wsproto(reads: list[bytes]) -> tuple[list[tuple[str, Any]], int | None]:
    """The messages that it receives, and its close code."""
    connection = WSConnection(ConnectionType.SERVER)
    connection.receive_data(REQUEST)
    list(connection.events())
    connection.send(ws.AcceptConnection())
    received: list[tuple[str, Any]] = []
    parts: list[Any] = []
    for data in reads:
        if not data or connection.state is not ConnectionState.OPEN:
            continue
        try:
            connection.receive_data(data)
            for event in connection.events():
                if isinstance(event, ws.Message):
                    parts.append(event.data)
                    if event.message_finished:
                        is_text = isinstance(event, ws.TextMessage)
                        received.append(("text", "".join(parts)) if is_text else ("bytes", b"".join(parts)))
                        parts = []
                elif isinstance(event, ws.CloseConnection):
                    return received, int(event.code)
        except ProtocolError:
            return received, CloseReason.PROTOCOL_ERROR
    return received, None
