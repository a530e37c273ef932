"""HTTP responses that the connection itself writes, before any application."""

from __future__ import annotations

from http import HTTPStatus


def refusal(status: HTTPStatus) -> bytes:
    """A complete response, after which the connection is closed."""
    text = f"{status.phrase}.\n".encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    head += "retry-after: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
    head += f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
    return head.encode() + text
