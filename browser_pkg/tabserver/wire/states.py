"""State machine of the link: roles, phases, transitions, and the frames that each phase accepts.

Both tables are exhaustive: a transition or a frame that is not listed is refused. docs/reference/link.md shows the
transitions as a diagram that a test generates from here. What a transition does is in `link`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """DIALER: the worker. ACCEPTER: the relay."""

    DIALER = "dialer"
    ACCEPTER = "accepter"


class Phase(StrEnum):
    """DOWN: no socket. GREETING: a socket, no welcome yet. UP: messages flow. OVER: the session can't be resumed."""

    DOWN = "down"
    GREETING = "greeting"
    UP = "up"
    OVER = "over"


# (phase, event) -> phase
TRANSITIONS: Final[dict[tuple[Phase, str], Phase]] = {
    (Phase.DOWN, "connected"): Phase.GREETING,
    (Phase.GREETING, "greeted"): Phase.UP,
    (Phase.GREETING, "disconnected"): Phase.DOWN,
    (Phase.UP, "disconnected"): Phase.DOWN,
    (Phase.DOWN, "expired"): Phase.OVER,
}

# Every other frame is a violation.
ACCEPTS: Final[dict[tuple[Role, Phase], frozenset[str]]] = {
    (Role.DIALER, Phase.GREETING): frozenset({"welcome", "bye"}),
    (Role.DIALER, Phase.UP): frozenset({"open", "msg", "close", "part", "ack", "bye"}),
    (Role.ACCEPTER, Phase.GREETING): frozenset({"hello", "bye"}),
    (Role.ACCEPTER, Phase.UP): frozenset({"msg", "close", "part", "ack", "bye"}),
}
