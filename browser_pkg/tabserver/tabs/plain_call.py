"""Value for a call that the fast path started: all that the regular path needs to continue it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..handlers.context import Cancel, Done, Request
from ..wire.events import Received
from .tab import PagePort, Tab


class PlainCall(NamedTuple):
    """`tab` and `port`: where it was sent; or `own`: how it goes on in the worker. `name`: what its caller calls the
    tool. A tuple, as there is one for each call."""

    event: Received[str]
    call: str
    name: str
    began_ms: float
    tab: Tab | None
    port: PagePort | None
    own: Callable[[Request, Done], Cancel] | None = None
