"""Claims of pages to server names: whether a principal may have a name now, and why not.

L8: a name belongs to the principal of the browser that holds it, also during that browser's grace. A browser without
tabs, calls and calls that wait releases it: to pages of the same origin at once, to others after the grace. Pages of
one port under several loopback names count as one origin here. Checked at the handshake and again at the hello. For a
browser at another relay of the bus, that relay decides.

Does not decide who may offer a name at all: the gate has checked the token.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol

from tabrelay.admission.policy import Refuse
from tabrelay.calls.peer import Peer, PeerKind
from tabrelay.calls.principal import Principal
from tabrelay.config.settings import Settings
from tabrelay.errors import RelayError
from tabrelay.http.addresses import loopback_siblings
from tabrelay.peers.browsers.peer import BrowserPeer
from tabrelay.routing.drain import Drain
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.registry import Registry
from tabserver.wire.frames import CLOSE_REPLACED
from tabserver.wire.names import INSTANCE_SEPARATOR

# The name of a browser in its grace is free soon.
RESERVED_RETRY_MS: Final = 3000
TAKEN: Final = "taken"
RESERVED: Final = "reserved"


class OtherRelays(Protocol):
    """The other relays on the bus of this one."""

    async def find(self, server: str) -> None:
        """Enter the server's holder into the registry. May raise RelayError."""

    async def ask_release(self, principal: Principal, server: str) -> None:
        """Ask the relays that have browsers of this server to end those that have released it to this principal."""


class NameClaims:
    """Reads the registry. Changes nothing, except that `release` ends sessions."""

    def __init__(self, registry: Registry, settings: Settings, drain: Drain, others: OtherRelays | None = None) -> None:
        self._registry = registry
        self._settings = settings
        self._drain = drain
        self._others = others

    async def refusal_at_dial(self, principal: Principal, server: str) -> Refuse | None:
        """`refusal`, after the other relays of the bus were asked."""
        if self._others is None:
            return self.refusal(principal, server)
        with suppress(RelayError):
            await self._others.find(server)
        refusal = self.refusal(principal, server)
        peers = [entry.peer for entry in self._registry.holding(server)]
        is_remote = any(peer is not None and peer.kind is PeerKind.NODE for peer in peers)
        if refusal is not None and refusal.reason in (TAKEN, RESERVED) and is_remote:
            await self._others.ask_release(principal, server)
            refusal = self.refusal(principal, server)
        return refusal

    def release(self, principal: Principal, server: str) -> list[str]:
        """End the browsers of this relay that have released the name to this principal, for a page at another relay.
        None, if one of them keeps it. Returns their addresses."""
        holding = [(one, peer) for one in self._registry.holding(server) if isinstance(peer := one.peer, BrowserPeer)]
        if any(self._holder_refusal(principal, server, entry, peer) is not None for entry, peer in holding):
            return []
        released = [(entry.name, peer) for entry, peer in holding if peer.principal != principal.id]
        for _, peer in released:
            peer.retire(CLOSE_REPLACED, "a browser at another relay now offers this server")
        return [address for address, _ in released]

    def refusal(self, principal: Principal, server: str) -> Refuse | None:
        """Why this principal can't have the name now, if it can't."""
        # A browser that has a call in flight and lost its socket may still deliver the result.
        if self._drain.is_on and not any(
            entry.peer is not None and entry.peer.kind is PeerKind.BROWSER and entry.peer.in_flight
            for entry in self._registry.holding(server)
        ):
            return Refuse(503, "draining", "The relay is stopping.")
        return self.held_by_another(principal, server)

    def held_by_another(self, principal: Principal, server: str) -> Refuse | None:
        """Why the name, or the room for it, is taken, if it is."""
        holding = self._registry.holding(server)
        if any(entry.peer is not None and entry.peer.kind is PeerKind.UPSTREAM for entry in holding):
            text = f'"{server}" is a server of the relay\'s configuration. Choose another name.'
            return Refuse(403, "configured", text)
        is_shared = server in self._settings.instances
        if not self._registry.has_room_for(server + INSTANCE_SEPARATOR if is_shared else server):
            return Refuse(503, "busy", "The relay holds as many servers as it can. Close some pages first.")
        refusals = (self._holder_refusal(principal, server, entry, entry.peer) for entry in holding)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _holder_refusal(
        self, principal: Principal, server: str, entry: ServerEntry, peer: Peer | None
    ) -> Refuse | None:
        # defence: a name that another page holds
        if peer is None or peer.principal == principal.id or self._is_released(principal, entry, peer):
            return None
        if peer.is_up:
            text = f'"{server}" is held by a page of another origin or token. It is free when that page is closed.'
            return Refuse(403, TAKEN, text)
        # defence: take-over: a name is kept during the grace
        if peer.is_reserved:
            text = f'"{server}" is kept for a page of another origin or token that has just lost its connection.'
            return Refuse(403, RESERVED, text, retry_after_ms=RESERVED_RETRY_MS)
        return None

    def _is_released(self, principal: Principal, entry: ServerEntry, peer: Peer) -> bool:
        """Has its browser neither tabs nor calls, for long enough?"""
        empty_s = self._registry.empty_for_s(entry)
        # defence: take-over: a browser with a tab or a call keeps its name
        if empty_s is None or not peer.is_releasable:
            return False
        # defence: take-over: another origin waits for the grace of a browser without tabs
        return empty_s >= self._settings.grace_s or _is_one_origin(principal.origin, peer.origin)


def _is_one_origin(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and (one == other or other in loopback_siblings(one))
