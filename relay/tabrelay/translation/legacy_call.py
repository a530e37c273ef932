"""Call to a legacy server on behalf of a modern request, with the questions that the server asks during it.

A `LegacyCall` outlives the modern request that started it: while the client is asked, `outer` is None and the call is
parked; the retry becomes the new `outer`. It passes every event to its translator and decides nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from tabrelay.calls.calls import Call, Notice, Pending, Reply
from tabrelay.errors import RelayError
from tabrelay.translation.question_round import QuestionRound
from tabserver.wire import jsonrpc
from tabserver.wire.frames import Caller


class LegacyServer(Protocol):
    """A peer with an initialized legacy server, as the translator uses it: with legacy callers only."""

    @property
    def server(self) -> str: ...

    @property
    def about(self) -> dict[str, Any]:
        """The server's InitializeResult."""

    def start(self, pending: Pending) -> None: ...

    def cancel(self, pending: Pending, why: str) -> None: ...

    def notify(self, channel: str, caller: Caller, payload: str) -> None: ...

    def end(self, channel: str, why: str) -> None: ...

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None: ...


class CallTranslator(Protocol):
    """The translator that a legacy call reports to."""

    def receive(self, inner: LegacyCall, message: dict[str, Any]) -> None: ...

    def ended(self, inner: LegacyCall, outcome: dict[str, Any] | RelayError) -> None: ...

    def continue_call(
        self, inner: LegacyCall, outer: Pending, params: dict[str, Any], answers: dict[str, Any]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """A question of the server. `id` is None if the server ended its call with the question."""

    id: jsonrpc.RequestId | None
    method: str
    params: Any


class LegacyCall(Pending):
    """A call at the legacy server. `outer` is the modern request that waits for it; None while it is parked."""

    __slots__ = (
        *("asks", "expiry", "handle", "keys", "level", "offered", "outcome", "outer", "round", "token"),
        "translator",
    )

    def __init__(self, call: Call, outer: Pending, translator: CallTranslator) -> None:
        super().__init__(call)
        self.outer: Pending | None = outer
        self.translator = translator
        self.level: str | None = None
        self.token: object = None  # progress token of `outer`
        self.asks: dict[str, Ask] = {}
        self.round: QuestionRound | None = None  # questions that the client has not got yet
        self.offered: list[dict[str, Any]] = []
        self.keys = itertools.count(1)
        self.outcome: dict[str, Any] | RelayError | None = None  # arrived while the call was parked
        self.handle: str | None = None
        self.expiry: asyncio.TimerHandle | None = None

    def end_round(self) -> None:
        if self.round is not None:
            self.round.stop()
            self.round = None

    def notify(self, notice: Notice) -> None:
        if not self.is_done:
            self.translator.receive(self, orjson.loads(notice.payload))

    def end(self, outcome: Reply | RelayError) -> None:
        if isinstance(outcome, Reply):
            outcome.release()
        if not self.is_done:
            self.is_done = True
            self.translator.ended(self, outcome.message() if isinstance(outcome, Reply) else outcome)


class Probe(Pending):
    """A request of the relay, of which only the end is of interest."""

    __slots__ = ("_ended",)

    def __init__(self, call: Call, ended: Callable[[], None]) -> None:
        super().__init__(call)
        self._ended = ended

    def notify(self, notice: Notice) -> None:
        """Ignored."""

    def end(self, outcome: Reply | RelayError) -> None:
        if isinstance(outcome, Reply):
            outcome.release()
        if not self.is_done:
            self.is_done = True
            self._ended()
