"""Times and sizes of the link, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """Every one is a setting of the relay; these are the defaults. Sizes of messages are characters."""

    ack_after_s: float = 1.0
    ack_after_messages: int = 16
    ack_after_bytes: int = 64 * 1024
    heartbeat_s: float = 20.0
    watchdog_s: float = 50.0
    watchdog_yield_s: float = 1.0
    # A timer that fires later than this was held up by a stall of the process.
    late_s: float = 1.0
    greeting_s: float = 5.0
    grace_s: float = 30.0
    replay_messages: int = 1024
    replay_bytes: int = 32 * 1024 * 1024
    max_message: int = 16 * 1024 * 1024
    max_part: int = 64 * 1024
    parts_in_flight: int = 4
    large_at_once: int = 4
    # A receiver that is short of memory looks again this often whether it may acknowledge.
    hold_s: float = 0.05


DEFAULTS: Final = Limits()
LARGEST_PART: Final = 512 * 1024
"""What the other end may send as a slice, in characters: workers of earlier builds do."""
