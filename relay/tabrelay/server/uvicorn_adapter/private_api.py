"""Check of the private API of uvicorn and websockets that this package uses: signatures, attributes, methods.

The relay's connections override methods of uvicorn's protocol classes and read their attributes, and those of the
websockets library. None of this is documented, so any release may change it. The check creates one object of each
class and reads what it has; it sends no bytes, so it does not notice a method that does something else than before.
`configuration` uses the libraries' own classes where the check fails. Nothing is imported before it is checked.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

import uvicorn

HTTP_MODULE: Final = "uvicorn.protocols.http.httptools_impl"
WEBSOCKET_MODULE: Final = "uvicorn.protocols.websockets.websockets_sansio_impl"
NEW_CONNECTION: Final = ("config", "server_state", "app_state", "_loop")

# Parameters of methods, without `self`.
HTTP_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "__init__": NEW_CONNECTION,
    "connection_made": ("transport",),
    "connection_lost": ("exc",),
    "pause_writing": (),
    "resume_writing": (),
    "shutdown": (),
    "timeout_keep_alive_handler": (),
    "handle_websocket_upgrade": (),
    "on_message_begin": (),
    "on_headers_complete": (),
    "on_body": ("body",),
    "on_message_complete": (),
    "on_response_complete": (),
    "_start_asgi_task": ("cycle", "app"),
    "_unset_keepalive_if_required": (),
}
HTTP_ATTRIBUTES: Final = (
    *("access_log", "access_logger", "app", "connections", "cycle", "expect_100_continue", "flow", "headers", "logger"),
    *("loop", "parser", "scope", "server_state", "timeout_keep_alive", "timeout_keep_alive_task", "transport", "url"),
)
CYCLE_PARAMETERS: Final = (
    *("scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers"),
    *("message_event", "expect_100_continue", "keep_alive", "on_response"),
)
CYCLE_ATTRIBUTES: Final = (
    *(
        "body",
        "chunked_encoding",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "response_started",
    ),
    *("scope", "transport"),
)
SERVER_ATTRIBUTES: Final = ("connections", "default_headers", "tasks", "total_requests")
FLOW_METHODS: Final = {"drain": (), "pause_reading": (), "resume_reading": ()}
WEBSOCKET_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "__init__": NEW_CONNECTION,
    "connection_lost": ("exc",),
    "data_received": ("data",),
    "handle_connect": ("event",),
    "handle_text": ("event",),
    "handle_bytes": ("event",),
    "handle_cont": ("event",),
    "handle_parser_exception": (),
    "send_receive_event_to_app": (),
    "send_keepalive_ping": (),
    "keepalive_timeout": (),
    "receive": (),
    "send": ("message",),
}
WEBSOCKET_ATTRIBUTES: Final = (
    *("close_sent", "config", "conn", "curr_msg_data_type", "disconnected", "frames", "handshake_complete"),
    *("handshake_initiated", "loop", "ping_timeout", "pong_timer", "queue", "read_paused", "transport", "writable"),
)
FRAMING_METHODS: Final = {"data_to_send": (), "fail": ("code", "reason"), "receive_data": ("data",)}
FRAMING_ATTRIBUTES: Final = ("eof_sent", "handshake_exc", "parser", "parser_exc", "reader", "state")


class PrivateApiError(Exception):
    """A library does not have what this package uses."""


def http_misfit() -> str | None:
    """What uvicorn lacks for the relay's HTTP connections; None if they can be used."""
    return _first_misfit(_check_http)


def websocket_misfit() -> str | None:
    """What uvicorn or websockets lack for the relay's WebSockets; None if they can be used."""
    return _first_misfit(_check_websocket)


def _first_misfit(check: Any) -> str | None:
    try:
        check()
    except PrivateApiError as error:
        return str(error)
    except Exception as error:  # a library that changed may raise anything
        return f"{type(error).__name__}: {error}"
    return None


def _check_http() -> None:
    module: Any = import_module(HTTP_MODULE)
    _check_methods(module.HttpToolsProtocol, HTTP_METHODS)
    _check_methods(module.RequestResponseCycle, {"__init__": CYCLE_PARAMETERS})
    _check_methods(module.FlowControl, FLOW_METHODS)
    cycle = module.RequestResponseCycle(**dict.fromkeys(CYCLE_PARAMETERS))
    _check_attributes(cycle, CYCLE_ATTRIBUTES)
    connection = _new_connection(module.HttpToolsProtocol)
    connection.on_message_begin()
    _check_attributes(connection, HTTP_ATTRIBUTES)
    _check_attributes(connection.server_state, SERVER_ATTRIBUTES)
    _check_attributes(module.FlowControl(None), ("read_paused", "write_paused"))
    if module.STATUS_LINE[200] != b"HTTP/1.1 200 OK\r\n":
        raise PrivateApiError("STATUS_LINE has another form")


def _check_websocket() -> None:
    module: Any = import_module(WEBSOCKET_MODULE)
    frames: Any = import_module("websockets.frames")
    protocol: Any = import_module("websockets.protocol")
    _check_methods(module.WebSocketsSansIOProtocol, WEBSOCKET_METHODS)
    connection = _new_connection(module.WebSocketsSansIOProtocol)
    _check_attributes(connection, WEBSOCKET_ATTRIBUTES)
    if not isinstance(connection.queue, asyncio.Queue) or not isinstance(connection.writable, asyncio.Event):
        raise PrivateApiError("the queue of WebSocketsSansIOProtocol is another one")
    _check_methods(type(connection.conn), FRAMING_METHODS)
    _check_attributes(connection.conn, FRAMING_ATTRIBUTES)
    _check_attributes(connection.conn.reader, ("buffer", "discard"))
    _check_attributes(connection.conn.parser, ("close",))
    _check_attributes(frames.CloseCode, ("INVALID_DATA", "MESSAGE_TOO_BIG"))
    _check_attributes(protocol.State, ("OPEN",))
    _check_attributes(import_module("websockets.utils"), ("apply_mask",))


def _check_methods(owner: type, methods: Mapping[str, tuple[str, ...]]) -> None:
    for name, expected in methods.items():
        found = getattr(owner, name, None)
        if found is None:
            raise PrivateApiError(f"{owner.__name__} has no {name}")
        parameters = tuple(inspect.signature(found).parameters)[1:]
        if parameters != expected:
            raise PrivateApiError(f"{owner.__name__}.{name} takes ({', '.join(parameters)})")


def _check_attributes(owner: object, names: Iterable[str]) -> None:
    for name in names:
        if not hasattr(owner, name):
            raise PrivateApiError(f"{getattr(owner, '__name__', type(owner).__name__)} has no {name}")


def _new_connection(kind: Any) -> Any:
    """A connection without a transport, as uvicorn creates it."""
    state: Any = import_module("uvicorn.server").ServerState()
    config = uvicorn.Config(_no_app, http=kind, ws="none", lifespan="off", log_config=None)
    return kind(config=config, server_state=state, app_state={}, _loop=_NoLoop())


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


class _NoLoop:
    """An event loop on which nothing runs."""
