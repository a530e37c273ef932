"""Configuration of uvicorn: protocol classes and limits of connections, from the relay's settings."""

from __future__ import annotations

from typing import Any

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tabrelay.config.settings import Settings
from tabrelay.server.connection_slots import ConnectionSlots
from tabrelay.server.uvicorn_adapter.fast_request import is_uvicorn_supported
from tabrelay.server.uvicorn_adapter.http_protocol import HttpProtocol
from tabrelay.server.uvicorn_adapter.relay_server import LINGER_S
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol
from tabserver.wire.frames import MAX_HEADER
from tabserver.wire.limits import LARGEST_PART

HEADER_ROOM = MAX_HEADER + 1024  # bytes of a frame beside its payload


def configure(app: Any, settings: Settings) -> uvicorn.Config:
    """uvicorn's configuration. The limits of connections are class attributes of the protocols."""
    WebSocketProtocol.abort_after_s = settings.abort_after_s
    WebSocketProtocol.budget = settings.body_budget
    WebSocketProtocol.max_handshakes = max(16, settings.max_connections // 8)
    HttpProtocol.max_header = settings.max_header
    HttpProtocol.max_ahead = settings.max_ahead
    HttpProtocol.header_deadline_s = settings.header_deadline_s
    HttpProtocol.body_deadline_s = settings.body_deadline_s
    HttpProtocol.max_connections = settings.max_connections

    is_fast = settings.fast_lane  # style: ok - the name of the setting is public

    class Connection(HttpProtocol):
        fast_path = getattr(app, "fast_path", None) if is_fast and is_uvicorn_supported() else None
        slots = ConnectionSlots()  # of this relay's connections

    if settings.trusted_proxies:
        # Outermost: all other layers see the client's address and scheme, as the proxy reports them.
        # defence: proxies that are not trusted
        app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))
    return uvicorn.Config(
        app,
        http=Connection,
        ws=WebSocketProtocol,
        loop="auto",
        ws_ping_interval=settings.ping_interval_s,
        ws_ping_timeout=settings.ping_timeout_s,
        ws_max_size=_largest_frame(settings),
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=settings.connection_idle_s,  # type: ignore[arg-type]  # any number of seconds will do
        timeout_graceful_shutdown=int(LINGER_S) + 2,
    )


def _largest_frame(settings: Settings) -> int:
    """Bytes of one WebSocket message. Large messages come in slices, except from plain pages."""
    slice_bytes = 4 * max(settings.max_part, LARGEST_PART)  # a character takes up to four bytes
    return max(slice_bytes, settings.max_message if settings.plain else 0) + HEADER_ROOM
