"""Handshake sessions: what `initialize` opened and DELETE or long disuse closes. No HTTP in here.

A session's memory and its life are two things. Its memory (channel, streams) is put away when it is idle and lost when
the relay restarts; its id says enough to rebuild it. No client recovers from "session not found", so that is said only
of sessions that were ended, or not used for days.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from tabrelay.calls import Notice, Peer, Pending
from tabrelay.config import Settings
from tabrelay.errors import BadRequest
from tabrelay.faces.diary import Diary, Page
from tabrelay.faces.events import Memory, Streams
from tabrelay.faces.listening import list_changed, news_of
from tabrelay.faces.seal import Seal
from tabserver.wire.frames import Caller

MAX_SUBSCRIPTIONS: Final = 256


@dataclass(slots=True, eq=False)
class Session:
    """One client of one server. Survives the browser's socket, its page, and the relay."""

    id: str
    server: str
    channel: str
    caller: Caller
    last_used: float
    streams: Streams
    level: str | None = None
    subscriptions: dict[str, None] = field(default_factory=dict)
    running: set[Pending] = field(default_factory=set)
    # Who knows the channel's state: a peer that never heard of it, or came anew, must be told.
    told: Peer | None = None
    wants_notices: bool = False
    # Its standing stream carries its answers too (2024-11-05), and is ended by whoever opened it.
    is_pipe: bool = False

    @property
    def is_listening(self) -> bool:
        return self.streams.standing.reader is not None

    def hear(self, notice: Notice) -> None:
        """A message of the server's that belongs to no request. Of lists that changed, the relay tells by itself."""
        if news_of(notice) is None:
            self.deliver(notice)

    def hear_lists(self, lists: frozenset[str]) -> None:
        """These are others than the client was told: if it listens, it shall ask again."""
        if self.wants_notices:
            for name in sorted(lists):
                self.deliver(list_changed(name))

    def deliver(self, notice: Notice) -> None:
        """A message that belongs to no request: it waits for the client's GET stream."""
        payload, standing = notice.payload.encode(), self.streams.standing
        # Ten lists that changed while nobody read are one list that changed.
        if b"/list_changed" in payload and any(event.payload == payload for event in standing.after(standing.sent)):
            return
        standing.add(payload)


class Sessions:
    """All sessions of the relay, by id."""

    def __init__(
        self,
        settings: Settings,
        seal: Seal,
        diary: Diary,
        *,
        new_channel: Callable[[], str],
        on_end: Callable[[Session, str], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._most = settings.max_sessions
        self._idle_s = settings.session_idle_s
        self._life_s = settings.session_life_s
        self._seal = seal
        self._diary = diary
        self._new_channel = new_channel
        self._on_end = on_end
        self._wall = wall
        self._memory = Memory()
        self._sessions: dict[str, Session] = {}
        self._swept = wall()

    def open(self, server: str, channel: str, caller: Caller) -> Session:
        self.check_room()
        caller = replace(caller, ready=True)
        return self._keep(
            Session(
                self._seal.issue(server, caller, self._wall()),
                server,
                channel,
                caller,
                self._wall(),
                Streams(self._memory),
            )
        )

    def check_room(self) -> None:
        """Raises when not one more session can be held."""
        if len(self._sessions) >= self._most or self._wall() - self._swept > self._idle_s / 10:
            self.put_away()
        if len(self._sessions) >= self._most:
            raise BadRequest(
                f"The relay has {self._most:,} open sessions. Close one (DELETE) or wait until idle ones expire.",
                status=503,
                reason="too_many_sessions",
            )

    def find(self, id: str | None, server: str, principal: str) -> Session:
        """The session of this server and credential; another's session looks exactly like one that does not exist."""
        if id is None:
            raise BadRequest("The header Mcp-Session-Id is missing. Send initialize first.", reason="no_session")
        session = self._sessions.get(id)
        if session is None:
            session = self._rebuild(id, server, principal)
        if session is None or session.server != server or session.caller.principal != principal:
            raise BadRequest("Session not found. Send initialize again.", status=404, reason="session_not_found")
        session.last_used = self._wall()
        return session

    def _rebuild(self, id: str, server: str, principal: str) -> Session | None:
        """A session that was put away, or that an earlier relay opened."""
        sealed = self._seal.read(id, server, principal)
        if sealed is None:
            return None
        page = self._diary.find(id) or Page(sealed.issued)
        if page.is_ended or self._wall() - page.last_used > self._life_s:
            return None
        self.check_room()
        return self._keep(
            Session(
                id,
                server,
                self._new_channel(),
                replace(sealed.caller, tab=page.tab),
                self._wall(),
                Streams(self._memory),
                page.level,
                dict.fromkeys(page.subscriptions),
            )
        )

    def _keep(self, session: Session) -> Session:
        self._sessions[session.id] = session
        return session

    def changed(self, session: Session) -> None:
        """Its level, its subscriptions or its pin are others now."""
        while len(session.subscriptions) > MAX_SUBSCRIPTIONS:
            del session.subscriptions[next(iter(session.subscriptions))]
        self._diary.write(session.id, _page(session), now=True)

    def end(self, session: Session, why: str) -> None:
        """For good: the id is dead from now on."""
        self._diary.end(session.id, self._wall())
        self.release(session, why)

    def put_away(self) -> None:
        """Free the memory of sessions that are idle. Their ids stay good."""
        self._swept = now = self._wall()
        for session in list(self._sessions.values()):
            if not session.is_listening and not session.running and now - session.last_used > self._idle_s:
                self._diary.write(session.id, _page(session))
                self.release(session, "idle")

    def release(self, session: Session, why: str) -> None:
        """Let its memory go, and say nothing of its id."""
        if self._sessions.pop(session.id, None) is not None:
            self._on_end(session, why)
            session.streams.end()

    def flush(self) -> None:
        """The relay stops: write down who was there."""
        for session in self._sessions.values():
            self._diary.write(session.id, _page(session))
        self._diary.forget(self._wall() - self._life_s)
        self._diary.flush()

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def of(self, server: str) -> list[Session]:
        return [session for session in self._sessions.values() if session.server == server]


def _page(session: Session) -> Page:
    return Page(session.last_used, session.level, tuple(session.subscriptions), tab=session.caller.tab)
