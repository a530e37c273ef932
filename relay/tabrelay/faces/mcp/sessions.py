"""Table of legacy sessions: opened by `initialize`, closed by DELETE or long disuse.

A session's memory (channel, streams) and its lifetime are separate. Memory is released when it is idle and lost when
the relay restarts; its id holds enough to rebuild it. No client recovers from "session not found", so only sessions
that were ended or not used for days get that answer. No HTTP in here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tabrelay import mcp_headers
from tabrelay.calls.calls import Notice, Pending
from tabrelay.calls.peer import Peer
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest
from tabrelay.faces.mcp.event_store import EventStore, SessionStreams
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.faces.mcp.session_store import MAX_SUBSCRIPTIONS, SessionRecord, SessionStore, digest
from tabrelay.faces.mcp.subscriptions import changed_list, list_changed
from tabrelay.http.exchange import JSON_TYPE, Header
from tabserver.wire.frames import Caller

if TYPE_CHECKING:
    from tabrelay.faces.mcp.bus_sync import BusSync

# Least time between two scans of all sessions for room in a full table.
SWEEP_S: Final = 1.0


@dataclass(slots=True, eq=False)
class Session:
    """One client of one server. Outlives the browser's socket, its page, and the relay process."""

    id: str
    server: str
    channel: str
    caller: Caller
    last_used: float
    streams: SessionStreams
    level: str | None = None
    subscriptions: dict[str, None] = field(default_factory=dict)
    running: set[Pending] = field(default_factory=set)
    # The peer that has the session's state; any other one must receive it first (see `session_replay`).
    replayed_to: Peer | None = None
    wants_notices: bool = False
    # HTTP+SSE (2024-11-05): the GET stream carries responses too, and `http_sse` ends it.
    is_http_sse: bool = False
    # Characters of its subscriptions, as of their last change.
    subscribed_characters: int = 0
    # The header that names it in each response, and the headers of a complete one.
    headers: tuple[Header, ...] = field(init=False)
    json_headers: tuple[Header, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = ((mcp_headers.RAW_SESSION_ID, self.id.encode()),)
        self.json_headers = (JSON_TYPE, *self.headers)

    @property
    def is_listening(self) -> bool:
        return self.streams.get_stream.reader is not None

    @property
    def is_in_use(self) -> bool:
        """Has it an open stream, or a call without an answer?"""
        return self.is_listening or bool(self.running)

    def receive(self, notice: Notice) -> None:
        """A server message that belongs to no request. The relay itself reports changed lists."""
        if changed_list(notice) is None:
            self.deliver(notice)

    def lists_changed(self, lists: frozenset[str]) -> None:
        """These lists differ from what the client knows: notify it if it listens."""
        if self.wants_notices:
            for name in sorted(lists):
                self.deliver(list_changed(name))

    def deliver(self, notice: Notice) -> None:
        """Put a message that belongs to no request on the GET stream."""
        payload, standing = notice.payload.encode(), self.streams.get_stream
        # Equal list changes that were not read yet are sent once.
        if b"/list_changed" in payload and any(event.payload == payload for event in standing.after(standing.sent)):
            return
        standing.add(payload)


class Sessions:
    """All sessions of the relay, by id."""

    def __init__(
        self,
        settings: Settings,
        session_ids: SessionIdCodec,
        store: SessionStore,
        *,
        new_channel: Callable[[], str],
        on_end: Callable[[Session, str], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._max_sessions = settings.max_sessions
        self._max_per_token = min(settings.max_sessions_token, settings.max_sessions)
        self._max_subscribed = settings.max_subscribed
        self._idle_s = settings.session_idle_s
        self._life_s = settings.session_life_s
        self._session_ids = session_ids
        self._store = store
        self._new_channel = new_channel
        self._on_end = on_end
        self._wall = wall
        self._event_store = EventStore()
        self._sessions: dict[str, Session] = {}
        self._by_server: dict[str, dict[str, Session]] = {}
        self._by_key: dict[str, Session] = {}
        self._by_principal: dict[str, dict[str, Session]] = {}  # least recently used first
        self._swept = wall()
        self.node = ""  # id of this relay if it is one of several
        self._subscribed_characters = 0

    def open(self, server: str, channel: str, caller: Caller) -> Session:
        self.make_room(caller.principal)
        caller = replace(caller, ready=True)
        return self._keep(
            Session(
                self._session_ids.issue(server, caller, self._wall()),
                server,
                channel,
                caller,
                self._wall(),
                SessionStreams(self._event_store, self.node),
            )
        )

    def make_room(self, principal: str) -> None:
        """Make room for one more session of this principal. Raises BadRequest if there is none.

        Its own longest idle session is unloaded first. A session of another principal is unloaded only if the table is
        full and that principal has more sessions than this one.
        """
        since_sweep_s = self._wall() - self._swept
        is_full = len(self._sessions) >= self._max_sessions
        if since_sweep_s > (SWEEP_S if is_full else self._idle_s / 10) or since_sweep_s < 0:
            self.unload_idle()
        mine = self._by_principal.get(principal, {})
        # defence: a token's share of the sessions
        if len(mine) >= self._max_per_token and not self._unload_oldest(mine):
            raise BadRequest(
                f"This token has {len(mine):,} sessions in use, which is its limit. Close one (DELETE) and try again.",
                status=429,
                reason="too_many_sessions",
            )
        if len(self._sessions) < self._max_sessions or self._unload_oldest(mine):
            return
        most = max(self._by_principal.values(), key=len)
        if len(most) <= len(mine) + 1 or not self._unload_oldest(most):
            raise BadRequest(
                f"The relay has {self._max_sessions:,} open sessions. "
                "Close one (DELETE) or wait until idle ones expire.",
                status=503,
                reason="too_many_sessions",
            )

    def _unload_oldest(self, sessions: dict[str, Session]) -> bool:
        """Unload the session that is idle for longest; False if all are in use."""
        idle = next((session for session in sessions.values() if not session.is_in_use), None)
        if idle is not None:
            self._unload(idle, "idle for longest")
        return idle is not None

    def find(self, id: str | None, server: str, principal: str) -> Session:
        """The session for this server and principal. A session of another one looks like one that does not exist."""
        if id is None:
            raise BadRequest("The header Mcp-Session-Id is missing. Send initialize first.", reason="no_session")
        session = self._sessions.get(id)
        if session is None:
            session = self._rebuild(id, server, principal)
        if session is None or session.server != server or session.caller.principal != principal:
            raise BadRequest("Session not found. Send initialize again.", status=404, reason="session_not_found")
        session.last_used = self._wall()
        sessions = self._by_principal[principal]
        sessions[session.id] = sessions.pop(session.id)
        return session

    def _rebuild(self, id: str, server: str, principal: str) -> Session | None:
        """A session that was unloaded, or that an earlier relay process opened."""
        sealed = self._session_ids.read(id, server, principal)
        if sealed is None:
            return None
        record = self._store.find(id) or SessionRecord(sealed.issued)
        if record.is_ended or self._wall() - record.last_used > self._life_s:
            return None
        self.make_room(principal)
        return self._keep(
            Session(
                id,
                server,
                self._new_channel(),
                replace(sealed.caller, tab=record.tab),
                self._wall(),
                SessionStreams(self._event_store, self.node),
                record.level,
                dict.fromkeys(record.subscriptions),
            )
        )

    def _keep(self, session: Session) -> Session:
        self._limit_subscriptions(session)
        self._sessions[session.id] = self._by_key[digest(session.id)] = session
        self._by_server.setdefault(session.server, {})[session.id] = session
        self._by_principal.setdefault(session.caller.principal, {})[session.id] = session
        return session

    def changed(self, session: Session) -> None:
        """Its level, its subscriptions or its pin changed."""
        while len(session.subscriptions) > MAX_SUBSCRIPTIONS:
            del session.subscriptions[next(iter(session.subscriptions))]
        self._limit_subscriptions(session)
        self._store.write(session.id, _record_of(session), now=True)

    def _limit_subscriptions(self, session: Session) -> None:
        before, session.subscribed_characters = session.subscribed_characters, sum(map(len, session.subscriptions))
        self._subscribed_characters += session.subscribed_characters - before
        # defence: subscriptions of all sessions
        while self._subscribed_characters > self._max_subscribed and session.subscriptions:
            first = next(iter(session.subscriptions))
            del session.subscriptions[first]
            session.subscribed_characters -= len(first)
            self._subscribed_characters -= len(first)

    def end(self, session: Session, why: str) -> None:
        """End it permanently: its id is invalid from now on."""
        self._store.end(session.id, self._wall())
        self.release(session, why)

    def unload_idle(self) -> None:
        """Release the memory of idle sessions. Their ids stay valid."""
        self._swept = now = self._wall()
        for session in list(self._sessions.values()):
            # defence: stalls: the time of day is set back, and idle sessions are put away
            session.last_used = min(session.last_used, now)  # the time of day was set back
            if not session.is_in_use and now - session.last_used > self._idle_s:
                self._unload(session, "idle")

    def _unload(self, session: Session, why: str) -> None:
        self._store.write(session.id, _record_of(session))
        self.release(session, why)

    def release(self, session: Session, why: str) -> None:
        """Release its memory. Its id is not changed."""
        if self._sessions.pop(session.id, None) is not None:
            _leave(self._by_server, session.server, session)
            _leave(self._by_principal, session.caller.principal, session)
            del self._by_key[digest(session.id)]
            self._on_end(session, why)
            self._subscribed_characters -= session.subscribed_characters
            session.streams.end()

    def flush(self) -> None:
        """The relay stops: store all sessions."""
        for session in self._sessions.values():
            self._store.write(session.id, _record_of(session))
        self._store.forget(self._wall() - self._life_s)
        self._store.flush()

    def __len__(self) -> int:
        return len(self._sessions)

    def find_by_key(self, key: str) -> Session | None:
        """The session with this key, if it is in memory."""
        return self._by_key.get(key)

    def share(self, bus_sync: BusSync, on_change: Callable[[Session, SessionRecord], None]) -> None:
        """Share changes of sessions with other relays. `on_change`: another relay changed a session in memory."""

        def changed(key: str) -> None:
            session = self._by_key.get(key)
            record = self._store.find(session.id) if session is not None else None
            if session is None or record is None:
                return
            if record.is_ended:
                self.release(session, "the client ended it")
            else:
                on_change(session, record)

        bus_sync.sync_store("sessions", self._store, changed)

    def times_of(self, session: Session) -> tuple[float, float]:
        """Seconds since it was opened, maybe at an earlier relay process, and seconds since its last use."""
        sealed, now = self._session_ids.read(session.id, session.server, session.caller.principal), self._wall()
        # An id has the whole second, which may be a later one.
        opened = session.last_used if sealed is None else min(sealed.issued, session.last_used)
        return max(0.0, now - opened), max(0.0, now - session.last_used)

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def of_server(self, server: str) -> list[Session]:
        return list(self._by_server.get(server, {}).values())


def _leave(groups: dict[str, dict[str, Session]], group: str, session: Session) -> None:
    del groups[group][session.id]
    if not groups[group]:
        del groups[group]


def _record_of(session: Session) -> SessionRecord:
    return SessionRecord(session.last_used, session.level, tuple(session.subscriptions), tab=session.caller.tab)
