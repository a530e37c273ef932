"""Times and sizes of the link, the times that follow from them, and sizes of what a page offers.

The watchdog and the least grace are functions of the heartbeat, so that a worker always notices a lost connection and
reconnects before the relay gives its calls up. Limits of HTTP and of MCP are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """Each one is a setting of the relay; these are the defaults. Sizes of messages are in characters."""

    ack_after_s: float = 1.0
    ack_after_messages: int = 16
    ack_after_bytes: int = 64 * 1024
    heartbeat_s: float = 15.0
    # 0: derived from the heartbeat that the relay announces.
    watchdog_s: float = 0.0
    watchdog_yield_s: float = 1.0
    # A timer that fires later than this was delayed by a stall of the process.
    late_s: float = 1.0
    greeting_s: float = 5.0
    grace_s: float = 60.0
    replay_messages: int = 1024
    replay_bytes: int = 32 * 1024 * 1024
    max_message: int = 16 * 1024 * 1024
    max_part: int = 64 * 1024
    parts_in_flight: int = 4
    large_at_once: int = 4
    # A receiver that is short of memory checks at this interval whether it may acknowledge.
    hold_s: float = 0.05


DEFAULTS: Final = Limits()

# L10: how a worker dials, unless its page sets other values.
CONNECT_S: Final = 5.0
LONGEST_DELAY_S: Final = 3.0
JITTER: Final = 0.1
# L14: a timer whose handling failed is set again after this time.
RETRY_TIMER_S: Final = 1.0

# Characters of what a page offers. The worker refuses more, and the relay leaves it out of its lists.
MAX_ITEM_NAME: Final = 128  # MCP's limit for tools
MAX_TITLE: Final = 256


def watchdog_s(heartbeat_s: float) -> float:
    """L9: a relay that was silent for this long is gone. Two heartbeats may be late or lost."""
    # defence: half-open: the watchdog is shorter than the grace
    return 2.5 * heartbeat_s


def redial_s(connect_s: float = CONNECT_S, longest_delay_s: float = LONGEST_DELAY_S) -> float:
    """L10: a worker is connected at most this long after the network is back: an attempt that began too early times
    out, the longest pause follows, and the next attempt succeeds within its time."""
    return 2 * connect_s + longest_delay_s * (1 + JITTER)


def least_grace_s(heartbeat_s: float) -> float:
    """L7: the shortest grace that loses no call of a half-open connection. The relay may lose its socket at once, while
    the worker notices only by its watchdog, and then has to dial."""
    return watchdog_s(heartbeat_s) + DEFAULTS.watchdog_yield_s + redial_s()


LARGEST_PART: Final = 512 * 1024
"""F4: the largest slice that is accepted, in characters. Workers of earlier builds send it."""
