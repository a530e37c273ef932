"""Call, reply and notice, and the pending call between a face and a peer.

A pending call delivers notices, then exactly one reply or error. Notices that a caller does not read are bounded and
dropped, the reply never. This module knows neither HTTP nor WebSocket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
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
from tabrelay.payloads.sliced import Body, Payload, SlicedPayload, memory_of, text_of
from tabserver.wire import jsonrpc, methods
from tabserver.wire.frames import Caller
from tabserver.wire.jsonrpc import RequestId
from tabserver.wire.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from tabrelay.calls.peer import CallOwner

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
    methods.TASKS_GET,
    methods.TASKS_LIST,
    methods.TASKS_UPDATE,
    methods.TASKS_CANCEL,
    methods.SKILLS_LIST,
    methods.SKILLS_GET,
    methods.RESOURCES_DIRECTORY_READ,
}
# Methods without a deadline: a subscription, and the result of a task, which has a deadline itself.
UNLIMITED: Final = frozenset({methods.SUBSCRIPTIONS_LISTEN, methods.TASKS_RESULT})
Header = tuple[bytes, bytes]
Response = tuple[int, tuple[Header, ...], bytes]  # status, headers and body
# Outcome of a call with a normal result: no error code, and no text that needs to be examined.
PLAIN_RESULT: Final = (None, "")
# How a call ended: an error of the relay, or the error code and text of the answer (no text if there is nothing to
# examine in it).
End = RelayError | tuple[int | None, str]
# Errors of a server that was found and does not answer (any more).
NO_ANSWER: Final = (BrowserGone, Busy, DeadlinePassed, ServerOffline, UpstreamGone, UpstreamFailed)

_slow_readers: WeakSet[Pending] = WeakSet()
# Shared by nearly all calls, which have no notices.
_NO_NOTICES: Final[deque[Notice]] = deque(maxlen=0)


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

    @classmethod
    def with_result(cls, id: RequestId, result: dict[str, Any]) -> Reply:
        """A result of the relay."""
        return cls(orjson.dumps(jsonrpc.result_message(id, result)).decode())

    @classmethod
    def with_error(cls, id: RequestId, code: int, text: str, data: Any = None) -> Reply:
        """A JSON-RPC error of the relay."""
        return cls(orjson.dumps(jsonrpc.error_message(id, code, text, data)).decode(), code)

    @classmethod
    def with_server_error(cls, id: RequestId, error: dict[str, Any]) -> Reply:
        """The error of a server, which gets no code of the relay."""
        given = {"code": error["code"], "message": str(error.get("message", ""))}
        if error.get("data") is not None:
            given["data"] = error["data"]
        return cls(orjson.dumps({"jsonrpc": "2.0", "id": id, "error": given}).decode(), given["code"])

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

    def encoded(self) -> bytes:
        """In one piece."""
        return (self.raw if type(self.raw) is str else self.payload).encode()

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
    """One running call, seen from the face: notices, then exactly one reply or error (`end`).

    One reader at a time. Everything is delivered on the thread of the event loop.
    """

    __slots__ = (
        "__weakref__",
        "_failure",
        "_is_released",
        "_notices",
        "_on_end",
        "_on_event",
        "_reply",
        "_reply_filter",
        "_taken",
        "_unread",
        "asked_of",
        "call",
        "is_done",
        "owner",
        "sent_at",
    )

    def __init__(
        self,
        call: Call,
        owner: CallOwner | None = None,
        sent_at: float = 0.0,
        reply_filter: Callable[[Pending, Reply], None] | None = None,
        on_end: Callable[[Pending, End], None] | None = None,
    ) -> None:
        """`sent_at`: by the monotonic clock. `reply_filter` gets the reply first, and ends
        the call with the part that the caller gets. `on_end` is called when the call has ended."""
        self.call = call
        self.owner = owner
        self.sent_at = sent_at
        self.is_done = False
        # The worker that may have received this call before. Only it may get the call again: its history has it.
        self.asked_of: str | None = None
        self._reply_filter = reply_filter
        self._on_end = on_end
        self._on_event: OnEvent | None = None
        self._notices = _NO_NOTICES
        self._unread = 0  # bytes of memory, including the notice that is being written to the caller
        self._taken = 0  # bytes of that notice
        self._reply: Reply | None = None
        self._failure: RelayError | None = None
        self._is_released = False

    async def started(self) -> Pending:
        """It was sent, or has failed: see `routing.waiting_call`."""
        return self

    def notify(self, notice: Notice) -> None:
        if not self.is_done:
            if self.call.trace is not None:
                self.call.trace.noticed(notice)
            if self._notices is _NO_NOTICES:
                self._notices = deque()
            self._notices.append(notice)
            self._unread += notice.cost
            while self._notices and self._exceeds_limit():
                self._unread -= self._notices.popleft().cost
            if self._on_event is not None:
                self._on_event(self.peek())

    def pin(self, tab: str | None) -> None:
        """The server pins the caller's later requests to one tab, or to none."""
        if self.owner is not None and not self.is_done:
            self.owner.pinned(self.call, tab)

    def _exceeds_limit(self) -> bool:
        if len(self._notices) > 1 and (len(self._notices) > MAX_UNREAD_NOTICES or self._unread > MAX_UNREAD_SIZE):
            return True
        if self._unread <= MIN_UNREAD_EACH:
            return False
        # A weak set: a call that has ended is removed with its last reference.
        _slow_readers.add(self)
        return sum(each._unread for each in _slow_readers) > MAX_UNREAD_TOTAL

    def end(self, outcome: Reply | RelayError) -> None:
        """The only way to end a call: with a reply, or with an error. Of several outcomes the first counts."""
        if type(outcome) is not Reply:
            assert isinstance(outcome, RelayError)
            if self.is_done:
                return
            cached = self._cached_reply() if isinstance(outcome, NO_ANSWER) else None
            if cached is None:
                self._failure = outcome
            else:
                self._reply = Reply(cached)  # cached lists are already filtered
        elif self.is_done or self._is_released:
            outcome.release()
            if self.is_done:
                return
        elif self._reply_filter is not None:
            reply_filter, self._reply_filter = self._reply_filter, None
            reply_filter(self, outcome)  # ends the call, now or after a few iterations of the event loop
            return
        else:
            outcome.values = None
            self._reply = outcome
        self.is_done = True
        if self.owner is not None:
            self.owner.ended(self)
        on_end = self._on_end
        if on_end is not None:
            on_end(self, self._end())
        on_event = self._on_event
        if on_event is not None:
            on_event(self.peek())

    def _cached_reply(self) -> str | None:
        owner = self.owner
        return owner.cached_reply(self.call) if owner is not None and owner.may_be_cached(self.call.method) else None

    def _end(self) -> End:
        if self._failure is not None:
            return self._failure
        reply = self._reply
        if reply is None or reply.is_plain:
            return PLAIN_RESULT
        raw = reply.raw
        return reply.error_code, raw.summary if isinstance(raw, SlicedPayload) else raw

    @property
    def answer(self) -> Payload | None:
        """The response as it was received; None if there is none, and after `body`."""
        return None if self._reply is None else self._reply.raw

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
        self._on_event = None
        if self.call.trace is not None:
            self.call.trace.released()
        if self._unread:
            _slow_readers.discard(self)
        reply, self._reply = self._reply, None
        # defence: errors that end by themselves
        self._failure = None  # once raised it refers, by its traceback, to the waiting frames, and they to this call
        if reply is not None and reply.budget is not None:
            reply.budget.release(reply.cost)

    def peek(self) -> Notice | Reply | None:
        """What `next` would return now, for a caller that writes it at once. None: nothing, or it has failed."""
        return self._notices[0] if self._notices else self._reply

    def notice_written(self) -> None:
        """The first unread notice was written."""
        self._unread -= self._notices.popleft().cost

    def watch(self, on_event: OnEvent | None) -> None:
        """Instead of awaiting `next`: call `on_event` with `peek` whenever `next` would return, and now if it would.
        None, or `release`: not any more."""
        self._on_event = on_event
        if on_event is not None and (self.is_done or self._notices):
            on_event(self.peek())

    async def next(self, timeout_s: float | None = None) -> Notice | Reply | None:
        """The next notice, then the reply; None after `timeout_s` with nothing new. Raises the call's RelayError.

        A call of `next` means that the previous notice was written.
        """
        self._unread -= self._taken
        self._taken = 0
        if not self._notices and not self.is_done:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            wake = self._on_event = partial(_release, waiter)
            timer = loop.call_later(timeout_s, wake) if timeout_s is not None else None
            try:
                await waiter
            finally:
                self._on_event = None
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


OnEvent = Callable[[Notice | Reply | None], None]


def _release(waiter: asyncio.Future[None], event: Notice | Reply | None = None) -> None:
    if not waiter.done():
        waiter.set_result(None)
