"""Delivery state of one message: which of its requests still wait for an answer, and what was tried.

Each recovery (new token, wider scope, new session, tool list) happens at most once for a message. Pure; `forwarder`
acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tabrelay import mcp_headers
from tabrelay.bridge.messages import BridgeMessage, Key, MessageKind
from tabrelay.bridge.session import SessionSnapshot
from tabserver.wire import methods


@dataclass(slots=True)
class Delivery:
    message: BridgeMessage
    is_own: bool = False
    """A message of the bridge itself, sent as part of a recovery; it triggers no recovery."""

    waiting: set[Key] = field(init=False)
    answer: Any = None
    """The last response to one of its requests."""

    attempt: int = 1
    was_refused: bool = False
    was_stepped_up: bool = False
    was_given_nonce: bool = False
    was_renewed: bool = False
    has_read_tools: bool = False

    def __post_init__(self) -> None:
        self.waiting = set(self.message.keys)

    @property
    def needs_answer(self) -> bool:
        return bool(self.message.ids)

    @property
    def is_answered(self) -> bool:
        return self.needs_answer and not self.waiting

    @property
    def unanswered(self) -> list[Any]:
        return [id for id, key in zip(self.message.ids, self.message.keys, strict=True) if key in self.waiting]

    def may_sign_in(self, status: int, challenge: str | None) -> bool:
        """Whether the refusal may be followed by another attempt: after 401, after 401 for the nonce of a proof, and
        after 403 with insufficient scope; once each."""
        if status == 401 and mcp_headers.WANTS_NONCE in (challenge or ""):
            may, self.was_given_nonce = not self.was_given_nonce, True
        elif status == 401:
            may, self.was_refused = not self.was_refused, True
        elif status == 403 and "insufficient_scope" in (challenge or ""):
            may, self.was_stepped_up = not self.was_stepped_up, True
        else:
            may = False
        return may

    def record_answer(self, key: Key, value: Any) -> None:
        self.waiting.discard(key)
        self.answer = value


def is_session_gone(message: BridgeMessage, snapshot: SessionSnapshot, status: int, body: bytes) -> bool:
    """Whether the server does not know the session. 2025-11-25: it MUST answer 404 then.

    Many restarted servers answer 400 instead, with a text about a missing or invalid session id.
    """
    if message.is_modern or message.method == methods.INITIALIZE:
        return False
    if status == 404:
        return snapshot.id is not None
    return status == 400 and b"session" in body[:2048].lower()


def may_repeat_in_new_session(message: BridgeMessage) -> bool:
    """False for responses: they belong to a request of the lost session."""
    return message.kind is not MessageKind.RESPONSE
