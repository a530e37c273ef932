"""Connections of a running relay, on the relay's own classes or on those of the libraries."""

from __future__ import annotations

from typing import Any

from tabrelay.server.uvicorn_adapter.guarded_http import GuardedHttp
from tabrelay.server.uvicorn_adapter.guarded_websocket import GuardedWebSocket
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol
from tests.support.running_relay import RunningRelay


def http_connections(relay: RunningRelay) -> list[Any]:
    """Those that are no WebSockets."""
    assert relay._server is not None
    kind: Any = relay._server.config.http_protocol_class
    if issubclass(kind, GuardedHttp):
        return [each for each in kind.connections if not each._is_upgraded]
    return [each for each in relay._server.server_state.connections if isinstance(each, kind)]


def has_request(connection: Any) -> bool:
    """Did the application get a request from it?"""
    is_guarded = isinstance(connection, GuardedHttp)
    return (connection._scope if is_guarded else connection.cycle) is not None


def buffered_bytes() -> int:
    """Of messages of WebSockets that are not complete or not read."""
    return WebSocketProtocol.buffered.total + GuardedWebSocket.buffered.total
