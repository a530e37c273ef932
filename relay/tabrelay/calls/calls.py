"""Values that travel through the switch, and the seam between a face and a peer. Knows neither HTTP nor WebSocket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Protocol
from weakref import WeakSet

import orjson

from tabrelay.calls.trace_context import Trace
from tabrelay.errors import (
    BrowserGone,
    Busy,
    DeadlinePassed,
    RelayError,
    ServerOffline,
    UpstreamFailed,
    UpstreamGone,
)
from tabrelay.payloads.sliced import Body, Payload, SlicedPayload, text_of
from tabserver.wire import jsonrpc, methods
from tabserver.wire.frames import Caller
from tabserver.wire.jsonrpc import RequestId
from tabserver.wire.memory_budget import MemoryBudget

# A caller that does not read its stream must not make the relay remember for ever: past this many unread notices, or
# bytes in them, the oldest go. The reply is never dropped.
MAX_UNREAD_NOTICES: Final = 1024
MAX_UNREAD_SIZE: Final = 4 * 1024 * 1024
# All callers together. Each may have a little of its own, however little the others read.
MAX_UNREAD_TOTAL: Final = 64 * 1024 * 1024
MIN_UNREAD_EACH: Final = 64 * 1024
# The methods whose answers are lists that may change. The two of resources change together.
LISTS: Final = {
    methods.TOOLS_LIST: "tools",
    methods.RESOURCES_LIST: "resources",
    methods.RESOURCES_TEMPLATES_LIST: "resources",
    methods.PROMPTS_LIST: "prompts",
}
# What a server answers at once, without running anything: one that is full of calls has room for these.
QUICK_ROOM: Final = 64
QUICK: Final = frozenset(LISTS) | {
    *(
        methods.INITIALIZE,
        methods.SERVER_DISCOVER,
        methods.PING,
        methods.LOGGING_SET_LEVEL,
        methods.RESOURCES_SUBSCRIBE,
        methods.RESOURCES_UNSUBSCRIBE,
    ),
}
# How a call ended that was answered with a result like any other: no error code, and no text that somebody must read.
PLAIN_RESULT: Final = (None, "")
# A server that was found, and does not answer (any more).
NO_ANSWER: Final = (BrowserGone, Busy, DeadlinePassed, ServerOffline, UpstreamGone, UpstreamFailed)


_slow_readers: WeakSet[Pending] = WeakSet()
# Of nearly all calls there are none: for those it stands where their notices would.
_NO_NOTICES: Final[deque[Notice]] = deque(maxlen=0)


def memory_of(payload: Payload) -> int:
    """In bytes: one letter outside of ASCII can make Python give four to each of the others."""
    return len(payload) if payload.isascii() else 4 * len(payload)


@dataclass(slots=True)  # frozen ones take three times as long to make, and there is one for each request
class Call:
    """One request on its way to a server, never changed. `payload` is the JSON-RPC message as one line of text.
    `name`: the tool, prompt or resource that it is for, if a caller has read it already. `values`: the message as
    values, only while the call is being started: parsed once, however many need it."""

    channel: str
    id: RequestId
    method: str
    payload: str
    caller: Caller
    trace: Trace | None = None
    name: str | None = None
    values: dict[str, Any] | None = None

    def message(self) -> dict[str, Any]:
        values = self.values
        if values is None:
            values = orjson.loads(self.payload)
        return values


@dataclass(slots=True)
class Reply:
    """The final response, as it came (`said`); `error_code` is set when it is a JSON-RPC error.

    `is_plain`: somebody has read it, and it is a result that is neither a tool's error nor a question. `purse`: what it
    counts in as so much memory (`cost`), until the caller has it. `values`: the message as values, if the peer has
    them; they are not kept.
    """

    raw: Payload
    error_code: int | None = None
    is_plain: bool = False
    budget: MemoryBudget | None = None
    cost: int = 0
    values: dict[str, Any] | None = None

    def message(self) -> dict[str, Any]:
        values: Any = self.values
        return orjson.loads(self.payload) if values is None else values  # type: ignore[no-any-return]

    def release(self) -> None:
        """Called once, when the caller has it."""
        if self.budget is not None:
            self.budget.release(self.cost)

    @property
    def payload(self) -> str:
        """As one text, which takes a while for a long one."""
        return text_of(self.raw)

    def body(self) -> Body:
        """As it is written."""
        return self.raw.encode() if isinstance(self.raw, str) else self.raw


@dataclass(frozen=True, slots=True)
class Notice:
    """A message that is no response: progress, a log line, a list that changed, a question of the server's.

    `ends_stream`: nothing for the client, but the server's wish that this call's stream ends while the call goes on.
    `is_ours`: the relay says it, not the server.
    """

    payload: str
    ends_stream: bool = False
    is_ours: bool = False

    @property
    def cost(self) -> int:
        """In bytes of memory."""
        return memory_of(self.payload)


class Pending:
    """One call under way, seen from the face: notices, then exactly one reply or error.

    One reader at a time. Everything is delivered on the event loop's own thread.
    """

    __slots__ = (
        "__weakref__",
        "_failure",
        "_is_released",
        "_notices",
        "_reply",
        "_taken",
        "_unread",
        "_waiter",
        "asked_of",
        "call",
        "fallback",
        "is_done",
        "on_done",
        "on_pin",
        "on_wake",
        "reply_filter",
    )

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_done = False
        # The worker that may have been asked this before, by another way. Only it can be asked again: its ledger knows.
        self.asked_of: str | None = None
        self.on_done: Callable[[Pending], None] | None = None
        # Takes the reply in the caller's place, and finishes the call with what the caller gets of it.
        self.reply_filter: Callable[[Reply], None] | None = None
        # What the relay can say in the server's place when that is silent; None: nothing.
        self.fallback: Callable[[], str | None] | None = None
        # The server says that the caller's later requests shall go to one tab, or to any again.
        self.on_pin: Callable[[str | None], None] | None = None
        # In place of somebody who awaits `next`: called whenever there is something for it.
        self.on_wake: Callable[[], None] | None = None
        self._notices = _NO_NOTICES
        self._unread = 0  # bytes of memory, with the notice that is being written to the caller
        self._taken = 0  # of which that one
        self._reply: Reply | None = None
        self._failure: RelayError | None = None
        self._is_released = False
        self._waiter: asyncio.Future[None] | None = None

    def notify(self, notice: Notice) -> None:
        if not self.is_done:
            if self._notices is _NO_NOTICES:
                self._notices = deque()
            self._notices.append(notice)
            self._unread += notice.cost
            while self._notices and self._exceeds_limit():
                self._unread -= self._notices.popleft().cost
            self._wake()

    def _exceeds_limit(self) -> bool:
        if len(self._notices) > 1 and (len(self._notices) > MAX_UNREAD_NOTICES or self._unread > MAX_UNREAD_SIZE):
            return True
        if self._unread <= MIN_UNREAD_EACH:
            return False
        # Whoever is through with a call forgets it, so that nothing need be given back here.
        _slow_readers.add(self)
        return sum(each._unread for each in _slow_readers) > MAX_UNREAD_TOTAL

    def finish(self, reply: Reply) -> None:
        if self.is_done or self._is_released:
            reply.release()
        elif self.reply_filter is not None:
            reply_filter, self.reply_filter = self.reply_filter, None
            reply_filter(reply)  # which finishes the call, now or after a few turns of the event loop
            return
        else:
            reply.values = None
            self._reply = reply
        if not self.is_done:
            self._end()

    def answer(self, result: dict[str, Any]) -> None:
        """Finish with a result of the relay's own."""
        self.finish(Reply(orjson.dumps(jsonrpc.result_message(self.call.id, result)).decode()))

    def refuse(self, code: int, text: str, data: Any = None) -> None:
        """Finish with a JSON-RPC error of the relay's own."""
        self.finish(Reply(orjson.dumps(jsonrpc.error_message(self.call.id, code, text, data)).decode(), code))

    @property
    def ended_with(self) -> RelayError | tuple[int | None, str]:
        """How it ended: with an error of the relay's, or with an answer (its error code, its text; none, if there is
        nothing to be found in it)."""
        if self._failure is not None:
            return self._failure
        reply = self._reply
        if reply is None or reply.is_plain:
            return PLAIN_RESULT
        raw = reply.raw
        return reply.error_code, raw.summary if isinstance(raw, SlicedPayload) else raw

    @property
    def is_success(self) -> bool:
        """Was it answered with a result? True no longer than the reply is held."""
        return self._reply is not None and self._reply.error_code is None

    def body(self) -> Body:
        """The reply as it is written; as text it is not kept any longer, and it counts until it is released."""
        assert self._reply is not None
        body = self._reply.body()
        self._reply = replace(self._reply, raw="")
        return body

    def release(self) -> None:
        """The caller has the reply or the error, or does not want it any more."""
        self._is_released = True
        if self._unread:
            _slow_readers.discard(self)
        reply, self._reply = self._reply, None
        # defence: errors that end by themselves
        self._failure = None  # once raised it knows, by its traceback, whoever waited; and they know this call
        if reply is not None and reply.budget is not None:
            reply.budget.release(reply.cost)

    def fail(self, error: RelayError) -> None:
        if self.is_done:
            return
        cached = self.fallback() if self.fallback is not None and isinstance(error, NO_ANSWER) else None
        if cached is not None:
            self.reply_filter = None  # what is remembered has been sifted
            self.finish(Reply(cached))
            return
        self._failure = error
        self._end()

    @property
    def has_event(self) -> bool:
        """Would `next` return at once?"""
        return self.is_done or bool(self._notices)

    @property
    def sole_reply(self) -> Reply | None:
        """The reply, if it is there and all that there is to say."""
        return None if self._notices else self._reply

    async def next(self, timeout_s: float | None = None) -> Notice | Reply | None:
        """The next notice, then the reply; None after `timeout_s` with nothing new. Raises the call's RelayError.

        Whoever asks is through with the notice before.
        """
        self._unread -= self._taken
        self._taken = 0
        if not self._notices and not self.is_done:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _release, waiter) if timeout_s is not None else None
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        if self._notices:
            notice = self._notices.popleft()
            # defence: a notice that is being written
            self._taken = notice.cost
            return notice
        if self._failure is not None:
            raise self._failure
        return self._reply

    def _end(self) -> None:
        self.is_done = True
        # These know this call: kept, they would leave it, with all that was said, to the garbage collector.
        # defence: calls that end by themselves
        on_done, self.on_done, self.on_pin, self.fallback, self.reply_filter = self.on_done, None, None, None, None
        if on_done is not None:
            on_done(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            _release(self._waiter)
        elif self.on_wake is not None:
            self.on_wake()


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class CallObserver(Protocol):
    """Whoever writes down or counts what was called. Must not block."""

    def record(self, server: str, call: Call, took_s: float, outcome: RelayError | tuple[int | None, str]) -> None: ...


class PeerKind(StrEnum):
    """What is behind a peer."""

    BROWSER = "browser"  # a worker on the link of this relay
    PLAIN = "plain"  # a page with a plain MCP WebSocket
    NODE = "node"  # a browser of another relay
    UPSTREAM = "upstream"  # a child process or a URL


class Peer(Protocol):
    """Connection to one MCP server. The registry holds one for each name; faces reach it through the switch only."""

    @property
    def kind(self) -> PeerKind: ...

    @property
    def principal(self) -> str | None:
        """The principal that holds the name with it; None for an upstream."""

    @property
    def identity(self) -> str | None:
        """The same for all sessions of one worker; None for a peer whose calls can't be resumed."""

    @property
    def browser(self) -> str:
        """The name of the browser, such as Firefox; empty if there is none."""

    @property
    def is_reserved(self) -> bool:
        """L8: is the name kept for its principal?"""

    @property
    def is_up(self) -> bool:
        """Can a call be put on the way right now?"""

    @property
    def in_flight(self) -> int: ...

    def start(self, pending: Pending) -> None:
        """Put a call on the way. Raises a RelayError when nothing was sent."""

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        """Another peer has the name now. Gives notifications that the browser did not confirm, if `successor` is the
        identity of the same browser at another relay: channel, caller and text."""

    def cancel(self, pending: Pending, why: str) -> None:
        """The caller has gone or waited too long: tell the server, expect nothing more."""

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        """A client's notification or response on a session's channel."""

    def end(self, channel: str, why: str) -> None:
        """A session's channel ends."""

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        """Where notices that belong to no request of the channel go, until it ends. Opens the channel if need be."""
