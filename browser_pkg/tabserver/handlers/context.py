"""The Context: what a handler may know about its request, and what it may say and ask while it runs.

    @tool
    async def book(ctx: Context, room: str) -> str:
        answer = await ctx.elicit(f"Really book {room}?", Confirmation)
        return f"Booked {room}." if answer.accepted else "Left as it was."

It stands on a Request, which the MCP core, the hub or a page provides. A handler never learns how its question reaches
the client: as a request of the server's own in the eras that have those, as `input_required` in the one that has not.
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
    """A tool's result that is JSON text already, and known to be sound: it is passed on unread.

    `text`: an object with `content`, perhaps `structuredContent`, and nothing else. `meta`: what its `_meta` is to say.
    """

    text: str
    meta: dict[str, Any]

    def read(self) -> Result:
        result: Result = json.loads(self.text)
        return result | {"_meta": self.meta}


# How a handler ended: with a result, with an error of the protocol, or with questions that come before a result.
Outcome = Result | Written | Refusal | InputRequired
Done = Callable[[Outcome], None]
Cancel = Callable[[str], None]


class Request(Protocol):
    """One request that runs. The seam between whoever took it and whoever handles it."""

    @property
    def caller(self) -> Caller: ...
    @property
    def request_id(self) -> RequestId: ...
    @property
    def is_cancelled(self) -> bool: ...
    @property
    def target(self) -> Target | None:
        """The tab that it wants, if it wants one."""

    @property
    def trace(self) -> TraceContext | None: ...
    @property
    def caller_key(self) -> str:
        """The same for all requests of one caller: see `states`."""

    @property
    def state(self) -> dict[str, Any]: ...
    @property
    def input_responses(self) -> Mapping[str, Answer]: ...
    @property
    def request_state(self) -> Any: ...
    @property
    def goes_on(self) -> bool:
        """Did this worker begin it before, and is it back with what its client was asked for?"""

    def pin(self, tab: str | None) -> None:
        """Let the caller's requests go to one tab from now on, or to whichever is in front."""

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...
    def log(self, level: str, data: Any, logger: str | None = None) -> None: ...
    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        """The client's answer as it came. Raises MissingCapability, ClientError, or TimeoutError."""

    def close_stream(self, retry_ms: int | None) -> None: ...


class Context:
    """A parameter with this annotation is filled in; callers don't see it."""

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
        """The trace that the call belongs to (W3C `traceparent`, `tracestate`, `baggage`); None if nobody traces.

        A tracer of the page's own goes on from it; `trace.to_dict()` are the headers for calls of the tool's own.
        """
        return self._request.trace

    @property
    def is_cancelled(self) -> bool:
        """Did the caller give up? An asynchronous handler is stopped anyway; a plain loop may look here."""
        return self._request.is_cancelled

    @property
    def state(self) -> dict[str, Any]:
        """What handlers keep for this caller; empty at first, the same dict at its next request.

        It belongs to a session, or to a client of the modern era with its token. It lives in this worker or page and is
        gone with it; the 1,000 callers that were there last have one, each for 24 hours after its last request.
        """
        return self._request.state

    def can(self, question: Question[Any] | str) -> bool:
        """Can the client be asked this? Also by name: `"elicitation"`, `"sampling"`, `"roots"`."""
        if isinstance(question, str):
            return isinstance(self.caller.capabilities.get(question), dict)
        return question.lacking(self.caller.capabilities) is None

    def require(self, capability: str) -> None:
        """Raise MissingCapability unless the client has declared it. Uncaught, the caller gets that as an error."""
        if not self.can(capability):
            raise MissingCapability("this request", {capability: {}})

    # -- saying -------------------------------------------------------------------------------------------------------

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the call is. Reaches the caller only if it asked for progress; must rise from call to call."""
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
        """Let the caller's connection go while the call runs on; it comes back for the result after `retry_ms`.

        Only sessions can do that. For a caller without one this does nothing.
        """
        self._request.close_stream(retry_ms)

    # -- asking -------------------------------------------------------------------------------------------------------

    @overload
    async def elicit(self, message: str, schema: type[T], *, key: str | None = None) -> Elicited[T]: ...
    @overload
    async def elicit(self, message: str, schema: Schema, *, key: str | None = None) -> Elicited[dict[str, Any]]: ...
    async def elicit(self, message: str, schema: Any, *, key: str | None = None) -> Elicited[Any]:
        """Show the user a form. `schema`: a dataclass or TypedDict with plain fields, or a JSON Schema of that kind.

        `key` names the question for the client. Without one it gets a number.
        """
        return await self.ask(Elicit(message, schema), key=key)

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Elicited[None]:
        """Ask the user to open an address. The answer says whether they agreed, not whether they are done there."""
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
        """Let the client's model say something."""
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
        """Ask the client. Questions that run at the same time (`asyncio.gather`) reach it together, if its era can."""
        return question.read(await self._request.ask(question, key))

    # -- answers to InputRequired -------------------------------------------------------------------------------------

    @property
    def input_responses(self) -> Mapping[str, Answer]:
        """The answers that came with this request, by key, as they came; `answer` reads them."""
        return self._request.input_responses

    @property
    def request_state(self) -> Any:
        """What the handler gave to InputRequired as `state`; None the first time."""
        return self._request.request_state

    def answer(self, key: str, question: Question[T]) -> T | None:
        """The answer that came for a question of InputRequired, or None while there is none."""
        given = self.input_responses.get(key)
        return None if given is None else question.read(given)
