"""A node of a bus with its presence tables only, without faces and links: for tests with very many names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tabrelay.bus.members import Membership
from tabrelay.bus.nats import NatsAuth, NatsBus
from tabrelay.calls.peer import Peer
from tabrelay.config.settings import Settings
from tabrelay.peers.browsers.plain_peer import PlainPeer
from tabrelay.peers.nodes.locator import BrowserLocator
from tabrelay.peers.nodes.remote_peer import RemotePeer
from tabrelay.routing.catalogue_store import CatalogueStore
from tabrelay.routing.question_limits import limits_of
from tabrelay.routing.registry import Registry
from tabrelay.translation.parked_calls import ParkedCalls
from tests.support.nats_server import NatsServer

KEY = b"a key that all nodes have"


class PresenceNode:
    """One node. Start its `cluster`, and stop it."""

    def __init__(self, bus: NatsServer, home: Path, most: int) -> None:
        """`most`: the largest number of names."""
        self.nats = NatsBus((bus.url,), NatsAuth(), "test")
        self.cluster = Membership(self.nats, KEY, beat_s=1.0)
        self.registry = Registry(CatalogueStore(None, most=most), most=most, on_presence=self._set_presence)
        settings = Settings(home=home, away_wait_s=1.0)
        self.locator = BrowserLocator(
            self.cluster, self.registry, {}, settings, on_up=lambda name: None, on_gone=lambda name: None
        )

    def _set_presence(self, name: str, peer: Peer, state: str) -> None:
        self.locator.browsers.set_presence(name, peer, state)

    def hold(self, name: str) -> None:
        parking: ParkedCalls[Any] = ParkedCalls(ttl_s=1.0, most=1)
        peer = PlainPeer(
            name,
            parked_calls=parking,
            in_flight_limit=1,
            repeat_s=1.0,
            limits=limits_of(Settings()),
            max_values=200_000,
            on_up=lambda peer: None,
            on_away=lambda peer: None,
        )
        self.registry.take(name, peer)

    def held_by(self, name: str) -> str | None:
        """The other node that holds the name; None if no other node does."""
        peer = self.registry.holder(name)
        return peer.location.node if isinstance(peer, RemotePeer) else None
