"""Replay of session state to a browser that does not know the session: listening, log level, resource subscriptions.

State is sent when a browser or a session is new to the other, before any call of that session. SESSIONS_AT_ONCE
sessions are handled in one callback of the event loop. Calls and notifications of clients are not handled here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Call, Pending
from tabrelay.calls.peer import Peer
from tabrelay.errors import RelayError
from tabrelay.faces.mcp.session_store import SessionRecord
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabrelay.payloads.list_checks import MAX_URI
from tabrelay.routing.switch import Switch
from tabserver.wire import jsonrpc, methods
from tabserver.wire.names import server_of

# defence: loop time: sessions that are notified of a browser
SESSIONS_AT_ONCE: Final = 100  # sessions in one callback of the event loop
# Requests whose effect must be replayed to the next worker.
REPLAYED_METHODS: Final = frozenset(
    {methods.LOGGING_SET_LEVEL, methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE}
)


class SessionReplay:
    """For all sessions of the relay."""

    def __init__(self, switch: Switch, sessions: Sessions) -> None:
        self._switch = switch
        self._sessions = sessions
        self._ids = itertools.count(1)

    def came_up(self, server: str) -> None:
        """A browser connected: send the state of sessions that have any, before any of their calls."""

        def notify(session: Session) -> None:
            if session.wants_notices or session.level or session.subscriptions:
                self.send(session)

        self._each(self._sessions.of_server(server), notify)

    def peer_left(self, server: str, changes: frozenset[str]) -> None:
        """One of several browsers with this name is permanently gone: its sessions continue with another one, in which
        these lists differ."""

        def notify(session: Session) -> None:
            if session.replayed_to is not None and not session.replayed_to.is_up and self.address(session) == server:
                self.send(session)
                session.lists_changed(changes)

        self._each(self._sessions.of_server(server), notify)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        """These lists differ from what clients know: notify the sessions that listen."""

        def notify(session: Session) -> None:
            if self.address(session) == server:
                session.lists_changed(lists)

        for name in {server, server_of(server)}:
            self._each(self._sessions.of_server(name), notify)

    def _each(self, sessions: list[Session], notify: Callable[[Session], None]) -> None:
        """The first sessions now, the others in later callbacks, unless they have ended by then."""
        for session in sessions[:SESSIONS_AT_ONCE]:
            if not session.streams.get_stream.is_over:
                notify(session)
        if len(sessions) > SESSIONS_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._each, sessions[SESSIONS_AT_ONCE:], notify)

    def address(self, session: Session) -> str:
        """The browser that the session is bound to, or else its server."""
        return self._switch.registry.shared_names.bound_to(session.server, session.channel)

    def peer(self, session: Session) -> Peer | None:
        return self._switch.registry.holder(session.server, session.channel)

    def send(self, session: Session) -> None:
        """Open the channel at a browser that does not know it, in the state that the client expects."""
        peer = self.peer(session)
        if peer is None or not peer.is_up or session.replayed_to is peer:
            return
        session.replayed_to = peer
        if session.wants_notices:
            peer.listen(session.channel, session.caller, session.receive)
        subscribe = ((methods.RESOURCES_SUBSCRIBE, {"uri": uri}) for uri in list(session.subscriptions))
        level = [(methods.LOGGING_SET_LEVEL, {"level": session.level})] if session.level else []
        if not all(
            self._send_request(session, peer, method, params) for method, params in itertools.chain(level, subscribe)
        ):
            session.replayed_to = None

    def _send_request(self, session: Session, peer: Peer, method: str, params: dict[str, Any]) -> bool:
        """Send a request whose response is ignored. False if it could not be sent."""
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
        """From now on the client receives messages that belong to no request."""
        session.wants_notices = True
        peer = self.peer(session)
        if session.replayed_to is peer and peer is not None and peer.is_up:
            peer.listen(session.channel, session.caller, session.receive)
        self.send(session)

    def record(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """The server accepted this request: the next browser must receive it too."""
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

    def changed_at_node(self, session: Session, record: SessionRecord) -> None:
        """The client changed the session at another relay."""
        before = (session.level, list(session.subscriptions))
        for uri in set(session.subscriptions) - set(record.subscriptions):
            if session.replayed_to is not None and session.replayed_to.is_up:
                self._send_request(session, session.replayed_to, methods.RESOURCES_UNSUBSCRIBE, {"uri": uri})
        session.level, session.subscriptions = record.level, dict.fromkeys(record.subscriptions)
        session.caller = replace(session.caller, tab=record.tab)
        if before != (session.level, list(session.subscriptions)) and session.replayed_to is not None:
            session.replayed_to = None
            self.send(session)
