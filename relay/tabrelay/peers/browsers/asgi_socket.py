"""Text messages of an ASGI WebSocket, and the reason for its end.

A close code with a meaning becomes an exception; any other end of the socket is None. The module reads only: writing is
`SocketWriter`.
"""

from __future__ import annotations

from starlette.types import Receive

from tabserver.wire.frames import (
    CLOSE_GOING_AWAY,
    CLOSE_UNAUTHORIZED,
    REFUSALS,
)


class BrowserDismissed(Exception):
    """The gate closed the socket: the browser is no longer admitted. The text is the reason."""


class BrowserLeft(Exception):
    """The browser closed the socket on purpose."""


class BrowserRefused(Exception):
    """L16: the browser closed the socket because of a frame of ours."""


async def next_text(receive: Receive) -> str | None:
    """The next text message; None when the socket is gone. Binary messages are skipped: the protocol has none."""
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
