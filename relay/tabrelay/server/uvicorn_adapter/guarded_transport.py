"""Transport that a guard gives to uvicorn's connection: closing, reading and upgrading go through the guard.

Everything else goes to the real transport. Reading stops while either of both sides wants it to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol


class GuardOwner(Protocol):
    """The guard of an HTTP connection."""

    is_finished: bool

    def finish(self) -> None: ...

    def upgrade(self, protocol: Any) -> None: ...


class ReadControl:
    """Reading of one transport, which two sides may pause."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pauses: set[str] = set()

    def pause(self, side: str) -> None:
        if not self._pauses and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses.add(side)

    def resume(self, side: str) -> None:
        if side in self._pauses:
            self._pauses.remove(side)
            if not self._pauses and not self._transport.is_closing():
                self._transport.resume_reading()

    def is_paused_by(self, side: str) -> bool:
        return side in self._pauses


class GuardedTransport:
    """Of an HTTP connection."""

    def __init__(self, transport: asyncio.Transport, guard: GuardOwner) -> None:
        self._transport = transport
        self._guard = guard
        self._is_upgraded = False
        self._reading = ReadControl(transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._guard.is_finished:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._guard.is_finished or self._transport.is_closing()

    def close(self) -> None:
        if self._is_upgraded:
            self._transport.close()
        else:
            self._guard.finish()

    def pause_reading(self) -> None:
        self._reading.pause("library")

    def resume_reading(self) -> None:
        self._reading.resume("library")

    def hold(self) -> None:
        """Read no more, whatever uvicorn wants."""
        self._reading.pause("guard")

    def release(self) -> None:
        self._reading.resume("guard")
        self._reading.resume("library")

    def set_protocol(self, protocol: Any) -> None:
        self._is_upgraded = True
        self._guard.upgrade(protocol)


class SocketTransport:
    """Of a WebSocket. `on_write` runs before the first bytes are written, `on_resume` when uvicorn wants to read."""

    def __init__(
        self,
        transport: asyncio.Transport,
        *,
        on_write: Callable[[], None],
        on_resume: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._on_write, self._on_resume, self.close = on_write, on_resume, on_close
        self.reading = ReadControl(transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._on_write()
        self._transport.write(data)

    def pause_reading(self) -> None:
        self.reading.pause("library")

    def resume_reading(self) -> None:
        self._on_resume()
        self.reading.resume("library")
