"""Call, reply and notice, the pending call between a face and a peer, and the protocol of peers.

A pending call delivers notices, then exactly one reply or error. Notices that a caller does not read are bounded and
dropped, the reply never. This module knows neither HTTP nor WebSocket.
"""

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

# For a caller that does not read its stream: past this many unread notices, or bytes of memory, the oldest are
# dropped. The reply is never dropped.
MAX_UNREAD_NOTICES: Final = 1024
MAX_UNREAD_SIZE: Final = 4 * 1024 * 1024
# For all callers together, and what each may have in any case.
MAX_UNREAD_TOTAL: Final = 64 * 1024 * 1024
MIN_UNREAD_EACH: Final = 64 * 1024
# The methods whose results are lists that may change. The two of resources change together.
LISTS: Final = {
    methods.TOOLS_LIST: "tools",
    methods.RESOURCES_LIST: "resources",
    methods.RESOURCES_TEMPLATES_LIST: "resources",
    methods.PROMPTS_LIST: "prompts",
}
# Methods that a server answers at once, without running anything: a server at its limit of calls still gets these.
QUICK_ROOM: Final = 64
QUICK: Final = frozenset(LISTS) | {
    methods.INITIALIZE,
    methods.SERVER_DISCOVER,
    methods.PING,
    methods.LOGGING_SET_LEVEL,
    methods.RESOURCES_SUBSCRIBE,
    methods.RESOURCES_UNSUBSCRIBE,
}
# Outcome of a call with a normal result: no error code, and no text that needs to be examined.
PLAIN_RESULT: Final = (None, "")
# Errors of a server that was found and does not answer (any more).
NO_ANSWER: Final = (BrowserGone, Busy, DeadlinePassed, ServerOffline, UpstreamGone, UpstreamFailed)

_slow_readers: WeakSet[Pending] = WeakSet()
# Shared by nearly all calls, which have no notices.
_NO_NOTICES: Final[deque[Notice]] = deque(maxlen=0)


def memory_of(payload: Payload) -> int:
    """Bytes of memory: one character outside of ASCII can make Python use four bytes for each of them."""
    return len(payload) if payload.isascii() else 4 * len(payload)


