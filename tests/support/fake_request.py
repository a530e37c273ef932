"""A request for a handler without an MCP core: records what the handler sends, and answers its questions from a
list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tabserver.handlers.questions import Answer, InputRequired, Question
from tabserver.handlers.target import Target
from tabserver.mcp.call import RequestMeta, RunningCall
from tabserver.mcp.sessions import CallerSession
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tabserver.wire.jsonrpc import RequestId
from tabserver.wire.trace_context import TraceContext


class RecordingRequest:
    """Implements Request."""

    def __init__(self, caller: Caller | None = None) -> None:
        self.caller = caller or Caller(Era.MODERN, "2026-07-28", "token:ab12", {"name": "probe", "version": "1"})
        self.request_id: RequestId = 7
        self.is_cancelled = False
        self.target: Target | None = None
        self.said: list[tuple[Any, ...]] = []
        self.asked: list[tuple[str | None, str, dict[str, Any]]] = []
        self.answers: list[Answer] = []
        self.caller_key = "test"
        self.state: dict[str, Any] = {}
        self.input_responses: Mapping[str, Answer] = {}
        self.request_state: Any = None
        self.goes_on = False
        self.trace: TraceContext | None = None
        self.task_id: str | None = None
        self.saved: Any = None

    def pin(self, tab: str | None) -> None:
        self.caller = replace(self.caller, tab=tab)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self.said.append(("progress", progress, total, message))

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if level == "loud":
            raise ValueError("unknown log level 'loud'")
        self.said.append(("log", level, data))

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        self.asked.append((key, question.method, question.params()))
        return self.answers.pop(0)

    def save(self, state: Any) -> None:
        self.said.append(("save", state))

    def close_stream(self, retry_ms: int | None) -> None:
        self.said.append(("close_stream", retry_ms))


class RecordingCall(RunningCall):
    """A call for the hub without an MCP core: passes its messages to a RecordingRequest, and its outcome to `done`."""

    def __init__(self, request: RecordingRequest, done: Callable[[Any], None]) -> None:
        self._request, self._done = request, done
        session = CallerSession("c", request.caller, False)
        meta = RequestMeta(None, None, request.target, None, request.trace)
        services: Any = None
        kind: Any = None
        super().__init__(services, kind, session, request.request_id, meta, "{}", {})
        self.input_responses, self.request_state = request.input_responses, request.request_state
        self.goes_on = request.goes_on

    @property
    def caller_key(self) -> str:
        return self._request.caller_key

    @property
    def state(self) -> dict[str, Any]:
        return self._request.state

    def end(self, outcome: Any) -> None:
        self.is_over = True
        self._done(outcome)

    def finish(self, outcome: Any) -> None:
        if isinstance(outcome, InputRequired):
            self.stop_running("done")
            self.end(outcome)
        else:
            super().finish(outcome)

    def pin(self, tab: str | None) -> None:
        self._request.pin(tab)
        self.session.caller = self.caller = self._request.caller

    def notify_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._request.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        self._request.log(level, data, logger)

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        return await self._request.ask(question, key)
