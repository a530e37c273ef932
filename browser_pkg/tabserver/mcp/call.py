"""Running call: one request that runs a handler, from its arrival to its single response.

One object for all of it: the MCP server makes it, the hub runs it in a tab or in the worker, and a handler's Context
wraps it (it implements `handlers.context.Request`). Exactly one response leaves, and nothing after it. Questions to the
client are in `questions`: a parked call continues with the client's next request, so a call can outlive the request
that started it. Parameters are read in `invocations`; which tab runs it is decided in `tabs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ..handlers.context import Cancel, Outcome, Result, Written
from ..handlers.questions import Answer, InputRequired, Question
from ..handlers.target import Target
from ..handlers.tools import text_result
from ..rpc import Refusal, is_finite, loggable
from ..wire import methods
from ..wire.call_times import CallTimes
from ..wire.control_messages import CLOSE_STREAM, PIN
from ..wire.eras import Era
from ..wire.frames import Acp
from ..wire.jsonrpc import INVALID_REQUEST, MISSING_CAPABILITY, RequestId
from ..wire.trace_context import TraceContext
from .caller_state import CallerStates, caller_key
from .parked_calls import ParkedHandles, StateSeal, UsedStates
from .sessions import CallerSession, Outbox

if TYPE_CHECKING:
    from .questions import ClientQuestions

Params = dict[str, Any]


class RequestMeta(NamedTuple):
    """What a request's `_meta` asks for: progress token, log level, named tab, ACP session of an editor's agent, and
    trace."""

    token: RequestId | None
    level: str | None
    target: Target | None
    acp: Acp | None
    trace: TraceContext | None


@dataclass(frozen=True, slots=True)
class MethodKind:
    """What differs between methods that run a handler: how it is started, and the form of a result and of a failure."""

    method: str
    start: Callable[[RunningCall], Cancel]
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


class CallRunner(Protocol):
    """What runs calls in tabs and in the worker: TabCalls."""

    @property
    def now_ms(self) -> Callable[[], float]: ...
    def ended(self, call: RunningCall, phase: str, error: str | None) -> None: ...
    def progressed(self, call: RunningCall, progress: float, total: float | None) -> None: ...
    def take_back(self, call: RunningCall) -> None: ...


NO_META: Final = RequestMeta(None, None, None, None, None)


class RunningCall:
    """`session`, `request_id` and `meta`: of the request that waits for the response, or waited last.

    `payload`: the request as JSON text, of which `params` are a part.
    """

    # Class attributes, because most calls never set them.
    is_over = False
    is_cancelled = False
    is_awaited = True  # does a request wait for the response?
    input_responses: Mapping[str, Answer] = MappingProxyType({})
    request_state: Any = None
    goes_on = False
    # Of a call that may become a task: see task_call.py.
    task_id: str | None = None
    is_task = False
    saved: Any = None
    _stop: Cancel | None = None
    _held_outcome: Outcome | None = None
    _last_progress: float = -math.inf
    # Set while it runs: what runs it, its id between worker and tabs, what it runs, and the tab (None: the worker).
    runner: CallRunner | None = None
    number = ""
    purpose = ""
    name = ""
    tab: Any = None
    began_ms = 0.0
    is_sent = False
    # JavaScript posted it to its tab, and may write its response: see worker/js_calls.py.
    is_granted = False
    progress_shown_ms = 0.0
    page_questions: dict[Any, Cancel] | None = None
    outcome: Outcome | None = None  # for pages that watch calls
    times: CallTimes | None  # F6: of the request that waits for the response

    def __init__(
        self,
        services: CallServices,
        kind: MethodKind,
        session: CallerSession,
        id: RequestId,
        meta: RequestMeta,
        payload: str,
        params: Params,
    ) -> None:
        self.services, self.kind = services, kind
        self.payload, self.params = payload, params
        self._use_request(session, id, meta)

    def _use_request(self, session: CallerSession, id: RequestId, meta: RequestMeta) -> None:
        self.session, self.request_id, self.meta = session, id, meta
        self.times = session.measured.get(id) if session.measured else None
        self.caller = session.caller if meta.acp is None else replace(session.caller, acp=meta.acp)
        session.running[id] = self

    @cached_property
    def questions(self) -> ClientQuestions:
        """Its questions to the client. Most calls ask none."""
        from .questions import ClientQuestions

        return ClientQuestions(self)

    @property
    def target(self) -> Target | None:
        return self.meta.target

    @property
    def trace(self) -> TraceContext | None:
        return self.meta.trace

    @property
    def caller_key(self) -> str:
        return caller_key(self.caller, self.session.id)

    @property
    def state(self) -> dict[str, Any]:
        return self.services.states.of(self.caller_key)

    # -- running ------------------------------------------------------------------------------------------------------

    def begin(self, answers: Mapping[str, Answer] | None = None, state: Any = None, *, goes_on: bool = False) -> None:
        """Run the handler. An exception means that nothing ran; it ends the call."""
        self.goes_on = goes_on
        try:
            self.run_handler(answers, state)
        except BaseException:
            self.cancel("refused")
            raise

    def run_handler(self, answers: Mapping[str, Answer] | None, state: Any) -> None:
        if answers or state is not None or self.goes_on:
            self.input_responses, self.request_state = answers or {}, state
            self.questions.receive_early(self.input_responses)
        self._stop = self.kind.start(self)
        if self.is_cancelled:  # the caller disconnected while a synchronous handler ran
            self.cancel("cancelled")

    def runs(self, runner: CallRunner, number: str, purpose: str, name: str, tab: Any, began_ms: float) -> None:
        """It runs in a tab, or in the worker, from now on."""
        self.runner, self.number, self.purpose, self.name, self.tab = runner, number, purpose, name, tab
        self.began_ms, self.is_sent = began_ms, False
        if tab is None and self.times is not None:
            self.times.begin()

    def waits(self, why: str) -> None:
        """It waits for its tab or for the user."""
        if self.times is not None:
            self.times.hold(why)

    def ran_in_page(self, began_ms: Any, ended_ms: Any) -> None:
        """The page that runs it reports when it began and ended: milliseconds since 1970."""
        if self.times is not None and self.runner is not None and is_finite(began_ms) and is_finite(ended_ms):
            now_ms = self.runner.now_ms()
            self.times.ran_in_page((now_ms - began_ms) / 1000, (now_ms - ended_ms) / 1000)

    def stopped_by(self, stop: Cancel) -> Cancel:
        """For a call that runs in the worker: `stop` stops its handler."""

        def cancel(reason: str) -> None:
            self.stop_running("cancelled")
            stop(reason)

        return cancel

    def stop_with(self, stop: Cancel) -> None:
        """It runs already, and this function stops it."""
        self._stop = stop

    def finish(self, outcome: Outcome) -> None:
        """The handler has ended. A second outcome is dropped."""
        if self.runner is not None:
            if isinstance(outcome, Refusal):
                self.stop_running("failed", outcome.message[:500])
            elif type(outcome) is dict and outcome.get("isError"):
                self.stop_running("failed", _first_text(outcome))
            else:
                self.outcome = outcome
                self.stop_running("done")
        if self.is_over:
            return
        if not self.is_awaited:
            self.hold_outcome(outcome)
        elif isinstance(outcome, InputRequired):
            self.questions.require(outcome)
        else:
            self.end(outcome)

    def hold_outcome(self, outcome: Outcome) -> None:
        """No request waits for the outcome: the retry gets it."""
        self._held_outcome = outcome

    def stop_running(self, phase: str, error: str | None = None) -> None:
        """It does not run any more: it has ended, was cancelled, or could not start."""
        runner, self.runner = self.runner, None
        if self.times is not None:
            self.times.end()
        if runner is not None:
            for cancel in list(self.page_questions.values()) if self.page_questions else ():
                cancel("the call is over")
            runner.ended(self, phase, error)

    def end(self, outcome: Result | Written | Refusal) -> None:
        """Send the response."""
        self.is_over = True
        self.detach()
        session, outbox = self.session, self.services.outbox
        if isinstance(outcome, Written):
            if session.era is Era.MODERN:
                outbox.send_written(session, self.request_id, outcome)
                return
            outcome = outcome.read()  # older versions may need another form of its content
        outcome = self._for_era(outcome, session)
        if isinstance(outcome, Refusal):
            outbox.refuse(session, self.request_id, outcome)
        else:
            is_whole = outcome.get("resultType") != "input_required"
            result = self.kind.format_result(session, outcome, self.params) if is_whole else outcome
            outbox.answer(session, self.request_id, result)

    def was_answered(self) -> None:
        """JavaScript has written the response."""
        self.is_over, self.is_granted = True, False
        self.stop_running("done")
        self.detach()
        self.services.outbox.sessions.close(self.session.id)

    def _for_era(self, outcome: Result | Refusal, session: CallerSession) -> Result | Refusal:
        # By its code: a refusal from a page arrives as a plain Refusal.
        if session.era is Era.MODERN or not isinstance(outcome, Refusal) or outcome.code != MISSING_CAPABILITY:
            return outcome
        # Handshake versions have no code for this. The result of a tool can explain it to the model.
        if self.kind.method == methods.TOOLS_CALL:
            return text_result(outcome.message, is_error=True)
        return Refusal(INVALID_REQUEST, outcome.message)

    def detach(self) -> None:
        self.session.running.pop(self.request_id, None)
        if "questions" in self.__dict__:
            self.questions.stop_timer()

    def cancel(self, reason: str) -> None:
        """Stop the handler. Nothing is sent any more."""
        self.is_over = self.is_cancelled = True
        self.detach()
        # An exception in a handler's clean-up is dropped: its caller gets no response anyway.
        with suppress(Exception):
            if "questions" in self.__dict__ and self.questions.cancel(reason):
                return
            if self._stop is not None:
                self._stop(reason)

    def run_again(self) -> bool:
        """Run the handler of a task again, with the state that it saved: its page went away. False: it can't."""
        return False

    def resume(self, session: CallerSession, id: RequestId, meta: RequestMeta, answers: Mapping[str, Answer]) -> None:
        """Continue with the client's next request. Questions without an answer are asked again."""
        self.questions.stop_timer()
        self._use_request(session, id, meta)
        self.is_awaited, self._last_progress = True, -math.inf
        if self._held_outcome is not None:
            kept, self._held_outcome = self._held_outcome, None
            self.finish(kept)
        else:
            self.questions.receive(answers)

    # -- sending ------------------------------------------------------------------------------------------------------

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self.notify_progress(progress, total, message)
        if self.runner is not None:
            self.runner.progressed(self, progress, total)

    def notify_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Notify the client only, not the pages that watch calls."""
        token = self.meta.token
        if self.is_over or token is None or not is_finite(progress) or not self.may_notify():
            return
        # MCP: the progress value MUST increase with each notification, and they MUST stop after completion.
        if progress <= self._last_progress:
            return
        self._last_progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if is_finite(total):
            params["total"] = total
        if message is not None:
            params["message"] = str(message)
        self.send_note(methods.PROGRESS, params)

    def may_notify(self) -> bool:
        """Can the client get a notification of this call now?"""
        return self.is_awaited

    def send_note(self, method: str, params: Params) -> None:
        self.services.outbox.notify(self.session, method, params, self.request_id)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if level not in methods.LOG_LEVELS:
            raise ValueError(f"unknown log level {level!r}; use one of {', '.join(methods.LOG_LEVELS)}")
        if self.is_over or not self.may_notify():
            return
        # A session may change its level while the call runs. A modern request has its own level.
        floor = self.meta.level if self.session.era is Era.MODERN else self.session.level
        if floor is None or methods.LOG_LEVELS.index(level) < methods.LOG_LEVELS.index(floor):
            return
        params = {"level": level} | ({"logger": str(logger)} if logger else {}) | {"data": loggable(data)}
        self.send_note(methods.LOG_MESSAGE, params)

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        return await self.questions.ask(question, key)

    def save(self, state: Any) -> None:
        """Only a task has a state that is kept."""

    def close_stream(self, retry_ms: int | None) -> None:
        """Ask the relay to close the SSE stream. The relay does not forward this notification."""
        if self.is_awaited and not self.is_over and self.session.era is Era.LEGACY:
            params = {} if retry_ms is None else {"retryMs": retry_ms}
            self.services.outbox.notify(self.session, CLOSE_STREAM, params, self.request_id)

    def pin(self, tab: str | None) -> None:
        """The relay stores the tab and adds it to the caller's next requests, so a pin outlives this worker."""
        session = self.session
        session.caller = replace(session.caller, tab=tab)
        self.caller = replace(self.caller, tab=tab)
        self.services.outbox.notify_relay(session, PIN, {"tab": tab}, self.request_id)


def _first_text(result: Result) -> str:
    texts = (block["text"] for block in result.get("content", ()) if block.get("type") == "text")
    return next(texts, "")[:500]
