"""HTTP connections with limits: bytes and time of a request's header, time of its body, and how many there may be.

uvicorn's httptools protocol has none of them: it takes headers of any size, and keeps a connection that says nothing,
half a header, or a body byte by byte, for ever. It also loses the body of a request that would rather speak another
protocol, as Java's HTTP client says with every first one; here such a wish is passed over. How large a body may be is
decided where it is read; what a request means is not known here.
"""

from __future__ import annotations

import asyncio
import http
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HeaderTooLarge(Exception):
    """Stops the parser; the connection is answered with 431."""


class LimitedHttp(HttpToolsProtocol):
    """One connection. The limits are the process's, so they stand on the class."""

    max_header = 64 * 1024
    header_deadline_s = 10.0
    body_deadline_s = 30.0
    max_connections = 1024

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self._is_waiting = True  # for a header to be complete
        self._header_bytes = 0  # of a header that came in several pieces: an upper bound
        self._has_body_to_come = False
        self._since = 0.0
        self._status = http.HTTPStatus.BAD_REQUEST
        self._data = b""  # what is being parsed
        self._is_read_again = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._arm()
        if len(self.connections) > self.max_connections and not self._make_room():
            self._refuse(http.HTTPStatus.SERVICE_UNAVAILABLE)

    def _make_room(self) -> bool:
        """Whoever waits longest without having asked for anything goes: so many silent ones keep nobody out."""
        others = [each for each in self.connections if isinstance(each, LimitedHttp) and each is not self]
        idle = [each for each in others if each._is_idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each._since)
        oldest._disarm()
        oldest.transport.abort()
        return True

    @property
    def _is_idle(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        self._data = data
        super().data_received(data)
        self._data = b""
        if not self._is_waiting:
            self._header_bytes = 0
            if self._has_body_to_come and self._deadline is None:
                self._deadline = self.loop.call_later(self.body_deadline_s, self._too_late)
        elif self._header_bytes > self.max_header:
            self._refuse(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._deadline is None and not self.transport.is_closing():
            self._arm()

    def on_message_complete(self) -> None:
        if self._is_read_again:
            return
        self._has_body_to_come = False
        self._since = self.loop.time()
        self._disarm()
        super().on_message_complete()

    def on_message_begin(self) -> None:
        self._is_waiting = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_read_again = self._wants_another_protocol
        if self._is_read_again:
            return
        self._is_waiting = False
        self._disarm()
        # One piece may hold a whole request, so its size alone says nothing about the header.
        if self._header_bytes > self.max_header and self._size() > self.max_header:
            self._status = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise HeaderTooLarge
        self._has_body_to_come = not self.parser.should_upgrade()
        super().on_headers_complete()

    @property
    def _wants_another_protocol(self) -> bool:
        is_upgrade = self.parser.should_upgrade() and not self._should_upgrade()
        return is_upgrade and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Called when the parser has stopped after such a header. RFC 9110, 7.8: a server may ignore the wish, so the
        request is read again without it."""
        stopped = sys.exc_info()[1]
        if not self._is_read_again or not isinstance(stopped, httptools.HttpParserUpgrade):
            return
        headers = [pair for pair in self.headers if pair[0] not in (b"connection", b"upgrade", b"http2-settings")]
        named = b",".join(value for name, value in self.headers if name == b"connection").split(b",")
        kept = [token for token in named if token.strip().lower() not in (b"upgrade", b"http2-settings", b"")]
        headers += [(b"connection", b",".join(kept))] if kept else []
        version = self.parser.get_http_version().encode()
        lines = [b" ".join([self.parser.get_method(), self.url, b"HTTP/" + version])]
        lines += [name + b": " + value for name, value in headers]
        rest = self._data[stopped.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        super().data_received(b"\r\n".join([*lines, b"", b""]) + rest)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls when the parser gave up; here the reason may be another one than bad syntax."""
        if self._status is http.HTTPStatus.BAD_REQUEST:
            super().send_400_response(msg)
        else:
            self._refuse(self._status)

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(self.header_deadline_s, self._too_late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        is_asking = self._header_bytes or (self.cycle is not None and not self.cycle.response_started)
        if is_asking:
            self._refuse(http.HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _refuse(self, status: http.HTTPStatus) -> None:
        self._disarm()
        if self.transport.is_closing():
            return
        text = f"{status.phrase}.\n".encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        head += f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + text)
        self.transport.close()
