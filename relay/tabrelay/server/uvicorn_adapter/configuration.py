"""Configuration of uvicorn: protocol classes and limits of connections, from the relay's settings.

The relay's own classes are used where the private API of the libraries is the expected one (`private_api`), else the
libraries' classes with a guard that has the same limits.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tabrelay.config.settings import Settings
from tabrelay.server.connection_slots import ConnectionSlots
from tabrelay.server.uvicorn_adapter import private_api
from tabrelay.server.uvicorn_adapter.relay_server import LINGER_S
from tabserver.wire.frames import MAX_HEADER
from tabserver.wire.limits import LARGEST_PART

log = logging.getLogger(__name__)

HEADER_ROOM: Final = MAX_HEADER + 1024  # bytes of a frame beside its payload
TESTED: Final = "Tabrelay is tested with the versions that its package requires: pip install --upgrade tabrelay"


def configure(app: Any, settings: Settings) -> uvicorn.Config:
    """uvicorn's configuration. The limits of connections are class attributes of the protocols."""
    fast_path = getattr(app, "fast_path", None) if settings.fast_lane else None  # style: ok - the setting is public
    http, websocket = _http_class(settings, fast_path), _websocket_class(settings)
    is_guarded = hasattr(http, "library_class") or hasattr(websocket, "library_class")
    if settings.trusted_proxies:
        # Outermost: all other layers see the client's address and scheme, as the proxy reports them.
        # defence: proxies that are not trusted
        app = ProxyHeadersMiddleware(app, list(settings.trusted_proxies))
    if is_guarded:
        from tabrelay.server.uvicorn_adapter.guarded_app import GuardedApp

        app = GuardedApp(app)
    return uvicorn.Config(
        app,
        http=http,
        ws=websocket,
        loop="auto",
        ws_ping_interval=settings.ping_interval_s,
        ws_ping_timeout=settings.ping_timeout_s,
        ws_max_size=_largest_frame(settings),
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_keep_alive_s(settings, is_guarded=is_guarded),  # type: ignore[arg-type]  # any number
        timeout_graceful_shutdown=int(LINGER_S) + 2,
    )


def _http_class(settings: Settings, fast_path: Any) -> Any:
    misfit = private_api.http_misfit()
    base: Any
    more: dict[str, Any]
    if misfit is None:
        from tabrelay.server.uvicorn_adapter.http_protocol import HttpProtocol

        base, more = HttpProtocol, {"fast_path": fast_path}
    else:
        from tabrelay.server.uvicorn_adapter.guarded_http import GuardedHttp

        log.warning(
            "The private API of uvicorn %s has changed (%s). HTTP connections use uvicorn's own class: calls are "
            "slower, and up to 64 KiB of a body that is not read stay in memory. All other limits hold. %s",
            uvicorn.__version__,
            misfit,
            TESTED,
        )
        base = GuardedHttp
        more = {"library_class": _library_config("httptools", "none").http_protocol_class, "connections": set()}
        base.idle_s = settings.connection_idle_s
    base.max_header = settings.max_header
    base.max_ahead = settings.max_ahead
    base.header_deadline_s = settings.header_deadline_s
    base.body_deadline_s = settings.body_deadline_s
    base.max_connections = settings.max_connections
    # A class of its own for each relay: these are its connections.
    return type("Connection", (base,), {"slots": ConnectionSlots(), **more})


def _websocket_class(settings: Settings) -> Any:
    misfit = private_api.websocket_misfit()
    found: Any
    if misfit is None:
        from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol

        found = WebSocketProtocol
    else:
        from tabrelay.server.uvicorn_adapter.guarded_websocket import GuardedWebSocket

        log.warning(
            "The private API of uvicorn %s or websockets has changed (%s). WebSockets use uvicorn's own class: calls "
            "are slower. All limits hold. %s",
            uvicorn.__version__,
            misfit,
            TESTED,
        )
        found = GuardedWebSocket
        found.library_class = _library_config("auto", "websockets-sansio").ws_protocol_class
    found.abort_after_s = settings.abort_after_s
    found.budget = settings.body_budget
    found.max_handshakes = max(16, settings.max_connections // 8)
    return found


def _library_config(http: Any, websocket: Any) -> uvicorn.Config:
    """A loaded configuration with the library's own classes of these names."""
    config = uvicorn.Config(lambda: None, http=http, ws=websocket, lifespan="off", log_config=None)
    config.load()
    return config


def _keep_alive_s(settings: Settings, *, is_guarded: bool) -> float:
    """A guard closes idle connections itself, since uvicorn does not know of a request whose header is incomplete."""
    return settings.connection_idle_s + (settings.header_deadline_s + 1 if is_guarded else 0)


def _largest_frame(settings: Settings) -> int:
    """Bytes of one WebSocket message. Large messages come in slices, except from plain pages."""
    slice_bytes = 4 * max(settings.max_part, LARGEST_PART)  # a character takes up to four bytes
    return max(slice_bytes, settings.max_message if settings.plain else 0) + HEADER_ROOM
