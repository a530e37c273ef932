"""Running call: one request that runs a handler, from its start to its single response.

Exactly one response leaves, and nothing after it. Questions to a session are sent as requests. Questions to a modern
client are the response `input_required`: the handler is parked, and the client's next request becomes the waiting
request of the same call. So a call can outlive the request that started it. Parameters are read in `invocations`.
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

# Questions that a handler asks within this time are sent in one round.
COALESCE_S: Final = 0.01
ASK_S: Final = 600.0
MOST_ROUNDS: Final = 8
# Outside the ranges that JSON-RPC and MCP reserve.
GONE: Final = -31011
BUSY: Final = -31013

Start = Callable[[Request, Done], Cancel]
Params = dict[str, Any]


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """The request that currently waits for the call's response: progress token, log level, named tab, ACP session of an
    editor's agent, trace, and the last progress value that was sent."""

    session: CallerSession
    id: RequestId
    token: RequestId | None
    level: str | None
    target: Target | None = None
    acp: Acp | None = None
    trace: TraceContext | None = None
    last_progress: float = -math.inf


@dataclass(frozen=True, slots=True)
class MethodKind:
    """What differs between methods that run a handler: the form of a result (by era and params) and of a failure."""

    method: str
    format_result: Callable[[CallerSession, Result, Params], Result]
    format_failure: Callable[[BaseException], Outcome]


@dataclass(frozen=True, slots=True)
class CallServices:
    """Objects that all calls of one server share."""

    outbox: Outbox
    parked: ParkedHandles[RunningCall]
    seal: StateSeal
    used_states: UsedStates
    states: CallerStates
    clock: Callable[[], float]


