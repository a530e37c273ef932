"""WebSocket endpoint for plain pages: configured names accept MCP over a WebSocket without a link.

A page is refused only before the 101. An accepted page is never disconnected because there are too many: it would dial
again at once, without end. The gate decides whether a page may connect without a token.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tabrelay.admission.policy import Refuse
from tabrelay.calls.peer import Peer, PeerKind
from tabrelay.calls.principal import Principal
from tabrelay.config.settings import Settings
from tabrelay.peers.browsers.plain_peer import PlainPeer
from tabrelay.peers.browsers.plain_session import PlainSocket
from tabrelay.routing.question_limits import limits_of
from tabrelay.routing.registry import Registry
from tabrelay.translation.legacy_call import LegacyCall
from tabrelay.translation.parked_calls import ParkedCalls
from tabserver.wire.frames import SUBPROTOCOL

log = logging.getLogger(__name__)

MCP: Final = "mcp"  # the official TypeScript SDK v1 offers it, and needs it in the response


class PlainEndpoint:
    """The plain servers of a relay: one PlainPeer per name, made when the first page of that name connects."""

    def __init__(self, registry: Registry, settings: Settings, on_up: Callable[[str], None]) -> None:
        self._registry = registry
        self._settings = settings
        self._on_up = on_up
        self._names = frozenset(settings.plain)
        self._parked_calls: ParkedCalls[LegacyCall] = ParkedCalls(ttl_s=settings.park_s, most=settings.park_caller)
        self._peers: dict[str, PlainPeer] = {}

    def accepts(self, server: str, offered: Sequence[str]) -> bool:
        """Is this a plain page of a server that is configured for them? A page that offers the link uses the link."""
        return server in self._names and SUBPROTOCOL not in offered and (not offered or MCP in offered)

    def subprotocol(self, offered: Sequence[str]) -> str | None:
        return MCP if MCP in offered else None

    def refusal(self, server: str) -> Refuse | None:
        peer = self._peers.get(server)
        if peer is not None and not peer.has_room:
            return Refuse(409, "busy", f'"{server}" has too many pages already. Close some.')
        return None

    async def serve(
        self, server: str, principal: Principal, socket: PlainSocket, next_text: Callable[[], Awaitable[str | None]]
    ) -> None:
        peer = self._peer(server)
        session = peer.attach(socket, principal.id)
        try:
            while (text := await next_text()) is not None:
                await session.receive(text)
        finally:
            peer.detach(session)

    def peers(self) -> list[PlainPeer]:
        return list(self._peers.values())

    def reclaim(self, server: str) -> None:
        """The name is free: a plain page that waited for it gets it."""
        peer = self._peers.get(server)
        if peer is not None and peer.is_up:
            self._up(peer)

    def _peer(self, server: str) -> PlainPeer:
        peer = self._peers.get(server)
        if peer is None:
            peer = self._peers[server] = PlainPeer(
                server,
                parked_calls=self._parked_calls,
                in_flight_limit=self._settings.in_flight_server,
                repeat_s=self._settings.greet_s,
                limits=limits_of(self._settings),
                max_values=self._settings.max_values,
                on_up=self._up,
                on_away=self._away,
            )
        return peer

    def _up(self, peer: PlainPeer) -> None:
        holder = self._registry.holder(peer.server)
        if holder is not None and holder is not peer and (holder.is_up or self._is_kept_from(peer, holder)):
            return  # a browser with a link holds the name; this page stays idle until that one is gone
        self._registry.take(peer.server, peer)
        log.info("%s: connected, a plain page of %s", peer.server, peer.principal)
        self._on_up(peer.server)

    def _is_kept_from(self, peer: PlainPeer, holder: Peer) -> bool:
        """L8: is the name kept for a browser of another principal that is in its grace?"""
        is_browser = holder.kind in (PeerKind.BROWSER, PeerKind.NODE)
        return is_browser and holder.is_reserved and holder.principal != peer.principal

    def _away(self, peer: PlainPeer) -> None:
        log.info("%s: its page is gone", peer.server)
        self._registry.mark_away(peer.server, peer)
