"""Parsing of large messages in a thread, so that the event loop continues.

The bridge does not limit the number of values in a message, so it does not refuse those that take long to parse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

Read = TypeVar("Read")

# defence: bridge's loop time: large messages are parsed in a thread
LARGE: Final = 256 * 1024
"""Messages up to this number of bytes are parsed in the event loop."""
LINES_AT_ONCE: Final = 64  # in one callback of the event loop


async def parsed(read: Callable[[bytes], Read], raw: bytes) -> Read:
    """The result of `read`; raises what it raises."""
    return read(raw) if len(raw) <= LARGE else await asyncio.to_thread(read, raw)
