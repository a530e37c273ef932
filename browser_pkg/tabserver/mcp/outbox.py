"""Messages out of the MCP core: answers, errors, notices and our own questions, as one line of JSON each.

What is said to somebody who has left is dropped here, and so is everything after an answer on a channel that had only
one request.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ..handlers.context import Result, Written
from ..handlers.questions import Answer
from ..handlers.resources import ResourceNotFound
from ..handlers.tools import text_result
from ..rpc import Refusal, dump
from ..wire.eras import META_SERVER_INFO, Era
from ..wire.errors import BufferFull, MessageTooLarge
from ..wire.frames import Kind
from ..wire.jsonrpc import INTERNAL_ERROR, RequestId, error_message, notification, request, result_message
from .sessions import CallerSession, CallerSessions

# Outside the ranges that JSON-RPC and MCP keep for themselves.
RESULT_TOO_LARGE: Final = -31014
# What handshake revisions call a resource that is not there; the modern one has no code of its own for it.
RESOURCE_NOT_FOUND: Final = -32002


class Outbox:
    """Speaks by `send(channel, kind, text, id=…, related=…)`."""

    def __init__(self, info: dict[str, Any], sessions: CallerSessions, send: Callable[..., None]) -> None:
        self._info, self._sessions, self._send = info, sessions, send
        # A late answer to a question of an earlier worker must not be taken for one to ours.
        self._prefix = secrets.token_hex(3)
        self._numbers = itertools.count(1)
        # What most results say of themselves.
        self.own_meta = self.meta({})
        # The last `_meta` that was passed on, and its text: most results are of the same tab.
        self._said: tuple[dict[str, Any], str] = {}, ""

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

    def pass_on(self, session: CallerSession, id: RequestId, result: Written) -> None:
        """Answer a modern request with a result that nobody has to read: megabytes of it cost next to nothing."""
        if result.meta != self._said[0]:
            self._said = result.meta, self.meta(result.meta)
        self._reply(session, id, passed_on(id, result.text, self._said[1]))

    def refuse(self, session: CallerSession, id: RequestId, refusal: Refusal) -> None:
        is_missing = session.era is Era.LEGACY and isinstance(refusal, ResourceNotFound)
        code = RESOURCE_NOT_FOUND if is_missing else refusal.code
        self._reply(session, id, dump(error_message(id, code, refusal.message, refusal.data)))

    def notify(
        self, session: CallerSession, method: str, params: dict[str, Any] | None, related: RequestId | None = None
    ) -> None:
        if self._sessions.has(session):
            # A notice that finds no room is lost; the answer still comes.
            with suppress(BufferFull, MessageTooLarge):
                self._send(session.id, Kind.NOTE, dump(notification(method, params)), related=related)

    def tell_relay(self, session: CallerSession, method: str, params: dict[str, Any], related: RequestId) -> None:
        """What must not get lost. Raises BufferFull when the link has no room for it."""
        if self._sessions.has(session):
            self._send(session.id, Kind.NOTE, dump(notification(method, params)), related=related)

    def ask(
        self, session: CallerSession, method: str, params: dict[str, Any], related: RequestId
    ) -> tuple[str, asyncio.Future[Answer]]:
        """Put a request of ours on a session's way; the future gets its answer."""
        id = f"{self._prefix}-{next(self._numbers)}"
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        session.asked[id] = answer
        if self._sessions.has(session):
            self._send(session.id, Kind.REQ, dump(request(id, method, params or None)), id=id, related=related)
        return id, answer

    def meta(self, meta: dict[str, Any]) -> str:
        """The `_meta` of a modern result, as JSON text."""
        return dump(meta | {META_SERVER_INFO: self._info})

    def text(self, era: Era, id: RequestId, result: Result) -> str:
        """An answer in the form of the caller's era. Raises what `dump` raises."""
        if era is Era.MODERN:
            if "_meta" not in result and "resultType" not in result and result:
                return passed_on(id, dump(result), self.own_meta)
            meta = result.get("_meta")
            meta = (meta if isinstance(meta, dict) else {}) | {META_SERVER_INFO: self._info}
            result = {"resultType": "complete"} | result | {"_meta": meta}
        return dump(result_message(id, result))

    def _reply(self, session: CallerSession, id: RequestId, text: str) -> None:
        if not self._sessions.has(session):
            return
        if session.is_single:
            self._sessions.close(session.id)
        try:
            self._send(session.id, Kind.RES, text, id=id)
        except MessageTooLarge as error:
            data = {"reason": "result_too_large", "delivered": "unknown", "retryable": False}
            data["server"] = self._info["name"]
            sorry = error_message(id, RESULT_TOO_LARGE, f"The result is too large: {error}", data)
            self._send(session.id, Kind.RES, dump(sorry), id=id)


def passed_on(id: RequestId, result: str, meta: str) -> str:
    """A modern answer of a result that is JSON text already; `meta` is its `_meta`."""
    inner = f'{{"resultType":"complete",{result[1:-1]},"_meta":{meta}}}'
    return f'{{"jsonrpc":"2.0","id":{id if isinstance(id, int) else dump(id)},"result":{inner}}}'
