"""A WebSocket past ASGI: a text is handed on in the turn of the loop in which its last byte came, and written in the
one in which it was said. Without it, each way takes a queue, a task and a few wrappers, as ASGI wants them.

Everything that is not a text still goes by ASGI: opening, closing, a browser that reads too slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

# Where it stands among the extensions of a WebSocket's scope. A server without it is served by ASGI alone.
EXTENSION: Final = "tabrelay.peers.browsers.asgi_bypass"


class DirectTextChannel(Protocol):
    on_text: Callable[[str], None] | None  # None: all texts go by ASGI

    def try_write(self, texts: Sequence[str]) -> bool:
        """Write these now; False, and nothing was done, if they have to wait for their turn."""


def direct_channel(scope: Mapping[str, Any]) -> DirectTextChannel | None:
    found: DirectTextChannel | None = (scope.get("extensions") or {}).get(EXTENSION)
    return found
