"""Retry policy of upstream connections: delays, probes and suspension.

connected ──lost──► attempt, 0.5 s, attempt, 1 s, attempt, 2 s, attempt, 4 s, attempt ──► failed (a child process)
                                                                                     └──► waiting: 15 s … 5 min (HTTP)
more than five such rounds in 30 s ──► suspended, until `tabrelay reconnect`

Pure: time is an argument. `Supervisor` waits and connects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

STEPS_S: Final = (0.5, 1.0, 2.0, 4.0)
MAX_ROUNDS: Final = 5
WINDOW_S: Final = 30.0
FIRST_PROBE_S: Final = 15.0
LAST_PROBE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class NextTry:
    """Try again after this. `is_probe`: the round is over, and this only checks whether the server is available."""

    delay_s: float
    is_probe: bool = False


class RetryPolicy:
    """`probes`: whether to probe a server that stays away. A child process is not probed: starting it again and again
    costs too much. `steps_s`: empty for an optional connection."""

    def __init__(self, *, probes: bool, steps_s: Sequence[float] = STEPS_S) -> None:
        self._probes = probes
        self._steps_s = steps_s
        self._rounds: deque[float] = deque(maxlen=MAX_ROUNDS + 1)
        self._step = 0
        self._probe_s = FIRST_PROBE_S
        self.attempts = 0

    def begin(self, now: float) -> bool:
        """Begin a round: the connection was lost, or a call needs it. False if there were too many lately."""
        self._rounds.append(now)
        self._step = 0
        self.attempts = 0
        return len(self._rounds) <= MAX_ROUNDS or now - self._rounds[0] > WINDOW_S

    def attempted(self) -> None:
        self.attempts += 1

    def failed(self) -> NextTry | None:
        """An attempt failed; None if that was the last."""
        if self._step < len(self._steps_s):
            self._step += 1
            return NextTry(self._steps_s[self._step - 1])
        if not self._probes:
            return None
        delay_s, self._probe_s = self._probe_s, min(self._probe_s * 2, LAST_PROBE_S)
        return NextTry(delay_s, is_probe=True)

    def connected(self) -> None:
        self._step = 0
        self._probe_s = FIRST_PROBE_S
        self.attempts = 0

    def reset(self) -> None:
        """The user requested a reconnect: forget all failures."""
        self.connected()
        self._rounds.clear()
