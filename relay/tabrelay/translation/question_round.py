"""Round of questions: when a server has sent all questions that it asks at once.

A modern client answers several questions in one round, and a server of the handshake era sends each in a message of its
own. Each question restarts a short wait. A process on a busy machine may pause for longer between two of them, so it
gets a ping too: it reads the ping after the pause, and answers it after the rest of its questions. A server that does
not answer the ping delays its round by MOST_COALESCE_S at most. The questions themselves are not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

COALESCE_S: Final = 0.1
MOST_COALESCE_S: Final = 1.0

Ping = Callable[[Callable[[], None]], Callable[[], None] | None]
"""Sends a ping and returns a function that cancels it; None if it could not be sent. It calls its argument when the
ping is answered."""


class QuestionRound:
    """One round of one call. `on_complete` is called once, unless the round is stopped before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ping: Ping, on_complete: Callable[[], None]) -> None:
        self._loop = loop
        self._ping = ping
        self._on_complete = on_complete
        self._ends = loop.time() + MOST_COALESCE_S
        self._timer: asyncio.TimerHandle | None = None
        self._is_quiet = False
        self._is_pinging = False
        self._cancel_ping: Callable[[], None] | None = None

    def add(self) -> None:
        """A question has arrived."""
        self._is_quiet = False
        # defence: questions that a server asks one after another
        self._start_timer(min(COALESCE_S, self._left_s), self._quiet)
        # defence: questions of a server that pauses between them
        if not self._is_pinging:
            self._is_pinging = True
            self._cancel_ping = self._ping(self._answered)
            self._is_pinging = self._is_pinging and self._cancel_ping is not None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_pinging and self._cancel_ping is not None:
            self._is_pinging = False
            self._cancel_ping()

    @property
    def _left_s(self) -> float:
        return max(0.0, self._ends - self._loop.time())

    def _start_timer(self, delay_s: float, expired: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, expired)

    def _quiet(self) -> None:
        self._is_quiet = True
        if self._is_pinging and self._left_s:
            self._start_timer(self._left_s, self._complete)
        else:
            self._complete()

    def _answered(self) -> None:
        self._is_pinging = False
        if self._is_quiet:
            self._complete()

    def _complete(self) -> None:
        self.stop()
        self._on_complete()
