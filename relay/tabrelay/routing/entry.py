"""Entry of the registry: one server name with its peer, catalogue, presence and statistics.

`Connector` is what the registry needs of an upstream that may have to be connected first. Neither changes by itself:
the registry, `shared_names` and `catalogues` set the fields.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tabrelay.calls.peer import Peer
from tabrelay.errors import RelayError
from tabrelay.payloads.list_checks import Rejection
from tabrelay.routing.catalogue_store import Catalogue, StoredServer
from tabrelay.routing.instances import SharedName, TabInfo, TaskInfo
from tabrelay.routing.tool_drift import Baseline, Drift
from tabserver.wire.names import server_of


class Connector(Protocol):
    """Connects to an upstream. Browsers have none: they connect by themselves."""

    @property
    def is_connecting(self) -> bool:
        """Is a connection being made right now?"""

    async def wait_for_start(self) -> None:
        """Return when the upstream is connected; raises as soon as that has failed."""

    def dismiss(self, error: RelayError) -> None:
        """Fail all waits with this error."""

    def offline_text(self) -> str:
        """The reason why it is not connected."""

    def describe(self) -> dict[str, Any]:
        """Fields for the status route."""


class RemoteLookup(Protocol):
    """Finds the relay that has a server's browser, where several relays share a bus."""

    def is_held(self, server: str) -> bool:
        """Is that known?"""

    async def find(self, server: str) -> None:
        """Add the server to the registry; raises RelayUnavailable if no other relay can be reached."""


@dataclass(slots=True)
class ServerEntry:
    """One name. It outlives the peers that hold it: with no peer the server is offline, never unknown."""

    name: str
    catalogue: Catalogue | None = None
    last_seen: float | None = None
    peer: Peer | None = None
    connector: Connector | None = None
    # Fingerprint of the configuration of an upstream when its catalogue was read.
    source: str | None = None
    since: float | None = None
    calls: int = 0
    listings: int = 0
    # Was the catalogue read from the present peer?
    is_fresh: bool = False
    up: asyncio.Event = field(default_factory=asyncio.Event)
    # What was left out of its lists, or is suspicious: by list method, name -> reason.
    flaws: dict[str, dict[str, Rejection]] = field(default_factory=dict)
    size: int = 0  # bytes of memory of the catalogue
    # Has a client listed or called anything? From then on the tools are compared with the baseline.
    is_used: bool = False
    baseline: Baseline | None = None
    drift: Drift = field(default_factory=Drift)
    # The changed and removed tools as they were, as far as they were read by this process or kept by an earlier one.
    originals: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    # Not set while the lists of a browser that has just connected are being read.
    is_listed: asyncio.Event = field(default_factory=asyncio.Event)
    # The browsers that share the name, if several may share it.
    instances: SharedName | None = None
    # Of a browser: its name, its tabs, how often its user has turned to one of them, and when it was used last.
    browser: str | None = None
    tabs: tuple[TabInfo, ...] = ()
    tasks: tuple[TaskInfo, ...] = ()
    focus_count: int = 0
    # Can one of its tabs answer? None: the browser has not said. `idle_since`: wall time since when none can.
    is_awake: bool | None = None
    idle_since: float | None = None
    # Monotonic time since when it has neither a tab nor a call that waits for a client's answer.
    empty_since: float | None = None
    last_used: float | None = None
    # The server in its name; differs from the name for one of several browsers that share it.
    server: str = ""

    def __post_init__(self) -> None:
        self.is_listed.set()
        self.server = server_of(self.name)

    def forget_tabs(self) -> None:
        """Another browser has the name, or none has."""
        self.is_awake = self.idle_since = self.empty_since = None
        self.tasks = ()

    @property
    def is_starting(self) -> bool:
        """Is it an upstream that is starting and has no catalogue yet? A client that gets an empty list now may never
        ask again."""
        return self.connector is not None and self.connector.is_connecting and self.catalogue is None

    def stored(self) -> StoredServer:
        """The part that outlives a restart."""
        return StoredServer(self.catalogue, self.last_seen, self.source, self.baseline)
