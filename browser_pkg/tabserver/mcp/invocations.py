"""Requests that run a handler: tools/call, prompts/get, resources/read and completion/complete.

Reads their parameters, and distinguishes a new call from the retry of a call that asked its client a question. A
`requestState` is accepted once, from the same principal, for the same method and arguments. The call itself runs in
`call`; lists and sessions are in `server`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from ..handlers.context import Cancel, Outcome, Result
from ..handlers.execute import nothing_to_cancel
from ..handlers.prompts import UnknownPrompt
from ..handlers.questions import Answer, MissingCapability
from ..handlers.signature import InvalidArguments
from ..handlers.target import META_PIN, read_target
from ..handlers.tools import UnknownTool, failure, invalid_arguments, with_structured_object
from ..rpc import Refusal, read_level, unknown
from ..wire import methods
from ..wire.eras import META_LOG_LEVEL, Era
from ..wire.frames import META_ACP, Acp
from ..wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RequestId, is_request_id, show
from ..wire.static_tools import META_TAB
from ..wire.trace_context import PARENT as TRACE_PARENT
from ..wire.trace_context import TraceContext
from .call import NO_META, CallServices, MethodKind, Params, RequestMeta, RunningCall
from .caller_state import CallerStates
from .catalogue import ToolCatalogue
from .kept_tasks import LostRun
from .legacy import legacy_prompt, legacy_result
from .parked_calls import BUSY, GONE, ParkedHandles, StateSeal, UsedStates, digest
from .sessions import CallerSession, Outbox
from .task_call import TaskCall
from .task_forms import NEEDED, declares, has_tasks
from .tasks import TaskTable

MAX_RUNNING: Final = 64
# What a browser offers changes whenever a tab opens or closes, so clients must not use a copy without asking again.
UNCACHED: Final = {"ttlMs": 0, "cacheScope": "private"}

_LOST: Final = (
    "The page was reloaded or its browser restarted since it asked, and the call that waited for this answer is gone. "
    "It may have done a part of its work. Make the call again, without requestState, if doing that twice is safe."
)

MAX_TTL_MS: Final = 2**53
NewCall = Callable[[MethodKind, CallerSession, RequestId, RequestMeta, str, Params], RunningCall]


def _gone(server: str) -> dict[str, Any]:
    return {"reason": "browser_gone", "delivered": "unknown", "retryable": False, "server": server}


class Invocations:
    """Each public method takes one request. Its response is sent by the call, now or later."""

    def __init__(
        self,
        name: str,
        catalogue: ToolCatalogue,
        outbox: Outbox,
        clock: Callable[[], float],
        tasks: TaskTable,
        on_parked: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_parked`: the first call was parked, or the last one went on."""
        self._name, self._catalogue, self._tasks = name, catalogue, tasks
        parked: ParkedHandles[RunningCall] = ParkedHandles(on_change=on_parked)
        self._services = CallServices(outbox, parked, StateSeal(), UsedStates(), CallerStates(clock), clock)
        self._tool = MethodKind(methods.TOOLS_CALL, self._start_tool, _format_tool_result, failure)
        self._prompt = MethodKind(methods.PROMPTS_GET, self._start_prompt, _format_prompt, _format_failure)
        self._resource = MethodKind(methods.RESOURCES_READ, self._start_read, _format_resource, _format_failure)
        self._completion = MethodKind(methods.COMPLETION_COMPLETE, self._start_completion, _unchanged, _format_failure)
        # The last `_meta` and what was read from it: most clients send the same each time.
        self._last_meta: tuple[Params, RequestMeta] = {}, NO_META

    def format_tool_result(self, session: CallerSession, result: Result, params: Params) -> Result:
        return _format_tool_result(session, result, params)

    @property
    def parked(self) -> int:
        """Calls that wait for a client's next request."""
        return len(self._services.parked)

    def use_key(self, key: str) -> None:
        self._services.seal.use(key)

    def call_tool(self, session: CallerSession, id: RequestId, params: Params, payload: str) -> None:
        name = _text(params, "name")
        _object(params, "arguments")
        support = self._catalogue.task_support(name)
        if support is None and "task" not in params:
            self._start_or_resume(self._tool, session, id, params, payload)
        else:
            self._call_task_tool(session, id, params, payload, name, support)

    def _call_task_tool(
        self, session: CallerSession, id: RequestId, params: Params, payload: str, name: str, support: str | None
    ) -> None:
        """A call of a tool that may run as a task, or a call that asks for one. `support`: "optional" or "required"."""
        is_modern = session.era is Era.MODERN
        if is_modern and support is not None and declares(session.caller):
            self._start_or_resume(self._tool, session, id, params, payload, self._new_task_call)
        elif is_modern and support == "required":
            raise MissingCapability(f'the tool "{name}"', NEEDED)
        elif "task" in params and has_tasks(session.caller) and (support is not None or self.offers(name)):
            if support is None:
                raise Refusal(METHOD_NOT_FOUND, f'The tool "{name}" does not run as a task. Call it without `task`.')
            self._begin_task(session, id, params, payload)
        elif support == "required":
            raise Refusal(METHOD_NOT_FOUND, f'The tool "{name}" runs as a task only, and this call asks for none.')
        else:
            self._start_or_resume(self._tool, session, id, params, payload)

    def offers(self, name: str) -> bool:
        return any(tool.get("name") == name for tool in self._catalogue.tools())

    def _begin_task(self, session: CallerSession, id: RequestId, params: Params, payload: str) -> None:
        """2025-11-25: the client asks for a task, and gets it before the handler runs."""
        ttl = _object(params, "task").get("ttl")
        if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl > 0):
            raise Refusal(INVALID_PARAMS, f"params.task.ttl: expected a number of milliseconds, got {show(ttl)}")
        call = self._new_task_call(self._tool, session, id, self._read_meta(session, params), payload, params)
        try:
            task = call.become_task(None if ttl is None else int(min(ttl, MAX_TTL_MS)))
        except BaseException:
            call.cancel("refused")
            raise
        try:
            call.begin()
        except Refusal as refusal:
            self._tasks.finish(task, refusal)

    def get_prompt(self, session: CallerSession, id: RequestId, params: Params, payload: str) -> None:
        _text(params, "name")
        _texts(params, "arguments")
        self._start_or_resume(self._prompt, session, id, params, payload)

    def read_resource(self, session: CallerSession, id: RequestId, params: Params, payload: str) -> None:
        _text(params, "uri")
        self._start_or_resume(self._resource, session, id, params, payload)

    def complete(self, session: CallerSession, id: RequestId, params: Params, payload: str) -> None:
        _object(params, "ref")
        argument, context = _object(params, "argument"), _object(params, "context")
        _text(argument, "name", "params.argument")
        _text(argument, "value", "params.argument")
        _texts(context, "arguments", "params.context")
        self._start_or_resume(self._completion, session, id, params, payload)

    def adopt(self, session: CallerSession, id: RequestId, meta: RequestMeta, payload: str) -> RunningCall:
        """A plain tool call that JavaScript has posted to its tab."""
        return RunningCall(self._services, self._tool, session, id, meta, payload, json.loads(payload)["params"])

    def run_again(self, run: LostRun) -> TaskCall:
        """Start the handler of a task whose worker has ended."""
        session = CallerSession(f"task {run.task.id}", run.caller, is_single=True)
        params = json.loads(run.payload)["params"]
        meta = self._read_meta(session, params)
        call = self._new_task_call(self._tool, session, 0, meta, run.payload, params)
        call.continue_task(run.task, run.saved)
        return call

    # -- handlers -----------------------------------------------------------------------------------------------------

    def _start_tool(self, call: RunningCall) -> Cancel:
        name, arguments = call.params["name"], call.params.get("arguments")
        try:
            return self._catalogue.call(name, {} if arguments is None else arguments, call)
        except UnknownTool as error:
            _refuse_unknown("tool", error.name, self._catalogue.tools())
        except InvalidArguments as error:
            # MCP since 2025-11-25: a tool execution error, not a protocol error: the model can correct itself.
            call.finish(invalid_arguments(name, error))
        except Refusal:
            raise
        except Exception as error:
            call.finish(failure(error))
        return nothing_to_cancel

    def _start_prompt(self, call: RunningCall) -> Cancel:
        try:
            return self._catalogue.get_prompt(call.params["name"], call.params.get("arguments") or {}, call)
        except UnknownPrompt as error:
            _refuse_unknown("prompt", error.name, self._catalogue.prompts())

    def _start_read(self, call: RunningCall) -> Cancel:
        return self._catalogue.read(call.params["uri"], call)

    def _start_completion(self, call: RunningCall) -> Cancel:
        ref, argument = _object(call.params, "ref"), call.params["argument"]
        others = _texts(_object(call.params, "context"), "arguments")
        name, typed = argument["name"], argument["value"]
        if ref.get("type") == "ref/prompt":
            prompt = _text(ref, "name", "params.ref")
            try:
                return self._catalogue.complete_prompt(prompt, name, typed, others, call)
            except UnknownPrompt as error:
                _refuse_unknown("prompt", error.name, self._catalogue.prompts())
        if ref.get("type") == "ref/resource":
            uri = _text(ref, "uri", "params.ref")
            return self._catalogue.complete_resource(uri, name, typed, others, call)
        raise Refusal(INVALID_PARAMS, f"params.ref.type: expected ref/prompt or ref/resource, got {show(ref)}")

    # -- new calls and retries ----------------------------------------------------------------------------------------

    def _new_call(
        self, kind: MethodKind, session: CallerSession, id: RequestId, meta: RequestMeta, payload: str, params: Params
    ) -> RunningCall:
        return RunningCall(self._services, kind, session, id, meta, payload, params)

    def _new_task_call(
        self, kind: MethodKind, session: CallerSession, id: RequestId, meta: RequestMeta, payload: str, params: Params
    ) -> TaskCall:
        return TaskCall(self._services, kind, session, id, meta, payload, params, self._tasks)

    def _start_or_resume(
        self,
        kind: MethodKind,
        session: CallerSession,
        id: RequestId,
        params: Params,
        payload: str,
        new_call: NewCall | None = None,
    ) -> None:
        """Start a call, or resume the one that this request is a retry of."""
        if len(session.running) >= MAX_RUNNING:
            data = {"reason": "busy", "delivered": "no", "retryable": True, "server": self._name}
            raise Refusal(BUSY, f"{MAX_RUNNING} calls of this caller are running; wait for one to end", data)
        meta, new_call = self._read_meta(session, params), new_call or self._new_call
        is_modern = session.era is Era.MODERN and kind is not self._completion
        answers = _answers(params) if is_modern and "inputResponses" in params else {}
        state = params.get("requestState") if is_modern else None
        if state is None:
            # Answers without a state: the client answers before it is asked. The handler runs from its beginning.
            new_call(kind, session, id, meta, payload, params).begin(answers)
            return
        held = None
        if isinstance(state, str):
            mark = digest(kind.method, params)
            held = self._services.seal.open(state, session.caller.principal, mark, self._services.clock())
        if held is not None and "s" in held:
            if not self._services.used_states.use(held):
                raise _invalid()
            call = new_call(kind, session, id, meta, payload, params)
            self._continue_from_state(call, answers, held)
            return
        if held is not None and held.get("p") != self._services.parked.worker_id:
            # Sealed by an earlier worker, which ended, and the parked handler with it.
            if not self._is_safe(kind, params):
                raise Refusal(GONE, _LOST, _gone(self._name))
            new_call(kind, session, id, meta, payload, params).begin(answers)
            return
        parked = self._services.parked.take(held["h"]) if held is not None else None
        if parked is None:
            raise _invalid()
        parked.resume(session, id, meta, answers)

    def _continue_from_state(self, call: RunningCall, answers: Mapping[str, Answer], held: dict[str, Any]) -> None:
        """Run the handler with its own state. An earlier worker may have accepted a state that it sealed already: the
        call continues, but the user is asked for approval again."""
        try:
            # defence: a state of a worker before
            call.begin(answers, held["s"], goes_on=held.get("p") == self._services.parked.worker_id)
        except BaseException:
            self._services.used_states.release(held)  # nothing ran
            raise

    def _read_meta(self, session: CallerSession, params: Params) -> RequestMeta:
        raw = params.get("_meta", {})
        cached_raw, meta = self._last_meta
        is_modern = session.era is Era.MODERN  # in a session, a log level in `_meta` has no meaning
        if is_modern and raw == cached_raw:
            return meta
        meta = read_meta(raw, session.era)
        # Not with a token or target: Python finds values equal that JSON distinguishes, such as true and 1.
        if is_modern and meta.token is None and meta.target is None:
            self._last_meta = raw, meta
        return meta

    def _is_safe(self, kind: MethodKind, params: Params) -> bool:
        """Whether it may run from its beginning a second time. At worst the client is asked again."""
        if kind.method != methods.TOOLS_CALL:
            return True  # reading a resource or a prompt changes nothing
        tool = next((tool for tool in self._catalogue.tools() if tool.get("name") == params.get("name")), {})
        hints = tool.get("annotations", {})
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True


