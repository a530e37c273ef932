"""The callers that the MCP core knows: a handshake session each, or one modern request each. Values and a register."""

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
    """A request that runs."""

    def cancel(self, reason: str) -> None:
        """Stop it and let nothing more out."""


@dataclass(eq=False)
class CallerSession:
    """One caller. `is_single`: opened by its only request, gone with the answer. `level`: None sends no log at all.

    `listening`: by the id of the request that listens. Without slots: what few need is made when it is asked for.
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
        """What we asked the client and it has not answered."""
        return {}

    @cached_property
    def subscribed(self) -> set[str]:
        return set()

    @property
    def era(self) -> Era:
        return self.caller.era


class CallerSessions:
    """Everybody who is there now, by channel."""

    def __init__(self) -> None:
        self.channels: dict[str, CallerSession] = {}

    def __iter__(self) -> Iterator[CallerSession]:
        return iter(list(self.channels.values()))

    def get(self, channel: str) -> CallerSession | None:
        return self.channels.get(channel)

    def has(self, session: CallerSession) -> bool:
        return self.channels.get(session.id) is session

    def open(self, channel: str, caller: Caller, *, is_single: bool) -> CallerSession:
        """`caller.ready`: a session that is opened again, and whose handshake is done."""
        is_modern = caller.era is Era.MODERN
        is_ready = is_modern or caller.ready
        session = CallerSession(channel, caller, is_single, is_ready, is_ready, None if is_modern else DEFAULT_LEVEL)
        self.channels[channel] = session
        return session

    def close(self, channel: str) -> CallerSession | None:
        return self.channels.pop(channel, None)
