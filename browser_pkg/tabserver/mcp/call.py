"""One request that runs a handler: what its Context stands on, and the gate that lets out one answer and nothing after.

A handler is written once. In a session its questions go out as requests of our own. A modern client gets them as the
answer `input_required`: the request it was waiting with is over, the handler stands still in the parking, and the
client's next request takes its seat. So a call may outlive the request that began it.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from ..handlers.context import Cancel, Done, Outcome, Request, Result, Written
from ..handlers.questions import Answer, InputRequired, MissingCapability, Question, new_key, wire_form
from ..handlers.target import Target
from ..handlers.tools import text_result
from ..rpc import Refusal, is_finite, loggable
from ..wire import methods
from ..wire.control_messages import CLOSE_STREAM, PIN
from ..wire.eras import Era
from ..wire.frames import Acp, Caller
from ..wire.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, MISSING_CAPABILITY, RequestId
from ..wire.trace_context import TraceContext
from .caller_state import CallerStates, caller_key
from .outbox import Outbox
from .parked_calls import TTL_S, ParkedHandles, StateSeal, UsedStates, digest
from .sessions import CallerSession

# Questions that are asked together shall not cost the client a round each.
COALESCE_S: Final = 0.01
ASK_S: Final = 600.0
MOST_ROUNDS: Final = 8
# Outside the ranges that JSON-RPC and MCP keep for themselves.
GONE: Final = -31011
BUSY: Final = -31013

Start = Callable[[Request, Done], Cancel]
Params = dict[str, Any]


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """The request that waits for the call now, which progress and log it asked for, which tab it named, for which
    session of an editor's agent it comes, and to which trace it belongs."""

    session: CallerSession
    id: RequestId
    token: RequestId | None
    level: str | None
    target: Target | None = None
    acp: Acp | None = None
    trace: TraceContext | None = None
    reached: float = -math.inf


@dataclass(frozen=True, slots=True)
class MethodKind:
    """What differs between the methods that run something: how a result looks in an era, also by the request's params,
    and how a failure does."""

    method: str
    dress: Callable[[CallerSession, Result, Params], Result]
    fail: Callable[[BaseException], Outcome]


@dataclass(frozen=True, slots=True)
class CallServices:
    """What all calls of a core share."""

    outbox: Outbox
    parking: ParkedHandles[RunningCall]
    seal: StateSeal
    spent: UsedStates
    states: CallerStates
    clock: Callable[[], float]