def _invalid() -> Refusal:
    """One error for a foreign, used, expired or misapplied state: a client that guesses learns nothing."""
    return Refusal(INVALID_PARAMS, "params.requestState is not valid, or no longer; make the request again")


def _unchanged(session: CallerSession, result: Result, params: Params) -> Result:
    return result


def _format_tool_result(session: CallerSession, result: Result, params: Params) -> Result:
    if "content" not in result:
        result = {"content": []} | result
    if not isinstance(result.get("structuredContent", result), dict):
        result = with_structured_object(result)
    return result if session.era is Era.MODERN else legacy_result(result, session.caller.version)


def _format_prompt(session: CallerSession, result: Result, params: Params) -> Result:
    return result if session.era is Era.MODERN else legacy_prompt(result, session.caller.version)


def _format_resource(session: CallerSession, result: Result, params: Params) -> Result:
    return UNCACHED | result if session.era is Era.MODERN else result


def _format_failure(error: BaseException) -> Outcome:
    return error if isinstance(error, Refusal) else Refusal(INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def _refuse_unknown(noun: str, name: str, offered: Iterable[dict[str, Any]]) -> NoReturn:
    raise Refusal(INVALID_PARAMS, unknown(noun, name, offered))


def read_meta(meta: Params, era: Era) -> RequestMeta:
    """Raises Refusal for values of the wrong type."""
    token, level = meta.get("progressToken"), meta.get(META_LOG_LEVEL)
    if token is not None and not is_request_id(token):
        raise Refusal(INVALID_PARAMS, f"params._meta.progressToken: expected string or integer, got {show(token)}")
    # 2026-07-28: without a level in the envelope no log message may be sent for the request.
    is_asked = era is Era.MODERN and level is not None
    level = read_level(level, f"params._meta.{META_LOG_LEVEL}") if is_asked else None
    target = read_target(meta) if META_TAB in meta or META_PIN in meta else None
    acp = Acp.from_dict(meta[META_ACP]) if META_ACP in meta else None
    trace = TraceContext.read(meta) if TRACE_PARENT in meta else None
    return RequestMeta(token, level, target, acp, trace)


def _answers(params: Params) -> dict[str, Answer]:
    answers = params.get("inputResponses", {})
    if not isinstance(answers, dict):
        raise Refusal(INVALID_PARAMS, f"params.inputResponses: expected object, got {show(answers)}")
    for key, answer in answers.items():
        if not isinstance(answer, dict):
            text = f"params.inputResponses[{json.dumps(key)}]: expected object, got {show(answer)}"
            raise Refusal(INVALID_PARAMS, text)
    return answers


def _text(params: Params, name: str, path: str = "params") -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise Refusal(INVALID_PARAMS, f"{path}.{name}: expected string, got {show(value)}")
    return value


def _object(params: Params, name: str, path: str = "params") -> dict[str, Any]:
    value = params.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal(INVALID_PARAMS, f"{path}.{name}: expected object, got {show(value)}")
    return value


def _texts(params: Params, name: str, path: str = "params") -> dict[str, str]:
    value = _object(params, name, path)
    for key, text in value.items():
        if not isinstance(text, str):
            raise Refusal(INVALID_PARAMS, f"{path}.{name}.{key}: expected string, got {show(text)}")
    return value
