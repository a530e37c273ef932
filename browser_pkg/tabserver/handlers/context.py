"""Context of a running handler: the caller, progress, log messages, and questions to the client.

    @tool
    async def book(ctx: Context, room: str) -> str:
        answer = await ctx.elicit(f"Really book {room}?", Confirmation)
        return f"Booked {room}." if answer.accepted else "Left as it was."

A Context wraps a Request, which the MCP server, the hub or a page provides. Handlers are independent of the era: their
questions are sent as requests in a session, and as the response `input_required` to a modern client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload

from ..rpc import Refusal
from ..schema.shapes import Schema
from ..wire.eras import Era
from ..wire.frames import Acp, Caller
from ..wire.jsonrpc import RequestId
from ..wire.trace_context import TraceContext
from .content import Message
from .questions import (
    Answer,
    Elicit,
    Elicited,
    ElicitUrl,
    InputRequired,
    ListRoots,
    MissingCapability,
    Question,
    Root,
    Sample,
    Sampled,
)
from .target import Target

T = TypeVar("T")

Result = dict[str, Any]


@dataclass(slots=True)
class Written:
    """A tool's result that is already validated JSON text; it is forwarded without parsing.

    `text`: an object with `content`, perhaps `structuredContent`, and nothing else. `meta`: its `_meta`.
    """

    text: str
    meta: dict[str, Any]

    def read(self) -> Result:
        result: Result = json.loads(self.text)
        return result | {"_meta": self.meta}


# How a handler ended: a result, a protocol error, or questions that come before a result.
Outcome = Result | Written | Refusal | InputRequired
Done = Callable[[Outcome], None]
Cancel = Callable[[str], None]


class Request(Protocol):
    """One running request: the interface between the MCP server and a handler."""

    @property
    def caller(self) -> Caller: ...
    @property
    def request_id(self) -> RequestId: ...
    @property
    def is_cancelled(self) -> bool: ...
    @property
    def target(self) -> Target | None:
        """The tab that the request names, if any."""

    @property
    def trace(self) -> TraceContext | None: ...
    @property
    def caller_key(self) -> str:
        """Equal for all requests of one caller: see `mcp.caller_state`."""

    @property
    def state(self) -> dict[str, Any]: ...
    @property
    def input_responses(self) -> Mapping[str, Answer]: ...
    @property
    def request_state(self) -> Any: ...
    @property
    def goes_on(self) -> bool:
        """Whether this worker started it before, and the client now answers its questions."""

    def pin(self, tab: str | None) -> None:
        """Send the caller's requests to one tab from now on; None: to the tab in front."""

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...
    def log(self, level: str, data: Any, logger: str | None = None) -> None: ...
    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        """The client's answer, unchanged. Raises MissingCapability, ClientError, or TimeoutError."""

    def close_stream(self, retry_ms: int | None) -> None: ...
    @property
    def task_id(self) -> str | None: ...
    @property
    def saved(self) -> Any: ...
    def save(self, state: Any) -> None: ...


