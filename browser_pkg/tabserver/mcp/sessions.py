"""Caller sessions of the MCP server, by channel: a handshake session, or one modern request.

A session has the requests that run, the subscriptions and the questions without an answer. Values and a table; messages
are handled in `server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

from ..handlers.questions import Answer
from ..wire.eras import Era
from ..wire.frames import Caller
from ..wire.jsonrpc import RequestId
from .subscriptions import SubscribedTo

DEFAULT_LEVEL: Final = "info"


class Stoppable(Protocol):
    """A running request."""

    def cancel(self, reason: str) -> None:
        """Stop the handler. Nothing is sent any more."""


@dataclass(eq=False)
class CallerSession:
    """One caller. `is_single`: opened by its only request, closed with the response. `level`: None sends no log.

    `listening`: by the id of the request that listens. Without slots, because of the cached properties that few need.
    """

    id: str
    caller: Caller
    is_single: bool
    is_greeted: bool
    is_ready: bool
    level: str | None
    running: dict[RequestId, Stoppable] = field(default_factory=dict)
    listening: dict[RequestId, SubscribedTo] = field(default_factory=dict)

    @cached_property
    def asked(self) -> dict[str, asyncio.Future[Answer]]:
        """Questions to the client without an answer."""
        return {}

    @cached_property
    def subscribed(self) -> set[str]:
        return set()

    @property
    def era(self) -> Era:
        return self.caller.era


class CallerSessions:
    """Open sessions by channel."""

    def __init__(self) -> None:
        self.channels: dict[str, CallerSession] = {}

    def __iter__(self) -> Iterator[CallerSession]:
        return iter(list(self.channels.values()))

    def get(self, channel: str) -> CallerSession | None:
        return self.channels.get(channel)

    def has(self, session: CallerSession) -> bool:
        return self.channels.get(session.id) is session

    def open(self, channel: str, caller: Caller, *, is_single: bool) -> CallerSession:
        """`caller.ready`: a session that is opened again and has finished its handshake."""
        is_modern = caller.era is Era.MODERN
        is_ready = is_modern or caller.ready
        session = CallerSession(channel, caller, is_single, is_ready, is_ready, None if is_modern else DEFAULT_LEVEL)
        self.channels[channel] = session
        return session

    def close(self, channel: str) -> CallerSession | None:
        return self.channels.pop(channel, None)
