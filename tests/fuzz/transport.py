"""A transport without a network, and iterations of the event loop until a condition is true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

TURNS: Final = 12


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = bytearray()
        self.is_closed = False
        self.is_half_closed = False
        self.protocol: asyncio.BaseProtocol | None = None  # the next one, after an upgrade

    def write(self, data: Any) -> None:
        self.written += data

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write_eof(self) -> None:
        self.is_half_closed = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def settle(is_done: Callable[[], bool] | None = None) -> None:
    """Some iterations of the loop; with a condition, as many as it takes."""
    for _ in range(TURNS if is_done is None else 1000):
        if is_done is not None and is_done():
            return
        await asyncio.sleep(0)
    assert is_done is None, "the connection does not come to an end"
