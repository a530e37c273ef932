"""One name and all that is known of whoever holds it, as a value; and who keeps a server elsewhere there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from tabrelay.calls.calls import Peer
from tabrelay.errors import RelayError
from tabrelay.payloads.list_checks import Rejection
from tabrelay.routing.catalogue_store import Catalogue, StoredServer
from tabrelay.routing.instances import SharedName, TabInfo
from tabrelay.routing.tool_drift import Baseline, Drift
from tabserver.wire.names import server_of


class Connector(Protocol):
    """Whoever sees to it that a server elsewhere is there. Browsers have none: they come by themselves."""

    @property
    def is_coming(self) -> bool:
        """Is it being connected to right now?"""

    async def reach(self) -> None:
        """Return when the server is there; raises as soon as it is known that it won't come."""

    def dismiss(self, error: RelayError) -> None:
        """Whoever waits, waits no longer."""

    def absence(self) -> str:
        """Why it is not there."""

    def describe(self) -> dict[str, Any]:
        """For the status."""


@dataclass(slots=True)
class ServerEntry:
    """One name. It outlives the peers that hold it: with no peer the server is offline, never unknown."""

    name: str
    catalogue: Catalogue | None = None
    last_seen: float | None = None
    peer: Peer | None = None
    connector: Connector | None = None
    # What a server elsewhere was made of when its catalogue was read.
    source: str | None = None
    since: float | None = None
    calls: int = 0
    listings: int = 0
    # Was the catalogue read from the browser that holds the name now?
    is_fresh: bool = False
    up: asyncio.Event = field(default_factory=asyncio.Event)
    # What it offered and nobody was told of: by the list it stood in, name -> why.
    flaws: dict[str, dict[str, Rejection]] = field(default_factory=dict)
    size: int = 0  # of the catalogue, as JSON
    # Did a client list or call anything? From then on its tools are compared with those that it had.
    is_used: bool = False
    baseline: Baseline | None = None
    drift: Drift = field(default_factory=Drift)
    # Not set: a browser came a moment ago, and what it offers is still being found out.
    is_listed: asyncio.Event = field(default_factory=asyncio.Event)
    # The browsers that share the name, if several may.
    instances: SharedName | None = None
    # Of a browser: what it is, its tabs, how often its user has turned to one of them, and when it was used last.
    browser: str | None = None
    tabs: tuple[TabInfo, ...] = ()
    focus_count: int = 0
    last_used: float | None = None
    # The server in its name: another only for one of several browsers that share it.
    server: str = ""

    def __post_init__(self) -> None:
        self.is_listed.set()
        self.server = server_of(self.name)

    def stored(self) -> StoredServer:
        """The part that outlives a restart."""
        return StoredServer(self.catalogue, self.last_seen, self.source, self.baseline)