@dataclass(slots=True)  # a frozen one takes three times as long to create, and there is one per request
class Call:
    """One request to a server, never changed. `payload`: the JSON-RPC message as one line of text. `name`: the tool,
    prompt or resource, if it is known. `values`: the parsed message, only while the call is being started."""

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
    """The final response, unchanged (`raw`); `error_code` is set if it is a JSON-RPC error.

    `is_plain`: it was examined, and is a result that is neither a tool error nor a question. `budget`: counts `cost`
    bytes for it until the caller has it. `values`: the parsed message, if the peer has it; not kept.
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
        """The caller has the reply. Called once."""
        if self.budget is not None:
            self.budget.release(self.cost)

    @property
    def payload(self) -> str:
        """As one text, which takes time if it is long."""
        return text_of(self.raw)

    def body(self) -> Body:
        """As it is written to the client."""
        return self.raw.encode() if isinstance(self.raw, str) else self.raw


@dataclass(frozen=True, slots=True)
class Notice:
    """A message that is no response: progress, a log line, a changed list, a question of the server.

    `ends_stream`: no message for the client; the server asks to end the stream of this call while the call continues.
    `is_ours`: a message of the relay, not of the server.
    """

    payload: str
    ends_stream: bool = False
    is_ours: bool = False

    @property
    def cost(self) -> int:
        """Bytes of memory."""
        return memory_of(self.payload)


class Pending:
    """One running call, seen from the face: notices, then exactly one reply or error.

    One reader at a time. Everything is delivered on the thread of the event loop.
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
        # The worker that may have received this call before. Only it may get the call again: its history has it.
        self.asked_of: str | None = None
        self.on_done: Callable[[Pending], None] | None = None
        # Receives the reply instead of the caller, and finishes the call with the part that the caller gets.
        self.reply_filter: Callable[[Reply], None] | None = None
        # Fallback reply, used if the server disconnects or times out before it answers.
        self.fallback: Callable[[], str | None] | None = None
        # The server pins the caller's later requests to one tab, or to none.
        self.on_pin: Callable[[str | None], None] | None = None
        # Instead of awaiting `next`: called whenever `next` would return.
        self.on_wake: Callable[[], None] | None = None
        self._notices = _NO_NOTICES
        self._unread = 0  # bytes of memory, including the notice that is being written to the caller
        self._taken = 0  # bytes of that notice
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
        # A weak set: a call that has ended is removed with its last reference.
        _slow_readers.add(self)
        return sum(each._unread for each in _slow_readers) > MAX_UNREAD_TOTAL

    def finish(self, reply: Reply) -> None:
        if self.is_done or self._is_released:
            reply.release()
        elif self.reply_filter is not None:
            reply_filter, self.reply_filter = self.reply_filter, None
            reply_filter(reply)  # finishes the call, now or after a few iterations of the event loop
            return
        else:
            reply.values = None
            self._reply = reply
        if not self.is_done:
            self._end()

    def answer(self, result: dict[str, Any]) -> None:
        """Finish with a result of the relay."""
        self.finish(Reply(orjson.dumps(jsonrpc.result_message(self.call.id, result)).decode()))

    def refuse(self, code: int, text: str, data: Any = None) -> None:
        """Finish with a JSON-RPC error of the relay."""
        self.finish(Reply(orjson.dumps(jsonrpc.error_message(self.call.id, code, text, data)).decode(), code))

    @property
    def ended_with(self) -> RelayError | tuple[int | None, str]:
        """How it ended: an error of the relay, or the error code and text of the answer (no text if there is nothing to
        examine in it)."""
        if self._failure is not None:
            return self._failure
        reply = self._reply
        if reply is None or reply.is_plain:
            return PLAIN_RESULT
        raw = reply.raw
        return reply.error_code, raw.summary if isinstance(raw, SlicedPayload) else raw

    @property
    def is_success(self) -> bool:
        """Was it answered with a result? False again after `release`."""
        return self._reply is not None and self._reply.error_code is None

    def body(self) -> Body:
        """The reply as it is written. Its text is dropped; its memory counts until `release`."""
        assert self._reply is not None
        body = self._reply.body()
        self._reply = replace(self._reply, raw="")
        return body

    def release(self) -> None:
        """The caller has the reply or the error, or is gone."""
        self._is_released = True
        if self._unread:
            _slow_readers.discard(self)
        reply, self._reply = self._reply, None
        # defence: errors that end by themselves
        self._failure = None  # once raised it refers, by its traceback, to the waiting frames, and they to this call
        if reply is not None and reply.budget is not None:
            reply.budget.release(reply.cost)

    def fail(self, error: RelayError) -> None:
        if self.is_done:
            return
        cached = self.fallback() if self.fallback is not None and isinstance(error, NO_ANSWER) else None
        if cached is not None:
            self.reply_filter = None  # cached lists are already filtered
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
        """The reply, if it has arrived and no notice is unread."""
        return None if self._notices else self._reply

    async def next(self, timeout_s: float | None = None) -> Notice | Reply | None:
        """The next notice, then the reply; None after `timeout_s` with nothing new. Raises the call's RelayError.

        A call of `next` means that the previous notice was written.
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
        # These refer to this call: kept, they would leave it and its reply to the garbage collector.
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
    """Records or counts calls. Must not block."""

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
        """Can a call be started right now?"""

    @property
    def in_flight(self) -> int: ...

    def start(self, pending: Pending) -> None:
        """Start a call. Raises a RelayError if nothing was sent."""

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        """Another peer has the name now. Returns notifications that the browser did not acknowledge, if `successor` is
        the identity of the same browser at another relay: channel, caller and text."""

    def cancel(self, pending: Pending, why: str) -> None:
        """The caller is gone or waited too long: notify the server, expect no reply."""

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        """A client's notification or response on a session's channel."""

    def end(self, channel: str, why: str) -> None:
        """A session's channel ends."""

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        """Send notices that belong to no request to `sink`, until the channel ends. Opens the channel if necessary."""
