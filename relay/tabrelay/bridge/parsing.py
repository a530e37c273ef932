"""Large messages, parsed in a thread: the event loop goes on meanwhile.

The bridge carries messages of any number of values, so it does not refuse those that take long to parse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

Read = TypeVar("Read")

# defence: bridge's loop time: large messages are parsed in a thread
LARGE: Final = 256 * 1024
"""Bytes of a message that is parsed in the event loop."""
LINES_AT_ONCE: Final = 64  # in one callback of the event loop


async def parsed(read: Callable[[bytes], Read], raw: bytes) -> Read:
    """What `read` makes of the message; raises what it raises."""
    return read(raw) if len(raw) <= LARGE else await asyncio.to_thread(read, raw)
