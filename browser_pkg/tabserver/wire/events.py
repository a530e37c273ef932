"""Events that a link returns to its shell, as values.

`Link.events()` returns them in order. The link makes them; what follows from one is decided by the shell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .call_times import CallTimes
from .frames import Caller, Kind
from .jsonrpc import RequestId

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The link is up. `resumed` is False for a new session: all channels of the last one are gone.

    `static_tools`: this server has them. `approve`: which calls need an approval. `key`: the key with which the server
    seals the state that its clients carry for it. `tasks`: bounds of its tasks.
    """

    resumed: bool
    epoch: str
    build: str
    static_tools: bool = False
    approve: str = "page"
    key: str = field(default="", repr=False)
    tasks: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    channel: str
    caller: Caller


@dataclass(slots=True)
class Received(Generic[P]):
    """Not frozen: there is one for each message, and a frozen one takes five times as long to make in a browser."""

    channel: str
    kind: Kind
    id: RequestId | None
    related: RequestId | None
    payload: P
    caller: Caller | None
    again: bool = False
    # F6: this request asks for its times; these are taken of it; this response reports them.
    is_measured: bool = False
    times: CallTimes | None = None
    reported: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    channel: str
    why: str


@dataclass(frozen=True, slots=True)
class ByeReceived:
    """The other end sent `bye`; the socket closes next. `code` decides whether and when to dial again."""

    code: int
    reason: str
    retry_ms: int | None


@dataclass(frozen=True, slots=True)
class Violation:
    """The other end violated the protocol: send `bye` and close this socket with 4400. The session may still be
    resumed, except after `too_much`: then close with 1009, and the session is over."""

    reason: str
    too_much: bool = False


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """L16: the other end closed a socket because of this frame, which is not sent again. `kind`: None for an `open` or
    a `close`."""

    channel: str
    kind: Kind | None
    id: RequestId | None


@dataclass(frozen=True, slots=True)
class Silence:
    """L9: no frame was received for too long: close this socket and dial again."""

    waited_for: str


@dataclass(frozen=True, slots=True)
class Expired:
    """L7: the grace is over: the session can't be resumed any more."""


@dataclass(frozen=True, slots=True)
class ClockRead:
    """F7: the other end's clock read `theirs` seconds after it received our stamp."""

    stamp: int
    theirs: float


Event = (
    Welcomed | Opened | Received[Any] | Closed | ByeReceived | Violation | Undeliverable | Silence | Expired | ClockRead
)
