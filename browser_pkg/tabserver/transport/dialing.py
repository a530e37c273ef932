"""The seam between the transport and whatever opens sockets: `browser` in a worker, fakes in tests. Protocols only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


class OpenSocket(Protocol[P_contra]):
    """One WebSocket that is open."""

    def send(self, header: str, payload: P_contra | None) -> None: ...
    def close(self, code: int, reason: str) -> None: ...
    @property
    def buffered(self) -> int:
        """Bytes that were given to `send` and have not left yet."""


class Abort(Protocol):
    """Gives up one attempt to dial; an AbortController in the browser."""

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
    """No socket. `why` is one of the reasons a page knows; `permanent`: dialling again would not help."""

    def __init__(self, why: str, message: str, permanent: bool = False) -> None:
        super().__init__(message)
        self.why, self.message, self.permanent = why, message, permanent
