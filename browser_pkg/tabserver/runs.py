"""A call that runs in a tab or in the worker itself: what the MCP core asked for, as the tabs see it.

It is the Request that a handler's Context stands on, with somebody looking over its shoulder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from .context import Cancel, Done, Outcome, Request, Result
from .messages import Refusal
from .places import Astray, about
from .questions import Answer, ClientError, InputRequired, Question, read_question
from .resources import ResourceNotFound
from .running import run as run_handler
from .tabs import Message, Tab
from .targets import ASKING_TAB, Target
from .tools import text_result
from .wire.frames import Caller
from .wire.jsonrpc import INTERNAL_ERROR, RequestId

WORKER: Final = "worker"
# Pages show progress; a tool that reports it a thousand times a second must not drown them.
PROGRESS_EVERY_MS: Final = 100.0
# Questions of one call that wait for the client at the same time.
MOST_ASKED: Final = 16
# The list that a result of each kind has, and what each item of it has.
_RESULTS: Final = {
    "tools": ("content", "type"),
    "resources": ("contents", "uri"),
    "templates": ("contents", "uri"),
    "prompts": ("messages", "content"),
}


class House(Protocol):
    """Who keeps the calls and tells the tabs: the hub."""

    @property
    def now_ms(self) -> Callable[[], float]: ...
    def forget(self, run: Run) -> None: ...
    def broadcast(self, message: Message) -> None: ...


class Run:
    """One running call. It passes on what its tool says and asks, and lets the tabs watch."""

    def __init__(
        self, house: House, call: str, kind: str, name: str, tab: Tab | None, request: Request, done: Done
    ) -> None:
        self.call = call
        self.kind = kind
        self.name = name
        self.tab = tab
        self._house = house
        self._request = request
        self._done = done
        self._is_over = False
        self._asked: dict[Any, Cancel] = {}
        self._began_ms = house.now_ms()
        self._progress_told_ms = 0.0
        name_of_client = (request.caller.client or {}).get("name")
        self._client = {"client": name_of_client} if name_of_client else {}
        self._say("started")

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
        now_ms = self._house.now_ms()
        if now_ms - self._progress_told_ms >= PROGRESS_EVERY_MS:
            self._progress_told_ms = now_ms
            self._say("progress", progress=progress, **({} if total is None else {"total": total}))

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        self._request.log(level, data, logger)

    @property
    def target(self) -> Target | None:
        return self._request.target

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

    def fail(self, why: Astray) -> None:
        """No tab answers it, for a reason that its caller is told."""
        self.finish(why.result() if self.kind == "tools" else why.refusal())

    def header(self) -> dict[str, Any]:
        """What every call tells its tab: which it is, who calls, and the answers it may have asked for before."""
        caller = self.caller
        told: dict[str, Any] = {
            "call": self.call,
            "caller": {
                "client": caller.client,
                "principal": caller.principal,
                "era": caller.era.value,
                "version": caller.version,
                "capabilities": caller.capabilities,
                "key": self.caller_key,
                **({} if caller.acp is None else {"acp": caller.acp.to_dict()}),
            },
        }
        if self.input_responses:
            told["responses"] = self.input_responses
        state = self.request_state
        if isinstance(state, dict) and state.get("state") is not None:
            told["state"] = state["state"]
        return told

    def hear(self, kind: str, message: Message, body: str | None) -> None:
        """What the tab says about it: progress, a log line, a question to the client, or how it ended."""
        if kind == "progress":
            self.progress(message["progress"], message.get("total"), message.get("message"))
        elif kind == "log":
            try:
                self.log(message["level"], message.get("data"), message.get("logger"))
            except ValueError as error:  # no such level: say it where the page's author looks
                self.log("warning", f"{error}: {message.get('data')}")
        elif kind == "ask":
            self._ask(message)
        elif kind == "required":
            self._require(message)
        elif kind == "error":
            self._fail(message)
        else:
            result = json.loads(body or "null")
            if _is_result(self.kind, result):
                self._answer(result)
            else:
                self._fail({"message": f'The page\'s answer for "{self.name}" is no result.'})

    def _answer(self, result: Result) -> None:
        """The tab's own answer, which says that it is."""
        if self.tab is not None:
            meta = result.get("_meta")
            result["_meta"] = (meta if isinstance(meta, dict) else {}) | about(self.tab)
        self.finish(result)

    def _fail(self, message: Message) -> None:
        text, code = str(message.get("message") or "It failed in the page."), message.get("code")
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
        """A handler that does not wait for the answers: it is called again with them."""
        try:
            asked = {key: read_question(q.get("method"), q.get("params")) for key, q in message["requests"].items()}
        except (AttributeError, ValueError) as error:
            self.finish(Refusal(INTERNAL_ERROR, f"The page asks what can't be asked: {error}"))
        else:
            assert self.tab is not None
            self.finish(InputRequired(asked, {ASKING_TAB: self.tab.id, "state": message.get("state")}))

    # -- questions of a tab to the client -----------------------------------------------------------------------------

    def _ask(self, message: Message) -> None:
        number = message["ask"]

        def told(outcome: Outcome) -> None:
            self._asked.pop(number, None)
            if not self._is_over and self.tab is not None:
                assert isinstance(outcome, dict)
                self.tab.send({"t": "answer", "call": self.call, "ask": number, **outcome})

        if len(self._asked) >= MOST_ASKED:
            told(_no_answer(ValueError(f"{MOST_ASKED} questions of this call are open already")))
            return
        try:
            question = read_question(message.get("method"), message.get("params"))
        except ValueError as error:
            told(_no_answer(error))
            return

        async def ask() -> Answer:
            return await self._request.ask(question, message.get("key"))

        name = f"question of {self.name}"
        self._asked[number] = run_handler(name, ask, lambda answer: {"answer": answer}, _no_answer, told)

    def abandon(self, phase: str, **more: Any) -> None:
        """It is over without a result: the caller left, or the call was refused by an exception."""
        if not self._is_over:
            self._end(phase, **more)

    def _end(self, phase: str, **more: Any) -> None:
        self._is_over = True
        for cancel in list(self._asked.values()):
            cancel("the call is over")
        self._house.forget(self)
        self._say(phase, ms=round(self._house.now_ms() - self._began_ms, 1), **more)

    def _say(self, phase: str, **more: Any) -> None:
        if self.kind == "completion":
            return  # comes with every key that a user presses
        owner = self.tab.id if self.tab else WORKER
        said = {
            "t": "activity",
            "call": self.call,
            "kind": self.kind,
            "name": self.name,
            "owner": owner,
            "phase": phase,
        }
        self._house.broadcast({**said, **self._client, "at_ms": self._house.now_ms(), **more})


def _is_result(kind: str, result: Any) -> bool:
    """Has it the form that MCP wants for this kind of call?"""
    if not isinstance(result, dict):
        return False
    if kind == "completion":
        return isinstance(result.get("completion"), dict)
    member, needed = _RESULTS[kind]
    items = result.get(member)
    return isinstance(items, list) and all(isinstance(item, dict) and needed in item for item in items)


def _no_answer(error: BaseException) -> Result:
    """Why there is no answer, as the page gets it."""
    said: dict[str, Any] = {"name": type(error).__name__, "message": str(error)}
    if isinstance(error, ClientError):
        said |= {"code": error.code, "data": {"message": error.message}}
    elif isinstance(error, Refusal):
        said |= {"code": error.code, "data": error.data}
    return {"error": said}


def _first_text(result: Result) -> str:
    texts = (block["text"] for block in result.get("content", ()) if block.get("type") == "text")
    return next(texts, "")[:500]
