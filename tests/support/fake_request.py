"""A request to give to a handler without an MCP core: it keeps what the handler said, and answers from a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tabserver.handlers.questions import Answer, Question
from tabserver.handlers.target import Target
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

    def close_stream(self, retry_ms: int | None) -> None:
        self.said.append(("close_stream", retry_ms))
