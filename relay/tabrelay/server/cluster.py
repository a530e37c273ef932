"""Cluster set-up: connects one relay to the others on its bus.

Browsers of the other relays become peers of this one, and its browsers become peers of theirs. Sessions and pins of
legacy clients are shared. Only a relay with a bus has a `Cluster`; it decides nothing about single calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from starlette.types import ASGIApp

from tabrelay import __version__
from tabrelay.bus.bus import Bus
from tabrelay.bus.members import Membership
from tabrelay.calls.calls import Pending
from tabrelay.calls.peer import PeerKind
from tabrelay.config.settings import Settings
from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.nodes.cluster_status import ClusterStatus
from tabrelay.faces.nodes.console_proxy import ConsoleProxy
from tabrelay.faces.nodes.forwarded_calls import Forwarding
from tabrelay.faces.nodes.leader import LeaderProxy
from tabrelay.faces.nodes.node_requests import NodeRequests
from tabrelay.faces.nodes.shared_console import SharedConsole
from tabrelay.observe.capture.call_capture import CallCapture
from tabrelay.peers.browsers.name_claims import NameClaims
from tabrelay.peers.nodes.locator import BrowserLocator
from tabrelay.peers.nodes.name_release import NameRelease, answer_releases
from tabrelay.routing.drain import Drain
from tabrelay.routing.registry import Registry
from tabrelay.routing.status import describe
from tabserver.wire.names import INSTANCE_SEPARATOR
from tabserver.wire.pending_calls import PendingCalls


class Cluster:
    """This relay as one of several. One per relay with a bus."""

    def __init__(
        self,
        bus: Bus,
        key: bytes,
        settings: Settings,
        url: str,
        *,
        registry: Registry,
        drain: Drain,
        pending_calls: dict[str, PendingCalls[Pending]],
        capture: CallCapture,
        count_browsers: Callable[[], int],
        count_calls: Callable[[], int],
        on_up: Callable[[str], None],
        on_gone: Callable[[str], None],
    ) -> None:
        """`key`: the secret that the relays share. `pending_calls`: calls at browsers of any relay, by address."""
        self._settings = settings
        self._url = url
        self._registry = registry
        self._count_browsers = count_browsers
        self._count_calls = count_calls
        self.members = Membership(bus, key, self._describe_node, settings.bus_beat_s, keep_s=settings.call_deadline_s)
        self.locator = BrowserLocator(
            self.members,
            registry,
            pending_calls,
            settings,
            on_up=on_up,
            on_gone=on_gone,
            has_moved=lambda pending: self._forwarding.moved(pending),
        )
        self.name_release = NameRelease(self.members, self.locator)
        self._forwarding = Forwarding(
            self.members, registry, drain, self.locator.local, lambda peer: peer.kind is PeerKind.BROWSER
        )
        self.bus_sync = BusSync(self.members)
        self.status = ClusterStatus(self.members, url, self._own_names, self._rows, self._describe_node)
        capture.join(self.members.id)
        self._shared_console = SharedConsole(self.members, capture)
        self._requests: NodeRequests | None = None

    def share_claims(self, claims: NameClaims) -> None:
        """Pages at other relays may claim names of this relay's browsers."""
        answer_releases(self.members, claims)

    def in_front_of(self, pages: ASGIApp) -> ASGIApp:
        """The web pages, with the requests that another node answers."""
        self._requests = requests = NodeRequests(pages, self.members)
        return LeaderProxy(ConsoleProxy(pages, requests, self._settings.max_body), requests)

    async def close(self) -> None:
        """The relay stops: requests of other nodes, and what their consoles get, end."""
        await self._shared_console.close()
        if self._requests is not None:
            await self._requests.close()

    def _describe_node(self) -> dict[str, Any]:
        """Sent to the other relays with every heartbeat."""
        return {
            "version": __version__,
            "port": self._settings.port,
            "browsers": self._count_browsers(),
            "in_flight": self._count_calls(),
        }

    def _own_names(self) -> list[str]:
        """The servers that have a browser at this relay."""
        names = [entry.name for entry in self._registry.entries() if INSTANCE_SEPARATOR not in entry.name]
        return [name for name in names if self.locator.has(name)]

    def _rows(self, names: Collection[str]) -> list[dict[str, Any]]:
        return describe(self._registry, self._url, names.__contains__, time.time())
