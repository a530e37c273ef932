"""One dial and the socket that it gave. Values only: when to dial, and what comes of it, is decided elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ..wire.events import Parted
from .dialing import Abort, OpenSocket

P = TypeVar("P")


class DialTimer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], DialTimer]


@dataclass(slots=True, eq=False)
class Attempt(Generic[P]):
    """One dial and the socket it gave. Whatever comes from an attempt that is not the current one is ignored."""

    abort: Abort
    deadline: DialTimer | None = None
    socket: OpenSocket[P] | None = None
    up_since: float | None = None
    parted: Parted | None = None
    outbox: deque[tuple[str, P | None]] = field(default_factory=deque)
    early: list[Callable[[], None]] = field(default_factory=list)
