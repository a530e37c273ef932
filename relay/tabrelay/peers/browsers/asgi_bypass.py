"""ASGI bypass for WebSocket texts: an extension of the ASGI scope that receives and writes them without a queue.

A text is handled in the event-loop iteration in which its last byte arrived, and written in the one in which it was
sent. By ASGI, each direction takes a queue, a task and several wrappers. Everything that is not a text still goes by
ASGI: opening, closing, and a browser that reads too slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

# Key among the extensions of a WebSocket's scope. With a server that does not offer it, all texts go by ASGI.
EXTENSION: Final = "tabrelay.peers.browsers.asgi_bypass"


class DirectTextChannel(Protocol):
    """One WebSocket, as the server's protocol class offers it."""

    def start_direct(self, on_text: Callable[[str], None]) -> None:
        """Call `on_text` with each text that arrives. Before this call, all texts go by ASGI."""

    def end_direct(self) -> None:
        """All texts go by ASGI again."""

    def try_write(self, texts: Sequence[str]) -> bool:
        """Write these now. False if they have to wait behind others: then nothing was written."""


def direct_channel(scope: Mapping[str, Any]) -> DirectTextChannel | None:
    found: DirectTextChannel | None = (scope.get("extensions") or {}).get(EXTENSION)
    return found
