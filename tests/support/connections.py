"""Connections of a running relay, with the relay's own classes or with those of the libraries."""

from __future__ import annotations

from typing import Any

from tabrelay.server.uvicorn_adapter.guarded_http import GuardedHttp
from tabrelay.server.uvicorn_adapter.guarded_websocket import GuardedWebSocket
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol
from tests.support.running_relay import RunningRelay


def http_connections(relay: RunningRelay) -> list[Any]:
    """Connections that are not WebSockets."""
    assert relay._server is not None
    kind: Any = relay._server.config.http_protocol_class
    if issubclass(kind, GuardedHttp):
        return [each for each in kind.connections if not each._is_upgraded]
    return [each for each in relay._server.server_state.connections if isinstance(each, kind)]


def has_request(connection: Any) -> bool:
    """Whether the application has received a request from it."""
    is_guarded = isinstance(connection, GuardedHttp)
    return (connection._scope if is_guarded else connection.cycle) is not None


def buffered_bytes() -> int:
    """Bytes of WebSocket messages that are incomplete or unread."""
    return WebSocketProtocol.buffered.total + GuardedWebSocket.buffered.total
