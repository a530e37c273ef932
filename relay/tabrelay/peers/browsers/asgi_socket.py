"""Text messages of an ASGI WebSocket, and why a browser closed it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tabserver.wire.frames import (
    CLOSE_GOING_AWAY,
    CLOSE_UNAUTHORIZED,
    REFUSALS,
)

Scope = MutableMapping[str, Any]


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class BrowserDismissed(Exception):
    """The gate says that this browser is no longer welcome; the text says why."""


class BrowserLeft(Exception):
    """The browser closed the socket on purpose."""


class BrowserRefused(Exception):
    """L16: the browser closed the socket because of a frame of ours."""


async def next_text(receive: Receive) -> str | None:
    """The next text message; None when the socket is gone. Binary is not of this protocol: read as nothing at all."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            if message.get("code") == CLOSE_UNAUTHORIZED:
                raise BrowserDismissed(message.get("reason") or "unauthorized")
            if message.get("code") == CLOSE_GOING_AWAY:
                raise BrowserLeft
            if message.get("code") in REFUSALS:
                raise BrowserRefused
            return None
        text = message.get("text")
        if text is not None:
            return str(text)


def header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1").strip())
    return None
