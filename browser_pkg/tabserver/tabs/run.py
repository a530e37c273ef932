"""Running call in a tab or in the worker: forwards progress, logs, questions and the result, and ends once.

A Run wraps the core's Request and implements the same Protocol, so a handler's Context uses it in its place. It also
sends activity messages to the pages that watch calls. It does not choose the tab: see `routing` and `calls`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ..handlers.context import Cancel, Done, Outcome, Request, Result, Written
from ..handlers.execute import run as run_handler
from ..handlers.questions import Answer, ClientError, InputRequired, Question, read_question
from ..handlers.resources import ResourceNotFound
from ..handlers.target import ASKING_TAB, Target
from ..handlers.tools import text_result
from ..rpc import Refusal
from ..wire.frames import Caller
from ..wire.jsonrpc import INTERNAL_ERROR, RequestId
from ..wire.trace_context import TraceContext
from .routing import RoutingError, tab_meta
from .tab import Message, PagePort, Tab

WORKER: Final = "worker"
# Pages show progress. A tool that reports it a thousand times a second must not flood them.
PROGRESS_EVERY_MS: Final = 100.0
# The most questions of one call that wait for the client at the same time.
MOST_ASKED: Final = 16
# For each kind: the list that a result must have, and the member that each item of the list must have.
_RESULTS: Final = {
    "tools": ("content", "type"),
    "resources": ("contents", "uri"),
    "templates": ("contents", "uri"),
    "prompts": ("messages", "content"),
}


class RunOwner(Protocol):
    """The owner of running calls, which knows the pages that watch them: TabCalls."""

    @property
    def now_ms(self) -> Callable[[], float]: ...
    def remove(self, run: Run) -> None: ...
    @property
    def watchers(self) -> list[PagePort]: ...


class CallerJson:
    """The caller as JSON text for tabs. The last text is cached: most calls have the same caller as the one before."""

    def __init__(self) -> None:
        self._last: tuple[Caller | None, str, str] = None, "", ""

    def of(self, caller: Caller, key: str) -> str:
        known, known_key, text = self._last
        if caller is not known or key != known_key:
            described = {
                "client": caller.client,
                "principal": caller.principal,
                "era": caller.era.value,
                "version": caller.version,
                "capabilities": caller.capabilities,
                "key": key,
                **({} if caller.acp is None else {"acp": caller.acp.to_dict()}),
            }
            text = json.dumps(described)
            self._last = caller, key, text
        return text


class Run:
    """One running call."""

    # Was it sent to its tab?
    is_sent = False
    # Class attributes, because most calls never set them.
    _is_over = False
    _questions: dict[Any, Cancel] | None = None
    _progress_sent_ms = 0.0

    def __init__(
        self,
        owner: RunOwner,
        call: str,
        kind: str,
        name: str,
        tab: Tab | None,
        request: Request,
        done: Done,
        began_ms: float | None = None,
    ) -> None:
        """`began_ms`: the call runs already, and its start needs no activity message."""
        self.call = call
        self.kind = kind
        self.name = name
        self.tab = tab
        self._owner = owner
        self._request = request
        self._done = done
        self._began_ms = owner.now_ms() if began_ms is None else began_ms
        if began_ms is None and self._is_watched:
            self._notify_watchers("started")

    @property
    def caller(self) -> Caller:
        return self._request.caller

    @property
    def request_id(self) -> RequestId:
        return self._request.request_id

    @property
    def is_cancelled(self) -> bool:
        return self._request.is_cancelled

    def pin(self, tab: str | None) -> None:
        self._request.pin(tab)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._request.progress(progress, total, message)
        now_ms = self._owner.now_ms()
        if now_ms - self._progress_sent_ms >= PROGRESS_EVERY_MS:
            self._progress_sent_ms = now_ms
            if self._is_watched:
                self._notify_watchers("progress", progress=progress, **({} if total is None else {"total": total}))

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        self._request.log(level, data, logger)

    @property
    def target(self) -> Target | None:
        return self._request.target

    @property
    def trace(self) -> TraceContext | None:
        return self._request.trace

    @property
    def caller_key(self) -> str:
        return self._request.caller_key

    @property
    def state(self) -> dict[str, Any]:
        return self._request.state

    @property
    def input_responses(self) -> Mapping[str, Answer]:
        return self._request.input_responses

    @property
    def request_state(self) -> Any:
        return self._request.request_state

    @property
    def goes_on(self) -> bool:
        return self._request.goes_on

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        return await self._request.ask(question, key)

    def close_stream(self, retry_ms: int | None) -> None:
        self._request.close_stream(retry_ms)

    def finish(self, outcome: Outcome) -> None:
        if self._is_over:
            return
        if isinstance(outcome, Refusal):
            self._end("failed", error=outcome.message[:500])
        elif isinstance(outcome, dict) and outcome.get("isError"):
            self._end("failed", error=_first_text(outcome))
        else:
            self._end("done")
        self._done(outcome)

    def fail(self, why: RoutingError) -> None:
        """End the call with an error, because no tab will answer it."""
        self.finish(why.result() if self.kind == "tools" else why.refusal())

    def call_message(self, task: Message, caller_json: CallerJson) -> str:
        """The call as JSON text for its tab: task, call id, caller, and the client's answers to earlier questions."""
        request = self._request
        caller, trace, answers = request.caller, request.trace, request.input_responses
        state = request.request_state
        more: dict[str, Any] = {} if trace is None else {"trace": trace.to_dict()}
        if answers:
            more["responses"] = answers
        if isinstance(state, dict) and state.get("state") is not None:
            more["state"] = state["state"]
        members = json.dumps({**task, **more} if more else task)
        who = caller_json.of(caller, request.caller_key)
        return f'{{"t":"call","call":"{self.call}","caller":{who},{members[1:]}'

    def receive(self, kind: str, message: Message) -> None:
        """Handle the tab's message about the call: progress, a log line, a question to the client, or an error."""
        if kind == "progress":
            self.progress(message["progress"], message.get("total"), message.get("message"))
        elif kind == "log":
            try:
                self.log(message["level"], message.get("data"), message.get("logger"))
            except ValueError as error:  # no such level: log it where the page's author reads
                self.log("warning", f"{error}: {message.get('data')}")
        elif kind == "ask":
            self._ask(message)
        elif kind == "required":
            self._require(message)
        else:
            self._fail(message)

    def receive_result(self, text: str, is_plain: bool) -> None:
        """Handle the tab's result. `is_plain`: a tool's result may be forwarded without parsing."""
        if is_plain and self.kind == "tools" and self.tab is not None:
            self.finish(Written(text, tab_meta(self.tab)))
            return
        result = json.loads(text)
        if _is_result(self.kind, result):
            self._answer(result)
        else:
            self._fail({"message": f'The page\'s answer to "{self.name}" is not a valid result.'})

    def _answer(self, result: Result) -> None:
        """Finish with a result of the tab, whose `_meta` names the tab."""
        if self.tab is not None:
            meta = result.get("_meta")
            result["_meta"] = (meta if isinstance(meta, dict) else {}) | tab_meta(self.tab)
        self.finish(result)

    def _fail(self, message: Message) -> None:
        text, code = str(message.get("message") or "The call failed in the page."), message.get("code")
        if message.get("name") == ResourceNotFound.__name__ and self.kind in ("resources", "templates"):
            data = message.get("data")
            self.finish(ResourceNotFound(str(data["uri"] if isinstance(data, dict) and "uri" in data else self.name)))
        elif isinstance(code, int):
            self.finish(Refusal(code, text, message.get("data")))
        elif self.kind == "tools":
            self._answer(text_result(text, is_error=True))
        else:
            self.finish(Refusal(INTERNAL_ERROR, text))

    def _require(self, message: Message) -> None:
        """The handler returned its questions and does not wait: it is called again with the answers."""
        try:
            asked = {key: read_question(q.get("method"), q.get("params")) for key, q in message["requests"].items()}
        except (AttributeError, ValueError) as error:
            self.finish(Refusal(INTERNAL_ERROR, f"The page's question to the client is not valid: {error}"))
        else:
            assert self.tab is not None
            self.finish(InputRequired(asked, {ASKING_TAB: self.tab.id, "state": message.get("state")}))

    # -- questions of a tab to the client -----------------------------------------------------------------------------

    def _ask(self, message: Message) -> None:
        number = message["ask"]
        asked = self._questions = {} if self._questions is None else self._questions

        def reply(outcome: Outcome) -> None:
            asked.pop(number, None)
            if not self._is_over and self.tab is not None:
                assert isinstance(outcome, dict)
                self.tab.send({"t": "answer", "call": self.call, "ask": number, **outcome})

        if len(asked) >= MOST_ASKED:
            reply(_error_reply(ValueError(f"{MOST_ASKED} questions of this call are open already")))
            return
        try:
            question = read_question(message.get("method"), message.get("params"))
        except ValueError as error:
            reply(_error_reply(error))
            return

        async def ask() -> Answer:
            return await self._request.ask(question, message.get("key"))

        name = f"question of {self.name}"
        asked[number] = run_handler(name, ask, lambda answer: {"answer": answer}, _error_reply, reply)

    def abandon(self, phase: str, **more: Any) -> None:
        """End the call without a result: the caller cancelled it, or an exception refused it."""
        if not self._is_over:
            self._end(phase, **more)

    def _end(self, phase: str, **more: Any) -> None:
        self._is_over = True
        for cancel in list(self._questions.values()) if self._questions else ():
            cancel("the call is over")
        self._owner.remove(self)
        if self._is_watched:
            self._notify_watchers(phase, ms=round(self._owner.now_ms() - self._began_ms, 1), **more)

    @property
    def _is_watched(self) -> bool:
        # Completion is requested with every key that a user presses: too often for activity messages.
        return self.kind != "completion" and bool(self._owner.watchers)

    def _notify_watchers(self, phase: str, **more: Any) -> None:
        client = (self.caller.client or {}).get("name")
        owner = self.tab.id if self.tab else WORKER
        members = {
            "t": "activity",
            "call": self.call,
            "kind": self.kind,
            "name": self.name,
            "owner": owner,
            "phase": phase,
        }
        message = {**members, **({"client": client} if client else {}), "at_ms": self._owner.now_ms(), **more}
        for port in self._owner.watchers:
            port.send(message)


def _is_result(kind: str, result: Any) -> bool:
    """Does the result have the form that MCP requires for this kind of call?"""
    if not isinstance(result, dict):
        return False
    if kind == "completion":
        return isinstance(result.get("completion"), dict)
    member, needed = _RESULTS[kind]
    items = result.get(member)
    return isinstance(items, list) and all(isinstance(item, dict) and needed in item for item in items)


def _error_reply(error: BaseException) -> Result:
    """The error for a question without an answer, as the page receives it."""
    members: dict[str, Any] = {"name": type(error).__name__, "message": str(error)}
    if isinstance(error, ClientError):
        members |= {"code": error.code, "data": {"message": error.message}}
    elif isinstance(error, Refusal):
        members |= {"code": error.code, "data": error.data}
    return {"error": members}


def _first_text(result: Result) -> str:
    texts = (block["text"] for block in result.get("content", ()) if block.get("type") == "text")
    return next(texts, "")[:500]