class RunningCall:
    """Implements `handlers.context.Request`."""

    # Class attributes, because most calls never set them.
    is_over = False
    is_cancelled = False
    input_responses: Mapping[str, Answer] = MappingProxyType({})
    request_state: Any = None
    goes_on = False
    _rounds = 0
    _start: Start | None = None
    _stop: Cancel | None = None
    _held_outcome: Outcome | None = None
    _timer: asyncio.TimerHandle | None = None
    _question_task: asyncio.Task[None] | None = None

    def __init__(self, services: CallServices, kind: MethodKind, waiting: WaitingRequest, params: Params) -> None:
        self._office, self._kind, self._params = services, kind, params
        self._waiting: WaitingRequest | None = waiting
        self._last = waiting
        waiting.session.running[waiting.id] = self

    @cached_property
    def _open_questions(self) -> dict[str, tuple[Question[Any], asyncio.Future[Answer]]]:
        """Questions without an answer, by key."""
        return {}

    @cached_property
    def _early_answers(self) -> dict[str, Answer]:
        """Answers that arrived before their questions."""
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
        """Run the handler. An exception of `start` means that nothing ran; it ends the call."""
        self.goes_on = goes_on
        try:
            self._run_handler(start, answers, state)
        except BaseException:
            self.cancel("refused")
            raise

    def _run_handler(self, start: Start, answers: Mapping[str, Answer], state: Any) -> None:
        self._start = start
        if answers or state is not None or self._rounds:
            self.input_responses, self.request_state, self._early_answers = answers, state, dict(answers)
        self._stop = start(self, self.finish)
        if self.is_cancelled:  # the caller disconnected while a synchronous handler ran
            self.cancel("cancelled")

    def finish(self, outcome: Outcome) -> None:
        if self.is_over:
            return
        if self._waiting is None:
            self._held_outcome = outcome  # no request waits: the retry gets it
        elif isinstance(outcome, InputRequired):
            self._ask_client(outcome, self._waiting)
        else:
            self._end(outcome, self._waiting)

    def _end(self, outcome: Result | Written | Refusal, waiting: WaitingRequest) -> None:
        self.is_over = True
        self._detach(waiting)
        if isinstance(outcome, Written):
            if waiting.session.era is Era.MODERN:
                self._office.outbox.send_written(waiting.session, waiting.id, outcome)
                return
            outcome = outcome.read()  # older versions may need another form of its content
        outcome = self._for_era(outcome, waiting.session)
        if isinstance(outcome, Refusal):
            self._office.outbox.refuse(waiting.session, waiting.id, outcome)
        else:
            is_whole = outcome.get("resultType") != "input_required"
            result = self._kind.format_result(waiting.session, outcome, self._params) if is_whole else outcome
            self._office.outbox.answer(waiting.session, waiting.id, result)

    def _for_era(self, outcome: Result | Refusal, session: CallerSession) -> Result | Refusal:
        # By its code: a refusal from a page arrives as a plain Refusal.
        if session.era is Era.MODERN or not isinstance(outcome, Refusal) or outcome.code != MISSING_CAPABILITY:
            return outcome
        # Handshake versions have no code for this. The result of a tool can explain it to the model.
        if self._kind.method == methods.TOOLS_CALL:
            return text_result(outcome.message, is_error=True)
        return Refusal(INVALID_REQUEST, outcome.message)

    def _detach(self, waiting: WaitingRequest) -> None:
        waiting.session.running.pop(waiting.id, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self, reason: str) -> None:
        """Stop the handler. Nothing is sent any more."""
        self.is_over = self.is_cancelled = True
        self._detach(self._last)
        # An exception in a handler's clean-up is dropped: its caller gets no response anyway.
        with suppress(Exception):
            if self._question_task is not None:
                self._question_task.cancel(reason)
            elif self._stop is not None:
                self._stop(reason)

    # -- sending ------------------------------------------------------------------------------------------------------

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        waiting = self._waiting
        if self.is_over or waiting is None or waiting.token is None or not is_finite(progress):
            return
        # MCP: the progress value MUST increase with each notification, and they MUST stop after completion.
        if progress <= waiting.last_progress:
            return
        waiting.last_progress = progress
        params: dict[str, Any] = {"progressToken": waiting.token, "progress": progress}
        if is_finite(total):
            params["total"] = total
        if message is not None:
            params["message"] = str(message)
        self._office.outbox.notify(waiting.session, methods.PROGRESS, params, waiting.id)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if level not in methods.LOG_LEVELS:
            raise ValueError(f"unknown log level {level!r}; use one of {', '.join(methods.LOG_LEVELS)}")
        waiting = self._waiting
        if self.is_over or waiting is None:
            return
        # A session may change its level while the call runs. A modern request has its own level.
        floor = waiting.level if waiting.session.era is Era.MODERN else waiting.session.level
        if floor is None or methods.LOG_LEVELS.index(level) < methods.LOG_LEVELS.index(floor):
            return
        params = {"level": level} | ({"logger": str(logger)} if logger else {}) | {"data": loggable(data)}
        self._office.outbox.notify(waiting.session, methods.LOG_MESSAGE, params, waiting.id)

    def close_stream(self, retry_ms: int | None) -> None:
        """Ask the relay to close the SSE stream. The relay does not forward this notification."""
        waiting = self._waiting
        if waiting is not None and not self.is_over and waiting.session.era is Era.LEGACY:
            params = {} if retry_ms is None else {"retryMs": retry_ms}
            self._office.outbox.notify(waiting.session, CLOSE_STREAM, params, waiting.id)

    def pin(self, tab: str | None) -> None:
        """The relay stores the tab and adds it to the caller's next requests, so a pin outlives this worker."""
        session = self._last.session
        session.caller = replace(session.caller, tab=tab)
        self._office.outbox.notify_relay(session, PIN, {"tab": tab}, self._last.id)

    # -- asking -------------------------------------------------------------------------------------------------------

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        if self.is_over:
            raise RuntimeError("the request is over: the client can't be asked any more")
        if (needed := question.lacking(self.caller.capabilities)) is not None:
            raise MissingCapability(question.method, needed)
        if key is not None and key in self._early_answers:
            return self._early_answers.pop(key)
        if self.caller.era is Era.LEGACY:
            return await self._ask_session(question)
        key = key or new_key(question, self._open_questions, self._keys)
        if key in self._open_questions:
            raise ValueError(f"a question with the key {key!r} is already open")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._open_questions[key] = (question, answer)
        self._park_soon()
        try:
            return await answer
        finally:
            self._open_questions.pop(key, None)

    async def _ask_session(self, question: Question[Any]) -> Answer:
        session, related, params = self._last.session, self._last.id, question.params()
        if params.get("mode") == "url":
            params["elicitationId"] = secrets.token_urlsafe(12)
        id, answer = self._office.outbox.ask(session, question.method, params, related)
        try:
            async with asyncio.timeout(ASK_S):
                return await answer
        except TimeoutError:
            self._withdraw(session, id, related, "timed out")
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
        if self._timer is None and self._waiting is not None:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_S, self._park)

    def _park(self) -> None:
        """Answer the waiting request with the open questions, and park the call until the client's next request."""
        self._timer = None
        waiting, principal = self._waiting, self.caller.principal
        if waiting is None or self.is_over or not self._open_questions:
            return
        if not self._office.parked.has_room(principal):
            data = {"reason": "busy", "delivered": "unknown", "retryable": True}
            self._end(Refusal(BUSY, "Too many questions to this client are open already.", data), waiting)
            self.cancel("no room to wait")
            return
        self._detach(waiting)
        self._waiting = None
        handle = self._office.parked.park(self, principal)
        state = self._sealed({"h": handle, "p": self._office.parked.worker_id})
        self._timer = asyncio.get_running_loop().call_later(TTL_S, self._expire, handle)
        asked = {key: wire_form(question) for key, (question, _) in self._open_questions.items()}
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        self._office.outbox.answer(waiting.session, waiting.id, result)

    def _expire(self, handle: str) -> None:
        if self._office.parked.take(handle) is self:
            self.cancel("the client did not answer in time")

    def resume(self, waiting: WaitingRequest, answers: Mapping[str, Answer]) -> None:
        """Continue with the client's next request. Questions without an answer are asked again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting = self._last = waiting
        waiting.session.running[waiting.id] = self
        if self._held_outcome is not None:
            kept, self._held_outcome = self._held_outcome, None
            self.finish(kept)
            return
        for key, answer in answers.items():
            _, future = self._open_questions.pop(key, (None, None))
            if future is not None and not future.done():
                future.set_result(answer)
        if self._open_questions:
            self._park_soon()

    def _sealed(self, held: dict[str, Any]) -> str:
        until = self._office.clock() + TTL_S
        mark = digest(self._kind.method, self._params)
        return self._office.seal.close(held, self.caller.principal, mark, until)

    # -- handlers that return their questions -------------------------------------------------------------------------

    def _ask_client(self, required: InputRequired, waiting: WaitingRequest) -> None:
        missing = required.lacking(self.caller.capabilities)
        if missing is not None:
            self._end(missing, waiting)
        elif waiting.session.era is Era.MODERN:
            result: Result = {"resultType": "input_required"}
            if required.requests or required.state is None:
                result["inputRequests"] = {key: wire_form(ask) for key, ask in required.requests.items()}
            if required.state is not None:
                result["requestState"] = self._sealed({"s": required.state, "p": self._office.parked.worker_id})
            self._end(result, waiting)
        elif self._rounds >= MOST_ROUNDS:
            self._end(Refusal(INTERNAL_ERROR, f"The handler still asks after {MOST_ROUNDS} rounds."), waiting)
        else:
            self._rounds += 1
            self._question_task = asyncio.get_running_loop().create_task(self._ask_session_and_rerun(required))

    async def _ask_session_and_rerun(self, required: InputRequired) -> None:
        """Ask a session at once, then run the handler again with the answers."""
        tasks = {key: asyncio.ensure_future(self.ask(ask, None)) for key, ask in required.requests.items()}
        try:
            await asyncio.gather(*tasks.values())
            answers = {key: task.result() for key, task in tasks.items()}
            self._question_task = None
            assert self._start is not None
            self.goes_on = True
            self._run_handler(self._start, answers, required.state)
        except Exception as error:
            self._question_task = None
            self.finish(self._kind.format_failure(error))
        finally:
            for task in tasks.values():
                task.cancel()
