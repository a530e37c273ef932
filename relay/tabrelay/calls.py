"""Values that travel through the switch, and the seam between a face and a peer. Knows neither HTTP nor WebSocket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from tabrelay.errors import BrowserGone, DeadlinePassed, RelayError, UpstreamFailed, UpstreamGone
from tabserver.wire import jsonrpc
from tabserver.wire.frames import Caller
from tabserver.wire.jsonrpc import RequestId

# A caller that does not read its stream must not make the relay remember for ever: past this many unread notices, or
# characters in them, the oldest go. The reply is never dropped.
MAX_UNREAD_NOTICES: Final = 1024
MAX_UNREAD_SIZE: Final = 4 * 1024 * 1024
# The methods whose answers are lists that may change. The two of resources change together.
LISTS: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}
# What a server answers at once, without running anything: one that is full of calls has room for these.
QUICK_ROOM: Final = 64
QUICK: Final = frozenset(LISTS) | {
    *("initialize", "server/discover", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
}
# A server that had the call and does not answer it (any more).
SILENCE: Final = (BrowserGone, DeadlinePassed, UpstreamGone, UpstreamFailed)


def _nothing() -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way to a server. `payload` is the JSON-RPC message as one line of text."""

    channel: str
    id: RequestId
    method: str
    payload: str
    caller: Caller


@dataclass(frozen=True, slots=True)
class Reply:
    """The final response, as it came; `error_code` is set when it is a JSON-RPC error.

    `release` is called once when the caller has it: until then, it counts as memory of the link it came by.
    """

    payload: str
    error_code: int | None = None
    release: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Notice:
    """A message that is no response: progress, a log line, a list that changed, a question of the server's.

    `ends_stream`: nothing for the client, but the server's wish that this call's stream ends while the call goes on.
    `is_ours`: the relay says it, not the server.
    """

    payload: str
    ends_stream: bool = False
    is_ours: bool = False


class Pending:
    """One call under way, seen from the face: notices, then exactly one reply or error.

    One reader at a time. Everything is delivered on the event loop's own thread.
    """

    __slots__ = (
        "_failure",
        "_is_released",
        "_notices",
        "_reply",
        "_unread",
        "_waiter",
        "call",
        "is_done",
        "on_done",
        "on_pin",
        "rescue",
        "sift",
    )

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_done = False
        self.on_done: Callable[[], None] | None = None
        # What the caller gets of a reply, if not all of it as it came.
        self.sift: Callable[[Reply], Reply] | None = None
        # What the relay can say in the server's place when that is silent; None: nothing.
        self.rescue: Callable[[], str | None] | None = None
        # The server says that the caller's later requests shall go to one tab, or to any again.
        self.on_pin: Callable[[str | None], None] | None = None
        self._notices: deque[Notice] = deque()
        self._unread = 0  # characters
        self._reply: Reply | None = None
        self._failure: RelayError | None = None
        self._is_released = False
        self._waiter: asyncio.Future[None] | None = None

    def notify(self, notice: Notice) -> None:
        if not self.is_done:
            self._notices.append(notice)
            self._unread += len(notice.payload)
            while len(self._notices) > 1 and self._is_too_much():
                self._unread -= len(self._notices.popleft().payload)
            self._wake()

    def _is_too_much(self) -> bool:
        return len(self._notices) > MAX_UNREAD_NOTICES or self._unread > MAX_UNREAD_SIZE

    def finish(self, reply: Reply) -> None:
        if self.is_done or self._is_released:
            reply.release()
        else:
            self._reply = reply if self.sift is None else self.sift(reply)
        if not self.is_done:
            self._end()

    def answer(self, result: dict[str, Any]) -> None:
        """Finish with a result of the relay's own."""
        self.finish(Reply(orjson.dumps(jsonrpc.result_message(self.call.id, result)).decode()))

    def refuse(self, code: int, text: str, data: Any = None) -> None:
        """Finish with a JSON-RPC error of the relay's own."""
        self.finish(Reply(orjson.dumps(jsonrpc.error_message(self.call.id, code, text, data)).decode(), code))

    @property
    def ending(self) -> RelayError | tuple[int | None, str]:
        """How it ended: with an error of the relay's, or with an answer (its error code, its text)."""
        if self._failure is not None:
            return self._failure
        return (None, "") if self._reply is None else (self._reply.error_code, self._reply.payload)

    @property
    def is_success(self) -> bool:
        """Was it answered with a result? True no longer than the reply is held."""
        return self._reply is not None and self._reply.error_code is None

    def release(self) -> None:
        """The caller has the reply, or does not want it any more."""
        self._is_released = True
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.release()

    def fail(self, error: RelayError) -> None:
        if self.is_done:
            return
        known = self.rescue() if self.rescue is not None and isinstance(error, SILENCE) else None
        if known is not None:
            self.sift = None  # what is remembered has been sifted
            self.finish(Reply(known))
            return
        self._failure = error
        self._end()

    async def next(self, timeout_s: float | None = None) -> Notice | Reply | None:
        """The next notice, then the reply; None after `timeout_s` with nothing new. Raises the call's RelayError."""
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
            self._unread -= len(notice.payload)
            return notice
        if self._failure is not None:
            raise self._failure
        return self._reply

    def _end(self) -> None:
        self.is_done = True
        if self.on_done is not None:
            self.on_done()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            _release(self._waiter)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Scribe(Protocol):
    """Whoever writes down what was called. Must not block."""

    def ended(self, server: str, call: Call, took_s: float, outcome: RelayError | tuple[int | None, str]) -> None: ...


class Peer(Protocol):
    """Where a server lives. The registry holds one per name; a face never sees it except through the switch."""

    @property
    def is_up(self) -> bool:
        """Can a call be put on the way right now?"""

    @property
    def in_flight(self) -> int: ...

    def start(self, pending: Pending) -> None:
        """Put a call on the way. Raises a RelayError when nothing was sent."""

    def cancel(self, pending: Pending, why: str) -> None:
        """The caller has gone or waited too long: tell the server, expect nothing more."""

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        """A client's notification or response on a session's channel."""

    def end(self, channel: str, why: str) -> None:
        """A session's channel ends."""

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        """Where notices that belong to no request of the channel go, until it ends. Opens the channel if need be."""
