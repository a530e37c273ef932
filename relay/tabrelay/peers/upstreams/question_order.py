"""Turns of calls that may ask questions, where a server's questions do not name their call.

On a pipe a question names no call. It can be attributed only while one call can have caused it, so calls that may ask
take turns. A call has the turn from when it is sent until it ends, or until its question is out; it gets the turn back
before it gets its answer. Which tools ask is recorded: one that never asked needs no turn, and an unknown one waits for
it only a moment. No I/O, and independent of the transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.translation.shared_calls import TrackedCall
from tabserver.wire import methods

# Parallel questions of a call arrive together. After this, a call that waits for an answer asks nothing else.
BURST_S: Final = 0.25
# For an unknown tool: most tools that ask do so at the start.
UNKNOWN_WAIT_S: Final = 1.0
# For a tool that is known to ask. After this it runs without a turn, and its question may have to wait.
ASKING_WAIT_S: Final = 10.0
MAX_HISTORY: Final = 4096


class AskHistory:
    """Which tools, prompts and resources of a server ask questions during a call."""

    def __init__(self) -> None:
        self._asks: dict[str, bool] = {}

    def get(self, what: str) -> bool | None:
        return self._asks.get(what)

    def record(self, what: str, *, asks: bool) -> None:
        """A target that asked once may ask again."""
        if what in self._asks or len(self._asks) < MAX_HISTORY:
            self._asks[what] = asks or self._asks.get(what, False)


@dataclass(slots=True)
class QuestionTurn:
    """State of one call that may ask."""

    what: str
    is_active: bool = False
    has_asked: bool = False
    questions: int = 0
    timer: asyncio.TimerHandle | None = None
    is_waiting: bool = False


class QuestionQueue:
    """The turns of one connection."""

    def __init__(self, history: AskHistory) -> None:
        self._history = history
        self._turns: dict[TrackedCall, QuestionTurn] = {}
        self._freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def acquire(self, running: TrackedCall, what: str) -> None:
        """Wait for the turn, if this call needs it."""
        turn = self._turns[running] = QuestionTurn(what)
        asks = self._history.get(what)
        if asks is not False:
            await self._wait_for_turn(running, turn, ASKING_WAIT_S if asks else UNKNOWN_WAIT_S)

    async def _wait_for_turn(self, running: TrackedCall, turn: QuestionTurn, patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                while any(one.is_active and other.channel != running.channel for other, one in self._turns.items()):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            return
        turn.is_active = True

    def release(self, running: TrackedCall, *, is_answered: bool) -> None:
        turn = self._turns.pop(running, None)
        if turn is None:
            return
        if turn.timer is not None:
            turn.timer.cancel()
        if is_answered:
            self._history.record(turn.what, asks=turn.has_asked)
        self._freed.set()

    def asked(self, running: TrackedCall) -> None:
        """The question was sent to its caller."""
        turn = self._turns.get(running)
        if turn is None:
            return
        turn.has_asked = True
        turn.questions += 1
        self._history.record(turn.what, asks=True)
        if turn.timer is None and not turn.is_waiting:
            turn.timer = self._loop.call_later(BURST_S, self._yield_turn, turn)

    def _yield_turn(self, turn: QuestionTurn) -> None:
        turn.timer = None
        if turn.questions:
            turn.is_waiting, turn.is_active = True, False
            self._freed.set()

    async def answered(self, running: TrackedCall) -> None:
        """The answer has arrived. Return when it may be passed to the server."""
        turn = self._turns.get(running)
        if turn is None:
            return
        turn.questions -= 1
        if turn.is_waiting:
            await self._wait_for_turn(running, turn, ASKING_WAIT_S)
            turn.is_waiting = False

    def withdrawn(self, running: TrackedCall) -> None:
        """The server withdrew its question and goes on with the call."""
        turn = self._turns.get(running)
        if turn is not None:
            turn.questions -= 1
            turn.is_waiting = turn.is_waiting and turn.questions > 0

    def candidates(self, speakers: Sequence[TrackedCall]) -> list[TrackedCall]:
        """Calls that can have caused a question that has just arrived. Among calls of one client the history counts;
        between clients nothing is guessed."""
        able = [running for running in speakers if not self._is_waiting(running)] or list(speakers)
        if len({_client(running) for running in able}) == 1:
            return [running for running in able if not self._never_asks(running)] or able
        return able

    def _is_waiting(self, running: TrackedCall) -> bool:
        return running in self._turns and self._turns[running].is_waiting

    def _never_asks(self, running: TrackedCall) -> bool:
        return running in self._turns and self._history.get(self._turns[running].what) is False


def target_of(method: str, params: dict[str, Any] | None) -> str:
    """The target of a call: a tool, a prompt or a resource."""
    name = (params or {}).get("uri" if method == methods.RESOURCES_READ else "name")
    return f"{method} {name}" if isinstance(name, str) and len(name) <= 1024 else method


def _client(running: TrackedCall) -> str:
    caller = running.pending.call.caller
    return repr((caller.principal, caller.client, caller.capabilities))
