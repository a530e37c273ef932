"""Call that the fast path started, as a value: all that the regular path needs to continue it.

It holds no behaviour: `worker/fast_path.py` creates it, and `tabs/calls.py` continues with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..handlers.context import Cancel, Done, Request
from ..wire.events import Received
from .tab import PagePort, Tab


class PlainCall(NamedTuple):
    """`tab` and `port`: where the call was sent; or `own`: how it continues in the worker. `name`: the tool's name as
    the caller gave it. A NamedTuple, because one is created for each call."""

    event: Received[str]
    call: str
    name: str
    began_ms: float
    tab: Tab | None
    port: PagePort | None
    own: Callable[[Request, Done], Cancel] | None = None
