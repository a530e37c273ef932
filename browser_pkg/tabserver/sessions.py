"""The callers that the MCP core knows: a handshake session each, or one modern request each. Values and a register."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from .listening import Wanted
from .questions import Answer
from .wire.eras import Era
from .wire.frames import Caller
from .wire.jsonrpc import RequestId

DEFAULT_LEVEL: Final = "info"


class Stoppable(Protocol):
    """A request that runs."""

    def cancel(self, reason: str) -> None:
        """Stop it and let nothing more out."""


@dataclass(slots=True, eq=False)
class Session:
    """One caller. `is_single`: opened by its only request, gone with the answer. `level`: None sends no log at all.

    `asked`: what we asked the client and it has not answered. `listening`: by the id of the request that listens.
    """

    id: str
    caller: Caller
    is_single: bool
    is_greeted: bool
    is_ready: bool
    level: str | None
    running: dict[RequestId, Stoppable] = field(default_factory=dict)
    asked: dict[str, asyncio.Future[Answer]] = field(default_factory=dict)
    subscribed: set[str] = field(default_factory=set)
    listening: dict[RequestId, Wanted] = field(default_factory=dict)

    @property
    def era(self) -> Era:
        return self.caller.era


class Sessions:
    """Everybody who is there now, by channel."""

    def __init__(self) -> None:
        self._open: dict[str, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open.values()))

    def get(self, channel: str) -> Session | None:
        return self._open.get(channel)

    def has(self, session: Session) -> bool:
        return self._open.get(session.id) is session

    def open(self, channel: str, caller: Caller, *, is_single: bool) -> Session:
        """`caller.ready`: a session that is opened again, and whose handshake is done."""
        is_ready = caller.era is Era.MODERN or caller.ready
        level = DEFAULT_LEVEL if caller.era is Era.LEGACY else None
        session = Session(channel, caller, is_single, is_greeted=is_ready, is_ready=is_ready, level=level)
        self._open[channel] = session
        return session

    def close(self, channel: str) -> Session | None:
        return self._open.pop(channel, None)
