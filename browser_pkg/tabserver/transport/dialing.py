"""Dialing interface of the transport: sockets, aborts, dialers, and the state of one attempt.

`browser.websocket` implements the protocols in a worker, fakes implement them in tests. There is no logic here: when to
dial, and what follows from an attempt, is decided in `reconnect` and `backoff`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


class OpenSocket(Protocol[P_contra]):
    """One open WebSocket."""

    def send(self, header: str, payload: P_contra | None) -> None: ...
    def close(self, code: int, reason: str) -> None: ...
    @property
    def buffered(self) -> int:
        """Bytes that were passed to `send` and have not left yet."""


class Abort(Protocol):
    """Cancels one attempt to dial; an AbortController in the browser."""

    @property
    def aborted(self) -> bool: ...
    def abort(self, reason: str) -> None: ...


class SocketDialer(Protocol[P]):
    async def dial(
        self,
        abort: Abort,
        on_message: Callable[[str, P | None], None],
        on_close: Callable[[int, str], None],
    ) -> OpenSocket[P]:
        """Return an open socket or raise DialError; once aborted, leave no socket behind."""


class DialError(Exception):
    """No socket. `why` is one of the reasons a page knows; `permanent`: dialing again would not help."""

    def __init__(self, why: str, message: str, permanent: bool = False) -> None:
        super().__init__(message)
        self.why, self.message, self.permanent = why, message, permanent


class DialTimer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], DialTimer]


@dataclass(slots=True, eq=False)
class Attempt(Generic[P]):
    """One dial and its socket. L11: events of an attempt that is not the current one are ignored.

    `early`: events of the socket between its opening and the return of `dial`.
    """

    abort: Abort
    deadline: DialTimer | None = None
    socket: OpenSocket[P] | None = None
    up_since: float | None = None
    early: list[Callable[[], None]] = field(default_factory=list)
