"""What a browser must know of a session before it hears of it: that somebody listens, the log level, the subscriptions.

It is told whenever a browser has the server that does not know, because it came anew or because the session did. What
clients say in a session is none of its business.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Call, Peer, Pending
from tabrelay.errors import RelayError
from tabrelay.faces.mcp.session_store import SessionRecord
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabrelay.payloads.list_checks import MAX_URI
from tabrelay.routing.switch import Switch
from tabserver.wire import jsonrpc, methods
from tabserver.wire.names import server_of

# defence: loop time: sessions that are told of a browser
AT_ONCE: Final = 100  # sessions that are told something in one callback of the event loop
# What a session's channel must be told again when another worker takes over.
REMEMBERED: Final = frozenset({methods.LOGGING_SET_LEVEL, methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE})


class SessionReplay:
    """Of all sessions of the relay."""

    def __init__(self, switch: Switch, sessions: Sessions) -> None:
        self._switch = switch
        self._sessions = sessions
        self._ids = itertools.count(1)

    def came_up(self, server: str) -> None:
        """A browser took the name: sessions whose state it must know tell it, before any of their calls gets there."""

        def tell(session: Session) -> None:
            if session.wants_notices or session.level or session.subscriptions:
                self.tell(session)

        self._each(self._sessions.of(server), tell)

    def went(self, server: str, changes: frozenset[str]) -> None:
        """Of several browsers under this name one is gone for good: its sessions go on with another, where these lists
        are others."""

        def tell(session: Session) -> None:
            if session.told is not None and not session.told.is_up and self.home(session) == server:
                self.tell(session)
                session.hear_lists(changes)

        self._each(self._sessions.of(server), tell)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        """The lists are others than clients were told: those who listen shall ask again."""

        def tell(session: Session) -> None:
            if self.home(session) == server:
                session.hear_lists(lists)

        for name in {server, server_of(server)}:
            self._each(self._sessions.of(name), tell)

    def _each(self, sessions: list[Session], tell: Callable[[Session], None]) -> None:
        """The first sessions now, the others in later turns of the event loop, unless they have ended by then."""
        for session in sessions[:AT_ONCE]:
            if not session.streams.standing.is_over:
                tell(session)
        if len(sessions) > AT_ONCE:
            asyncio.get_running_loop().call_soon(self._each, sessions[AT_ONCE:], tell)

    def home(self, session: Session) -> str:
        """The browser that the session stays with, or else its server."""
        return self._switch.registry.seat(session.server, session.channel)

    def peer(self, session: Session) -> Peer | None:
        return self._switch.registry.holder(session.server, session.channel)

    def tell(self, session: Session) -> None:
        """Open the channel at a browser that does not know it, as the client believes that it is."""
        peer = self.peer(session)
        if peer is None or not peer.is_up or session.told is peer:
            return
        session.told = peer
        if session.wants_notices:
            peer.listen(session.channel, session.caller, session.hear)
        wishes = ((methods.RESOURCES_SUBSCRIBE, {"uri": uri}) for uri in list(session.subscriptions))
        first = [(methods.LOGGING_SET_LEVEL, {"level": session.level})] if session.level else []
        if not all(self._wish(session, peer, method, params) for method, params in itertools.chain(first, wishes)):
            session.told = None

    def _wish(self, session: Session, peer: Peer, method: str, params: dict[str, Any]) -> bool:
        """Ask something whose answer nobody reads."""
        id = f"tabrelay-{next(self._ids)}"
        payload = orjson.dumps(jsonrpc.request(id, method, params)).decode()
        pending = Pending(Call(session.channel, id, method, payload, session.caller))
        pending.release()
        try:
            peer.start(pending)
        except RelayError:
            return False
        return True

    def listen(self, session: Session) -> None:
        """From now on what belongs to no request is wanted."""
        session.wants_notices = True
        peer = self.peer(session)
        if session.told is peer and peer is not None and peer.is_up:
            peer.listen(session.channel, session.caller, session.hear)
        self.tell(session)

    def remember(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """The server agreed to this: the next browser must know it too."""
        level, uri = params.get("level"), params.get("uri")
        if method == methods.LOGGING_SET_LEVEL and level in methods.LOG_LEVELS:
            session.level = level
        elif method == methods.RESOURCES_SUBSCRIBE and isinstance(uri, str) and len(uri) <= MAX_URI:
            session.subscriptions[uri] = None
        elif method == methods.RESOURCES_UNSUBSCRIBE and isinstance(uri, str):
            session.subscriptions.pop(uri, None)
        else:
            return
        self._sessions.changed(session)

    def changed_elsewhere(self, session: Session, page: SessionRecord) -> None:
        """The client set something at another relay."""
        before = (session.level, list(session.subscriptions))
        for uri in set(session.subscriptions) - set(page.subscriptions):
            if session.told is not None and session.told.is_up:
                self._wish(session, session.told, methods.RESOURCES_UNSUBSCRIBE, {"uri": uri})
        session.level, session.subscriptions = page.level, dict.fromkeys(page.subscriptions)
        session.caller = replace(session.caller, tab=page.tab)
        if before != (session.level, list(session.subscriptions)) and session.told is not None:
            session.told = None
            self.tell(session)
