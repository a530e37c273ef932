"""When to connect again, and whether: pure, it is told the time.

connected ──lost──► attempt, 0.5 s, attempt, 1 s, attempt, 2 s, attempt, 4 s, attempt ──► failed (a child process)
                                                                                     └──► waiting: 15 s … 5 min (HTTP)
more than five such rounds in 30 s ──► suspended, until somebody says so
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
    """Try again after this. `is_probe`: the round is over, and this is only to see whether somebody is there now."""

    delay_s: float
    is_probe: bool = False


class RetryPolicy:
    """`probes`: whether a server that stays away is looked for. A child process is not: starting it over and over would
    cost more than it brings. `steps_s`: none for a connection that can be done without."""

    def __init__(self, *, probes: bool, steps_s: Sequence[float] = STEPS_S) -> None:
        self._probes = probes
        self._steps_s = steps_s
        self._rounds: deque[float] = deque(maxlen=MAX_ROUNDS + 1)
        self._step = 0
        self._probe_s = FIRST_PROBE_S
        self.attempts = 0

    def begin(self, now: float) -> bool:
        """A round begins: the connection was lost, or a call wants one. False if there were too many lately."""
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
        """Somebody asked for it by hand: nothing counts any more."""
        self.connected()
        self._rounds.clear()