class Context:
    """The context of a call. A parameter with this annotation receives it; callers don't see the parameter."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    # -- who asks -----------------------------------------------------------------------------------------------------

    @property
    def caller(self) -> Caller:
        """Who calls: era, protocol version, principal, client and its capabilities."""
        return self._request.caller

    @property
    def acp(self) -> Acp | None:
        """The session of an editor's agent that calls: its id, agent, server and connection; None for other callers."""
        return self._request.caller.acp

    @property
    def era(self) -> Era:
        return self._request.caller.era

    @property
    def request_id(self) -> RequestId:
        return self._request.request_id

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the call belongs to (W3C `traceparent`, `tracestate`, `baggage`); None without tracing.

        A tracer in the page can continue it; `trace.to_dict()` has the headers for requests that the tool sends.
        """
        return self._request.trace

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller cancelled. An asynchronous handler is stopped anyway; synchronous code can check this."""
        return self._request.is_cancelled

    @property
    def state(self) -> dict[str, Any]:
        """State of this caller; empty at first, the same dict at its next request.

        It belongs to a session, or to a modern client with its token. It ends with this worker or page.
        The 1,000 most recent callers have one, each for 24 hours after its last request.
        """
        return self._request.state

    def can(self, question: Question[Any] | str) -> bool:
        """Whether the client supports this question. Also by name: `"elicitation"`, `"sampling"`, `"roots"`."""
        if isinstance(question, str):
            return isinstance(self.caller.capabilities.get(question), dict)
        return question.lacking(self.caller.capabilities) is None

    def require(self, capability: str) -> None:
        """Raise MissingCapability unless the client has declared it. Uncaught, the caller gets that as an error."""
        if not self.can(capability):
            raise MissingCapability("this request", {capability: {}})

    # -- saying -------------------------------------------------------------------------------------------------------

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the call is. The caller gets it only if it asked for progress.

        The number must increase with each report."""
        self._request.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the caller; `level` is one of the eight of syslog, `debug` to `emergency`."""
        self._request.log(level, data, logger)

    def debug(self, data: Any, logger: str | None = None) -> None:
        self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> None:
        self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> None:
        self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> None:
        self.log("error", data, logger)

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Close the caller's connection while the call runs; the client reconnects for the result after `retry_ms`.

        Only sessions can do that. For a caller without a session this does nothing.
        """
        self._request.close_stream(retry_ms)

    # -- tasks --------------------------------------------------------------------------------------------------------

    @property
    def task_id(self) -> str | None:
        """The id of the task that this call is, or may become; None for a call that never becomes one."""
        return self._request.task_id

    @property
    def saved(self) -> Any:
        """What an earlier run of this task gave to `save`, before its page was left; None in the first run."""
        return self._request.saved

    def save(self, state: Any) -> None:
        """Keep the state of a task. Should its page be left, the handler is run again, with it in `saved`.

        It runs in the page again when that is reloaded, else in another tab with the tool. What runs in the worker
        survives pages, and is run again only if the browser has ended the worker.

        `state` is anything that JSON can hold, of up to 64 KiB. In a call that is no task, this does nothing.
        """
        self._request.save(state)

    # -- asking -------------------------------------------------------------------------------------------------------

    @overload
    async def elicit(self, message: str, schema: type[T], *, key: str | None = None) -> Elicited[T]: ...
    @overload
    async def elicit(self, message: str, schema: Schema, *, key: str | None = None) -> Elicited[dict[str, Any]]: ...
    async def elicit(self, message: str, schema: Any, *, key: str | None = None) -> Elicited[Any]:
        """Show the user a form. `schema`: a dataclass or TypedDict with plain fields, or a JSON Schema of that kind.

        `key` names the question for the client. The default is a number.
        """
        return await self.ask(Elicit(message, schema), key=key)

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Elicited[None]:
        """Ask the user to open a URL. The answer tells whether the user agreed, not whether the visit is complete."""
        return await self.ask(ElicitUrl(message, url), key=key)

    async def sample(
        self,
        messages: str | Sequence[str | Message | dict[str, Any]],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: dict[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
        tool_choice: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> Sampled:
        """Ask the client's model for a message."""
        question = Sample(
            messages,
            max_tokens,
            system_prompt,
            temperature,
            stop_sequences,
            model_preferences,
            tools=tools,
            tool_choice=tool_choice,
        )
        return await self.ask(question, key=key)

    async def roots(self, *, key: str | None = None) -> list[Root]:
        """The folders and files that the client works on."""
        return await self.ask(ListRoots(), key=key)

    async def ask(self, question: Question[T], *, key: str | None = None) -> T:
        """Ask the client. Concurrent questions (`asyncio.gather`) are sent together to a modern client."""
        return question.read(await self._request.ask(question, key))

    # -- answers to InputRequired -------------------------------------------------------------------------------------

    @property
    def input_responses(self) -> Mapping[str, Answer]:
        """The answers in this request, by key, unchanged; `answer` reads them."""
        return self._request.input_responses

    @property
    def request_state(self) -> Any:
        """The `state` that the handler gave to InputRequired; None the first time."""
        return self._request.request_state

    def answer(self, key: str, question: Question[T]) -> T | None:
        """The answer to a question of InputRequired, or None while there is none."""
        given = self.input_responses.get(key)
        return None if given is None else question.read(given)


def request_of(context: Context) -> Request:
    """The request itself, for code that runs another handler in its place."""
    return context._request
