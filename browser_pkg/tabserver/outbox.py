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

from .context import Result
from .messages import Refusal, dump
from .questions import Answer
from .resources import ResourceNotFound
from .sessions import Session, Sessions
from .tools import text_result
from .wire.eras import META_SERVER_INFO, Era
from .wire.errors import BufferFull, MessageTooLarge
from .wire.frames import Kind
from .wire.jsonrpc import INTERNAL_ERROR, RequestId, error_message, notification, request, result_message

# Outside the ranges that JSON-RPC and MCP keep for themselves.
RESULT_TOO_LARGE: Final = -31014
# What handshake revisions call a resource that is not there; the modern one has no code of its own for it.
RESOURCE_NOT_FOUND: Final = -32002


class Outbox:
    """Speaks by `send(channel, kind, text, id=…, related=…)`."""

    def __init__(self, info: dict[str, Any], sessions: Sessions, send: Callable[..., None]) -> None:
        self._info, self._sessions, self._send = info, sessions, send
        # A late answer to a question of an earlier worker must not be taken for one to ours.
        self._prefix = secrets.token_hex(3)
        self._numbers = itertools.count(1)

    def answer(self, session: Session, id: RequestId, result: Result) -> None:
        try:
            text = dump(result_message(id, self._shaped(session, result)))
        except (ValueError, TypeError, RecursionError) as error:
            sorry = f"The result can't be sent as JSON: {error}"
            if "content" not in result:
                self.refuse(session, id, Refusal(INTERNAL_ERROR, sorry))
                return
            text = dump(result_message(id, self._shaped(session, text_result(sorry, is_error=True))))
        self._reply(session, id, text)

    def refuse(self, session: Session, id: RequestId, refusal: Refusal) -> None:
        is_missing = session.era is Era.LEGACY and isinstance(refusal, ResourceNotFound)
        code = RESOURCE_NOT_FOUND if is_missing else refusal.code
        self._reply(session, id, dump(error_message(id, code, refusal.message, refusal.data)))

    def notify(
        self, session: Session, method: str, params: dict[str, Any] | None, related: RequestId | None = None
    ) -> None:
        if self._sessions.has(session):
            # A notice that finds no room is lost; the answer still comes.
            with suppress(BufferFull, MessageTooLarge):
                self._send(session.id, Kind.NOTE, dump(notification(method, params)), related=related)

    def tell_relay(self, session: Session, method: str, params: dict[str, Any], related: RequestId) -> None:
        """What must not get lost. Raises BufferFull when the link has no room for it."""
        if self._sessions.has(session):
            self._send(session.id, Kind.NOTE, dump(notification(method, params)), related=related)

    def ask(
        self, session: Session, method: str, params: dict[str, Any], related: RequestId
    ) -> tuple[str, asyncio.Future[Answer]]:
        """Put a request of ours on a session's way; the future gets its answer."""
        id = f"{self._prefix}-{next(self._numbers)}"
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        session.asked[id] = answer
        if self._sessions.has(session):
            self._send(session.id, Kind.REQ, dump(request(id, method, params or None)), id=id, related=related)
        return id, answer

    def _shaped(self, session: Session, result: Result) -> Result:
        """A result in the form of the caller's era."""
        if session.era is Era.LEGACY:
            return result
        meta = result.get("_meta")
        meta = (meta if isinstance(meta, dict) else {}) | {META_SERVER_INFO: self._info}
        return {"resultType": "complete"} | result | {"_meta": meta}

    def _reply(self, session: Session, id: RequestId, text: str) -> None:
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
