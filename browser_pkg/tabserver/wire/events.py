"""What a link tells its shell. Values only; the link makes them, the shell acts on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .frames import Caller, Kind
from .jsonrpc import RequestId

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The link is up. `resumed` is False when this is a new session: whatever was open before is gone.

    `static_tools`: the relay says that this server has them. `approve`: which calls must be allowed first. `key`: what
    the server seals with that its clients carry for it.
    """

    resumed: bool
    epoch: str
    build: str
    static_tools: bool = False
    approve: str = "page"
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Opened:
    channel: str
    caller: Caller


@dataclass(slots=True)
class Received(Generic[P]):
    """Not frozen: there is one for each message, and in a browser that would take five times as long to make."""

    channel: str
    kind: Kind
    id: RequestId | None
    related: RequestId | None
    payload: P
    caller: Caller | None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Closed:
    channel: str
    why: str


@dataclass(frozen=True, slots=True)
class Parted:
    """The other end said goodbye; the socket closes next. `code` says whether and when to come back."""

    code: int
    reason: str
    retry_ms: int | None


@dataclass(frozen=True, slots=True)
class Violation:
    """The other end broke the protocol: say bye and close this socket with 4400. The session may still be resumed,
    unless it sent `too_much`: then close with 1009, and the session is over."""

    reason: str
    too_much: bool = False


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """L16: the other end closed a socket rather than take this frame, and will not be sent it again. `kind`: None for
    an `open` or a `close`."""

    channel: str
    kind: Kind | None
    id: RequestId | None


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing was heard for too long: close this socket and dial again."""

    waited_for: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The grace is over: the session can't be resumed any more."""


Event = Welcomed | Opened | Received[Any] | Closed | Parted | Violation | Undeliverable | Silence | Expired
