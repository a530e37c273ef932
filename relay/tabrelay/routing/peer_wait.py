"""Wait for the peer of a call that can't start at once: its relay is looked up, its browser is away or being listed.

Each wait has a deadline. Calls that can start at once do not come here.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from tabrelay.calls.calls import LISTS, Call
from tabrelay.calls.peer import Peer
from tabrelay.errors import RelayUnavailable, ServerOffline
from tabrelay.routing.entry import RemoteLookup, ServerEntry
from tabrelay.routing.registry import Registry
from tabserver.wire.control_messages import RELAY

# A reloaded page offers its tools a moment after its browser is connected: lists wait for that, but not longer.
LIST_WAIT_S: Final = 1.0


def is_being_listed(entry: ServerEntry, call: Call) -> bool:
    """Does the relay read the lists of the server at this moment, so that a client's list call has to wait?"""
    return call.method in LISTS and not entry.is_listed.is_set() and call.caller.principal != RELAY


class PeerWait:
    """One per relay. `away_wait_s`: for a browser that is away."""

    def __init__(self, registry: Registry, away_wait_s: float, remote_lookup: RemoteLookup | None) -> None:
        self._registry = registry
        self._away_wait_s = away_wait_s
        self._remote_lookup = remote_lookup

    async def locate(self, server: str) -> None:
        """Where relays share a bus: find a server that this relay has never seen."""
        if self._remote_lookup is not None and not self._remote_lookup.is_held(server):
            try:
                await self._remote_lookup.find(server)
            except RelayUnavailable:
                if not self._registry.knows(server):
                    raise

    async def start_of(self, entry: ServerEntry) -> None:
        """Wait until a server that is starting has started, or not."""
        with suppress(ServerOffline):
            await self._registry.wait_for_peer(entry.name, self._away_wait_s)

    async def peer_for(self, server: str, call: Call) -> tuple[ServerEntry, Peer]:
        """Raises RelayError."""
        if self._remote_lookup is not None and not self._remote_lookup.is_held(server):
            await self._remote_lookup.find(server)
        entry, peer = await self._registry.wait_for_peer(server, self._away_wait_s, call)
        if is_being_listed(entry, call):
            with suppress(TimeoutError):
                async with asyncio.timeout(LIST_WAIT_S):
                    await entry.is_listed.wait()
            entry, peer = await self._registry.wait_for_peer(server, self._away_wait_s, call)
        return entry, peer
