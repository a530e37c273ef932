"""Caller sessions of the MCP server, by channel, and the messages that are sent to them.

A session is a handshake session, or one modern request. It has the requests that run, the subscriptions and the
questions without an answer. Messages to a closed session are dropped. A channel of one request closes with its
response, so nothing follows it. Incoming messages are handled in `server`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ..handlers.context import Result, Written
from ..handlers.questions import Answer
from ..handlers.resources import ResourceNotFound
from ..handlers.tools import text_result
from ..rpc import Refusal, dump
from ..wire.call_times import CallTimes
from ..wire.eras import META_SERVER_INFO, Era
from ..wire.errors import BufferFull, MessageTooLarge
from ..wire.frames import Caller, Kind
from ..wire.jsonrpc import (
    INTERNAL_ERROR,
    RESOURCE_NOT_FOUND,
    RequestId,
    error_message,
    notification,
    request,
    result_message,
)
from .subscriptions import SubscribedTo

if TYPE_CHECKING:
    from .call import RunningCall
    from .task_methods import ResultWait

DEFAULT_LEVEL: Final = "info"
# Outside the ranges that JSON-RPC and MCP reserve.
RESULT_TOO_LARGE: Final = -31014


class CallerSession:
    """One caller. `is_single`: opened by its only request, closed with the response. `level`: None sends no log.

    `caller.ready`: a session that is opened again and has finished its handshake. `is_repeated`: its only request was
    also sent in an earlier session of the link.
    """

    is_repeated = False
    # F6: times of requests that ask for them, until their calls begin.
    measured: Mapping[RequestId, CallTimes] = MappingProxyType({})

    def __init__(self, id: str, caller: Caller, is_single: bool) -> None:
        self.id, self.caller, self.is_single = id, caller, is_single
        self.era = era = caller.era
        is_modern = era is Era.MODERN
        self.is_greeted = self.is_ready = is_modern or caller.ready
        self.level: str | None = None if is_modern else DEFAULT_LEVEL
        self.running: dict[RequestId, RunningCall | ResultWait] = {}
        # By the id of the request that listens.
        self.listening: dict[RequestId, SubscribedTo] = {}

    @cached_property
    def asked(self) -> dict[str, asyncio.Future[Answer]]:
        """Questions to the client without an answer."""
        return {}

    @cached_property
    def subscribed(self) -> set[str]:
        return set()


class CallerSessions:
    """Open sessions by channel."""

    def __init__(self) -> None:
        self.channels: dict[str, CallerSession] = {}

    def __iter__(self) -> Iterator[CallerSession]:
        return iter(list(self.channels.values()))

    def has(self, session: CallerSession) -> bool:
        return self.channels.get(session.id) is session

    def open(self, channel: str, caller: Caller, *, is_single: bool) -> CallerSession:
        session = self.channels[channel] = CallerSession(channel, caller, is_single)
        return session

    def close(self, channel: str) -> CallerSession | None:
        return self.channels.pop(channel, None)


class Outbox:
    """Sends by `send(channel, kind, text, id=…, related=…)`."""

    def __init__(self, info: dict[str, Any], sessions: CallerSessions, send: Callable[..., None]) -> None:
        self._info, self.sessions, self._send = info, sessions, send
        # A late answer to a question of an earlier worker must not match a question of this one.
        self._prefix = secrets.token_hex(3)
        self._numbers = itertools.count(1)
        # The `_meta` of most results.
        self.own_meta = dump({META_SERVER_INFO: info})
        # The last `_meta` of a written result, and its text: most results come from the same tab.
        self._last_meta: tuple[dict[str, Any], str] = {}, self.own_meta

    @property
    def info(self) -> dict[str, Any]:
        return self._info

    def use_info(self, info: dict[str, Any]) -> None:
        """Name the server in each modern result like this, without its icons, which may be large."""
        self._info = {name: value for name, value in info.items() if name != "icons"}
        self.own_meta = dump({META_SERVER_INFO: self._info})
        self._last_meta = {}, self.own_meta

    def answer(self, session: CallerSession, id: RequestId, result: Result) -> None:
        try:
            text = self.text(session.era, id, result)
        except (ValueError, TypeError, RecursionError) as error:
            sorry = f"The result can't be sent as JSON: {error}"
            if "content" not in result:
                self.refuse(session, id, Refusal(INTERNAL_ERROR, sorry))
                return
            text = self.text(session.era, id, text_result(sorry, is_error=True))
        self._reply(session, id, text)

    def answer_text(self, session: CallerSession, id: RequestId, text: str, meta: str | None = None) -> None:
        """Answer a modern request with a result that is already JSON text. `meta`: its `_meta`, or the usual one."""
        self._reply(session, id, written_response(id, text, self.own_meta if meta is None else meta))

    def send_written(self, session: CallerSession, id: RequestId, result: Written) -> None:
        """Answer a modern request with a result that is already JSON text, without parsing it."""
        self._reply(session, id, written_response(id, result.text, self.meta(result.meta)))

    def refuse(self, session: CallerSession, id: RequestId, refusal: Refusal) -> None:
        is_missing = session.era is Era.LEGACY and isinstance(refusal, ResourceNotFound)
        code = RESOURCE_NOT_FOUND if is_missing else refusal.code
        self._reply(session, id, dump(error_message(id, code, refusal.message, refusal.data)))

    def notify(
        self, session: CallerSession, method: str, params: dict[str, Any] | None, related: RequestId | None = None
    ) -> None:
        if self.sessions.has(session):
            # A notification without room in the buffer is dropped; the response is still sent.
            with suppress(BufferFull, MessageTooLarge):
                self._send(session.id, Kind.NOTE, dump(notification(method, params)), related=related)

    def notify_text(
        self, session: CallerSession, method: str, members: str, more: dict[str, Any], related: RequestId
    ) -> None:
        """A notification whose params are the members of a JSON object in `members`, and `more`."""
        if self.sessions.has(session):
            text = f'{{"jsonrpc":"2.0","method":"{method}","params":{members[:-1]},{dump(more)[1:]}}}'
            with suppress(BufferFull, MessageTooLarge):
                self._send(session.id, Kind.NOTE, text, related=related)

    def notify_relay(self, session: CallerSession, method: str, params: dict[str, Any], related: RequestId) -> None:
        """A notification that must not get lost. Raises BufferFull if the link has no room for it."""
        if self.sessions.has(session):
            self._send(session.id, Kind.NOTE, dump(notification(method, params)), related=related)

    def ask(
        self, session: CallerSession, method: str, params: dict[str, Any], related: RequestId
    ) -> tuple[str, asyncio.Future[Answer]]:
        """Send a request to the client of a session. The future gets the answer."""
        id = f"{self._prefix}-{next(self._numbers)}"
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        session.asked[id] = answer
        if self.sessions.has(session):
            self._send(session.id, Kind.REQ, dump(request(id, method, params or None)), id=id, related=related)
        return id, answer

    def meta(self, meta: dict[str, Any]) -> str:
        """The `_meta` of a modern result, as JSON text."""
        known, text = self._last_meta
        if meta is not known:
            text = dump(meta | {META_SERVER_INFO: self._info})
            self._last_meta = meta, text
        return text

    def text(self, era: Era, id: RequestId, result: Result) -> str:
        """A response in the form of the caller's era. Raises what `dump` raises."""
        if era is Era.MODERN:
            if "_meta" not in result and "resultType" not in result and result:
                return written_response(id, dump(result), self.own_meta)
            meta = result.get("_meta")
            meta = (meta if isinstance(meta, dict) else {}) | {META_SERVER_INFO: self._info}
            result = {"resultType": "complete"} | result | {"_meta": meta}
        return dump(result_message(id, result))

    def _reply(self, session: CallerSession, id: RequestId, text: str) -> None:
        channels = self.sessions.channels
        if channels.get(session.id) is not session:
            return
        if session.is_single:
            del channels[session.id]
        try:
            self._send(session.id, Kind.RES, text, id=id)
        except MessageTooLarge as error:
            data = {"reason": "result_too_large", "delivered": "unknown", "retryable": False}
            data["server"] = self._info["name"]
            sorry = error_message(id, RESULT_TOO_LARGE, f"The result is too large: {error}", data)
            self._send(session.id, Kind.RES, dump(sorry), id=id)


def written_response(id: RequestId, result: str, meta: str) -> str:
    """A modern response with a result that is already JSON text; `meta` is its `_meta`."""
    inner = f'{{"resultType":"complete",{result[1:-1]},"_meta":{meta}}}'
    return f'{{"jsonrpc":"2.0","id":{id if isinstance(id, int) else dump(id)},"result":{inner}}}'