class RunningCall:
    """Implements Request."""

    # Here, and not made for each call: what most never have.
    is_over = False
    is_cancelled = False
    input_responses: Mapping[str, Answer] = MappingProxyType({})
    request_state: Any = None
    goes_on = False
    _rounds = 0
    _start: Start | None = None
    _stop: Cancel | None = None
    _kept: Outcome | None = None
    _timer: asyncio.TimerHandle | None = None
    _shim: asyncio.Task[None] | None = None

    def __init__(self, office: CallServices, kind: MethodKind, seat: WaitingRequest, params: Params) -> None:
        self._office, self._kind, self._params = office, kind, params
        self._seat: WaitingRequest | None = seat
        self._last = seat
        seat.session.running[seat.id] = self

    @cached_property
    def _asks(self) -> dict[str, tuple[Question[Any], asyncio.Future[Answer]]]:
        """The questions that are open."""
        return {}

    @cached_property
    def _given(self) -> dict[str, Answer]:
        """Answers that came before their questions."""
        return {}

    @cached_property
    def _keys(self) -> itertools.count[int]:
        return itertools.count(1)

    @property
    def caller(self) -> Caller:
        caller, acp = self._last.session.caller, self._last.acp
        return caller if acp is None else replace(caller, acp=acp)

    @property
    def request_id(self) -> RequestId:
        return self._last.id

    @property
    def target(self) -> Target | None:
        return self._last.target

    @property
    def trace(self) -> TraceContext | None:
        return self._last.trace

    @property
    def caller_key(self) -> str:
        return caller_key(self.caller, self._last.session.id)

    @property
    def state(self) -> dict[str, Any]:
        return self._office.states.of(self.caller_key)

    # -- running ------------------------------------------------------------------------------------------------------

    def begin(self, start: Start, answers: Mapping[str, Answer], state: Any = None, *, goes_on: bool = False) -> None:
        """Run the handler. What `start` raises means that nothing was run, and ends the call."""
        self.goes_on = goes_on
        try:
            self._enter(start, answers, state)
        except BaseException:
            self.cancel("refused")
            raise

    def _enter(self, start: Start, answers: Mapping[str, Answer], state: Any) -> None:
        self._start = start
        if answers or state is not None or self._rounds:
            self.input_responses, self.request_state, self._given = answers, state, dict(answers)
        self._stop = start(self, self.finish)
        if self.is_cancelled:  # by a caller that left while a plain function was running
            self.cancel("cancelled")

    def finish(self, outcome: Outcome) -> None:
        if self.is_over:
            return
        if self._seat is None:
            self._kept = outcome  # nobody waits: it is for the retry
        elif isinstance(outcome, InputRequired):
            self._require(outcome, self._seat)
        else:
            self._end(outcome, self._seat)

    def _end(self, outcome: Result | Written | Refusal, seat: WaitingRequest) -> None:
        self.is_over = True
        self._leave(seat)
        if isinstance(outcome, Written):
            if seat.session.era is Era.MODERN:
                self._office.outbox.pass_on(seat.session, seat.id, outcome)
                return
            outcome = outcome.read()  # older revisions may have another form for what is in it
        outcome = self._for_era(outcome, seat.session)
        if isinstance(outcome, Refusal):
            self._office.outbox.refuse(seat.session, seat.id, outcome)
        else:
            is_whole = outcome.get("resultType") != "input_required"
            result = self._kind.dress(seat.session, outcome, self._params) if is_whole else outcome
            self._office.outbox.answer(seat.session, seat.id, result)

    def _for_era(self, outcome: Result | Refusal, session: CallerSession) -> Result | Refusal:
        # By its code: a page's own words for it arrive as a plain refusal.
        if session.era is Era.MODERN or not isinstance(outcome, Refusal) or outcome.code != MISSING_CAPABILITY:
            return outcome
        # Handshake revisions have no code for this. A tool can tell the model instead.
        if self._kind.method == methods.TOOLS_CALL:
            return text_result(outcome.message, is_error=True)
        return Refusal(INVALID_REQUEST, outcome.message)

    def _leave(self, seat: WaitingRequest) -> None:
        seat.session.running.pop(seat.id, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self, reason: str) -> None:
        """Stop it and let nothing more out."""
        self.is_over = self.is_cancelled = True
        self._leave(self._last)
        # A handler whose own clean-up fails: its caller has left and is owed nothing.
        with suppress(Exception):
            if self._shim is not None:
                self._shim.cancel(reason)
            elif self._stop is not None:
                self._stop(reason)

    # -- saying -------------------------------------------------------------------------------------------------------

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        seat = self._seat
        if self.is_over or seat is None or seat.token is None or not is_finite(progress):
            return
        # MCP: the progress value MUST increase with each notification, and they MUST stop after completion.
        if progress <= seat.reached:
            return
        seat.reached = progress
        params: dict[str, Any] = {"progressToken": seat.token, "progress": progress}
        if is_finite(total):
            params["total"] = total
        if message is not None:
            params["message"] = str(message)
        self._office.outbox.notify(seat.session, methods.PROGRESS, params, seat.id)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if level not in methods.LOG_LEVELS:
            raise ValueError(f"unknown log level {level!r}; use one of {', '.join(methods.LOG_LEVELS)}")
        seat = self._seat
        if self.is_over or seat is None:
            return
        # A session may change its level while the call runs; a modern caller says it with the request.
        floor = seat.level if seat.session.era is Era.MODERN else seat.session.level
        if floor is None or methods.LOG_LEVELS.index(level) < methods.LOG_LEVELS.index(floor):
            return
        params = {"level": level} | ({"logger": str(logger)} if logger else {}) | {"data": loggable(data)}
        self._office.outbox.notify(seat.session, methods.LOG_MESSAGE, params, seat.id)

    def close_stream(self, retry_ms: int | None) -> None:
        """Said to the relay, which keeps it to itself."""
        seat = self._seat
        if seat is not None and not self.is_over and seat.session.era is Era.LEGACY:
            params = {} if retry_ms is None else {"retryMs": retry_ms}
            self._office.outbox.notify(seat.session, CLOSE_STREAM, params, seat.id)

    def pin(self, tab: str | None) -> None:
        """The relay remembers it, and says it with the caller's next requests: it outlives this worker."""
        session = self._last.session
        session.caller = replace(session.caller, tab=tab)
        self._office.outbox.tell_relay(session, PIN, {"tab": tab}, self._last.id)

    # -- asking -------------------------------------------------------------------------------------------------------

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        if self.is_over:
            raise RuntimeError("the request is over: nobody can be asked any more")
        if (needed := question.lacking(self.caller.capabilities)) is not None:
            raise MissingCapability(question.method, needed)
        if key is not None and key in self._given:
            return self._given.pop(key)
        if self.caller.era is Era.LEGACY:
            return await self._ask_session(question)
        key = key or new_key(question, self._asks, self._keys)
        if key in self._asks:
            raise ValueError(f"a question with the key {key!r} is open already")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._asks[key] = (question, answer)
        self._park_soon()
        try:
            return await answer
        finally:
            self._asks.pop(key, None)

    async def _ask_session(self, question: Question[Any]) -> Answer:
        session, related, params = self._last.session, self._last.id, question.params()
        if params.get("mode") == "url":
            params["elicitationId"] = secrets.token_urlsafe(12)
        id, answer = self._office.outbox.ask(session, question.method, params, related)
        try:
            async with asyncio.timeout(ASK_S):
                return await answer
        except TimeoutError:
            self._withdraw(session, id, related, "it took too long")
            raise TimeoutError("The client did not answer in time.") from None
        except asyncio.CancelledError:
            self._withdraw(session, id, related, "the call was cancelled")
            raise
        finally:
            session.asked.pop(id, None)

    def _withdraw(self, session: CallerSession, id: str, related: RequestId, reason: str) -> None:
        params = {"requestId": id, "reason": reason}
        self._office.outbox.notify(session, methods.CANCELLED, params, related)

    # -- waiting for the client's next request ------------------------------------------------------------------------

    def _park_soon(self) -> None:
        if self._timer is None and self._seat is not None:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_S, self._park)

    def _park(self) -> None:
        """Answer the request that waits with the questions that are open, and stand still until the next one comes."""
        self._timer = None
        seat, principal = self._seat, self.caller.principal
        if seat is None or self.is_over or not self._asks:
            return
        if not self._office.parking.has_room(principal):
            data = {"reason": "busy", "delivered": "unknown", "retryable": True}
            self._end(Refusal(BUSY, "Too many questions to this client are open already.", data), seat)
            self.cancel("no room to wait")
            return
        self._leave(seat)
        self._seat = None
        handle = self._office.parking.park(self, principal)
        state = self._sealed({"h": handle, "p": self._office.parking.place})
        self._timer = asyncio.get_running_loop().call_later(TTL_S, self._expire, handle)
        asked = {key: wire_form(question) for key, (question, _) in self._asks.items()}
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        self._office.outbox.answer(seat.session, seat.id, result)

    def _expire(self, handle: str) -> None:
        if self._office.parking.take(handle) is self:
            self.cancel("the client did not answer in time")

    def resume(self, seat: WaitingRequest, answers: Mapping[str, Answer]) -> None:
        """The client's next request takes the seat. What it leaves out is asked again; what nobody asked is dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seat = self._last = seat
        seat.session.running[seat.id] = self
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self.finish(kept)
            return
        for key, answer in answers.items():
            _, waiting = self._asks.pop(key, (None, None))
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        if self._asks:
            self._park_soon()

    def _sealed(self, held: dict[str, Any]) -> str:
        until = self._office.clock() + TTL_S
        mark = digest(self._kind.method, self._params)
        return self._office.seal.close(held, self.caller.principal, mark, until)

    # -- handlers that return their questions -------------------------------------------------------------------------

    def _require(self, required: InputRequired, seat: WaitingRequest) -> None:
        missing = required.lacking(self.caller.capabilities)
        if missing is not None:
            self._end(missing, seat)
        elif seat.session.era is Era.MODERN:
            result: Result = {"resultType": "input_required"}
            if required.requests or required.state is None:
                result["inputRequests"] = {key: wire_form(ask) for key, ask in required.requests.items()}
            if required.state is not None:
                result["requestState"] = self._sealed({"s": required.state, "p": self._office.parking.place})
            self._end(result, seat)
        elif self._rounds >= MOST_ROUNDS:
            self._end(Refusal(INTERNAL_ERROR, f"The handler still asks after {MOST_ROUNDS} rounds."), seat)
        else:
            self._rounds += 1
            self._shim = asyncio.get_running_loop().create_task(self._converse(required))

    async def _converse(self, required: InputRequired) -> None:
        """A session is asked at once, and the handler is entered again with the answers."""
        tasks = {key: asyncio.ensure_future(self.ask(ask, None)) for key, ask in required.requests.items()}
        try:
            await asyncio.gather(*tasks.values())
            answers = {key: task.result() for key, task in tasks.items()}
            self._shim = None
            assert self._start is not None
            self.goes_on = True
            self._enter(self._start, answers, required.state)
        except Exception as error:
            self._shim = None
            self.finish(self._kind.fail(error))
        finally:
            for task in tasks.values():
                task.cancel()
