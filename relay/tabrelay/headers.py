"""HTTP connections with limits on what comes before a request's body: how many bytes, and how long they may take.

uvicorn's httptools protocol has neither limit: it takes headers of any size, and keeps a connection that says nothing,
or half a header, for ever. Bodies are limited where they are read; what a request means is not known here.
"""

from __future__ import annotations

import asyncio
import http
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HeaderTooLarge(Exception):
    """Stops the parser; the connection is answered with 431."""


class LimitedHttp(HttpToolsProtocol):
    """One connection. The limits are the process's, so they stand on the class."""

    max_header = 64 * 1024
    header_deadline_s = 10.0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self._is_waiting = True  # for a header to be complete
        self._header_bytes = 0  # of a header that came in several pieces: an upper bound
        self._status = http.HTTPStatus.BAD_REQUEST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        if not self._is_waiting:
            self._header_bytes = 0
        elif self._header_bytes > self.max_header:
            self._refuse(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._deadline is None and not self.transport.is_closing():
            self._arm()

    def on_message_begin(self) -> None:
        self._is_waiting = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_waiting = False
        self._disarm()
        # One piece may hold a whole request, so its size alone says nothing about the header.
        if self._header_bytes > self.max_header and self._size() > self.max_header:
            self._status = http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise HeaderTooLarge
        super().on_headers_complete()

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
        if self._header_bytes:
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
