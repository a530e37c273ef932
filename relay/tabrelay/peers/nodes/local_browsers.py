"""Presence of this relay's browsers on the bus: announcements, and answers to queries of other relays.

The subscription to a server's owner subject is the only record that a browser of it is connected here; nothing is
stored. Browsers of other relays are in `RemoteBrowsers`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tabrelay.bus import envelope
from tabrelay.bus.bus import BusDown, BusMessage
from tabrelay.bus.members import Membership
from tabrelay.calls.peer import Peer, PeerKind
from tabrelay.errors import UnknownServer
from tabrelay.peers.nodes.remote_peer import BrowserLocation
from tabrelay.routing.registry import Registry
from tabserver.wire.names import server_of

USE_INTERVAL_S: Final = 1.0
ANNOUNCED_AT_ONCE: Final = 100


@dataclass(slots=True)
class LocalBrowser:
    """A browser of this relay, as the other relays know it."""

    peer: Peer
    location: BrowserLocation
    is_up: bool = True
    use_announced: float = field(default=0.0)

    @property
    def state(self) -> str:
        return "up" if self.is_up else "away"


class LocalBrowsers:
    """One per relay that is on a bus."""

    def __init__(
        self,
        cluster: Membership,
        registry: Registry,
        *,
        on_first: Callable[[str], object],
        displace: Callable[[str], BrowserLocation | None],
    ) -> None:
        """`on_first` is called with a server when its first browser connects here. `displace(address)`: a browser of
        this relay has the address from now on; returns where it was before, if that was another relay."""
        self._cluster = cluster
        self._registry = registry
        self._on_first = on_first
        self._displace = displace
        self._held: dict[str, LocalBrowser] = {}
        # For each server with browsers here: their addresses, and the function that ends the subscription.
        self._owned: dict[str, tuple[set[str], Callable[[], None]]] = {}

    def __len__(self) -> int:
        """How many servers have a browser here."""
        return len(self._owned)

    def has(self, server: str) -> bool:
        """Is a browser of this server connected here?"""
        return server in self._owned

    def get(self, address: str) -> LocalBrowser | None:
        return self._held.get(address)

    async def announce_all(self) -> None:
        """Announce all browsers again after the bus was down. There may be thousands, so calls run in between."""
        for number, (address, held) in enumerate(list(self._held.items()), 1):
            if self._held.get(address) is held:
                self.announce(held, held.state, is_sync=True)
            if number % ANNOUNCED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def set_presence(self, address: str, peer: Peer, state: str) -> None:
        """The registry reports that a browser connected, is away, is gone, or has other tabs."""
        if peer.kind not in (PeerKind.BROWSER, PeerKind.PLAIN):
            return
        held = self._held.get(address)
        if state == "gone":
            if held is not None and held.peer is peer:
                self.release(address)
                self.announce(held, "gone")
            return
        if held is None or held.peer is not peer:
            before = held.location if held is not None else None
            held = self._held[address] = LocalBrowser(
                peer, self._new_location(address, peer, before, self._displace(address))
            )
            self._subscribe(address)
        held.is_up = state != "away"
        self.announce(held, held.state)

    def _new_location(self, address: str, peer: Peer, *before: BrowserLocation | None) -> BrowserLocation:
        """A location that is newer than the one before, whatever the clocks of other machines show."""
        gen = max([round(time.time() * 1000), *(place.gen + 1 for place in before if place is not None)])
        identity = peer.identity or f"{self._cluster.id}-{gen}"
        return BrowserLocation(address, self._cluster.id, gen, identity, peer.principal or "", peer.browser)

    def _subscribe(self, address: str) -> None:
        server = server_of(address)
        if server not in self._owned:
            self._on_first(server)
            subject = self._cluster.subjects.owner(server)
            self._owned[server] = (
                set(),
                self._cluster.bus.subscribe(subject, lambda asked: self._answer_query(server, asked)),
            )
        self._owned[server][0].add(address)

    def release(self, address: str) -> None:
        """Forget a browser that is not, or no longer, at this relay."""
        if self._held.pop(address, None) is None:
            return
        server = server_of(address)
        addresses, close = self._owned[server]
        addresses.discard(address)
        if not addresses:
            close()
            del self._owned[server]

    def _answer_query(self, server: str, message: BusMessage) -> None:
        """Answer a relay that asks which relay has this server."""
        ours = [self._held[address] for address in self._owned[server][0]]
        places = [self._row(held, held.state) for held in ours]
        if message.reply:
            data = envelope.pack({"op": "places", "places": places, "from": self._cluster.id})
            self._cluster.bus.answer(message.reply, data)

    def announce(self, held: LocalBrowser, state: str, *, is_sync: bool = False) -> None:
        with suppress(BusDown):
            row = self._row(held, state) | ({"sync": True} if is_sync else {})
            self._cluster.bus.send(
                self._cluster.subjects.presence(server_of(held.location.address)), envelope.pack(row)
            )

    def _row(self, held: LocalBrowser, state: str) -> dict[str, Any]:
        row = {"op": "news", "from": self._cluster.id, "state": state, **held.location.to_dict()}
        row["reserved"] = held.peer.is_reserved
        with suppress(UnknownServer):
            entry = self._registry.find(held.location.address)
            row["tabs"] = [[tab.id, tab.title, tab.is_visible] for tab in entry.tabs]
            row["awake"] = entry.is_awake
            row["turns"], row["used"] = entry.focus_count, entry.last_used
        return row

    def record_use(self, address: str) -> None:
        """A browser of this relay was used. Where several share a name, it is the preferred one at all relays."""
        held = self._held.get(address)
        now = time.monotonic()
        if held is not None and address != server_of(address) and now - held.use_announced > USE_INTERVAL_S:
            held.use_announced = now
            self.announce(held, held.state)
