"""Legacy sessions: what `initialize` opened and DELETE, idleness or the relay's end closes. No HTTP in here."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tabrelay.calls import MAX_UNREAD_NOTICES, Notice
from tabrelay.config import Settings
from tabrelay.errors import BadRequest
from tabserver.wire.frames import Caller


@dataclass(slots=True, eq=False)
class Session:
    """One legacy client of one server. Survives the browser's socket and its page: only the channel is opened anew."""

    id: str
    server: str
    channel: str
    caller: Caller
    last_used: float
    is_listening: bool = False
    unread: deque[Notice] = field(default_factory=lambda: deque(maxlen=MAX_UNREAD_NOTICES))
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def deliver(self, notice: Notice) -> None:
        """A notice that belongs to no request: it waits for the client's GET stream."""
        self.unread.append(notice)
        self.arrived.set()


class Sessions:
    """All legacy sessions of the relay, by id."""

    def __init__(
        self, settings: Settings, on_end: Callable[[Session, str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = settings.max_sessions
        self._idle_s = settings.session_idle_s
        self._on_end = on_end
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def open(self, server: str, channel: str, caller: Caller) -> Session:
        if len(self._sessions) >= self._most:
            self._expire()
        if len(self._sessions) >= self._most:
            raise BadRequest(
                f"The relay has {self._most:,} open sessions. Close one (DELETE) or wait until idle ones expire.",
                status=503,
                reason="too_many_sessions",
            )
        session = Session(secrets.token_urlsafe(24), server, channel, caller, self._clock())
        self._sessions[session.id] = session
        return session

    def find(self, id: str | None, server: str, principal: str) -> Session:
        """The session of this server and credential; another's session looks exactly like one that does not exist."""
        if id is None:
            raise BadRequest("The header Mcp-Session-Id is missing. Send initialize first.", reason="no_session")
        session = self._sessions.get(id)
        if session is not None and self._is_idle(session):
            self.end(session, "idle")
            session = None
        if session is None or session.server != server or session.caller.principal != principal:
            raise BadRequest("Session not found. Send initialize again.", status=404, reason="session_not_found")
        session.last_used = self._clock()
        return session

    def end(self, session: Session, why: str) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._on_end(session, why)

    def _is_idle(self, session: Session) -> bool:
        return not session.is_listening and self._clock() - session.last_used > self._idle_s

    def _expire(self) -> None:
        for session in [session for session in self._sessions.values() if self._is_idle(session)]:
            self.end(session, "idle")

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def of(self, server: str) -> list[Session]:
        return [session for session in self._sessions.values() if session.server == server]
