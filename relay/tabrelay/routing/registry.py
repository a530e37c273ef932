"""Registry of server names: leases of peers, presence, waiting for a peer that is away.

A name is known once it was declared, paired or seen, and stays known over restarts: without a peer its server is
offline, never unknown. It ends when the user forgets it, or removes it from the configuration. Names that several
browsers share are in `shared_names`, the lists of servers in `catalogues`. The registry knows no transport and starts
no call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tabrelay.calls.calls import Call
from tabrelay.calls.peer import Peer, PeerKind
from tabrelay.errors import ServerOffline, UnknownServer
from tabrelay.routing.capacity import NameCapacity
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore, StoredServer
from tabrelay.routing.catalogues import Catalogues
from tabrelay.routing.drain import unavailable
from tabrelay.routing.entry import Connector, ServerEntry
from tabrelay.routing.instances import ANY, SharedName, TabReport, TabRequest
from tabrelay.routing.shared_names import SharedNames
from tabrelay.routing.tool_drift import Drift, as_many_as_shown
from tabrelay.system.program import NAME
from tabserver.wire.names import check_address, check_server_name, server_of

# The catalogue of an upstream that was not seen for this long is dropped: by then it is most likely another server.
CATALOGUE_LIFE_S: Final = 30 * 86_400.0


class Registry:
    """Table of names. One per relay."""

    def __init__(
        self,
        store: CatalogueStore,
        *,
        declared: Iterable[str] = (),
        static_tools: Iterable[str] = (),
        instances: Iterable[str] = (),
        most: int = 512,
        catalogue_budget: int = 32 * 1024 * 1024,
        on_front_change: Callable[[str], None] = lambda server: None,
        on_names: Callable[[], None] = lambda: None,
        on_presence: Callable[[str, Peer, str], None] = lambda name, peer, state: None,
        on_use: Callable[[str], None] = lambda name: None,
        drift_level: int = logging.WARNING,
        command: str = NAME,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`static_tools`: names of servers that have the static tools, also before their first browser. `instances`:
        names that several browsers share. `most`: limit of names. `catalogue_budget`: bytes of memory for the
        catalogues of all servers. `on_front_change`: another of the browsers that share this name is in front.
        `on_names`: a name was added or removed, or has another peer. `on_presence`: a peer is "up", "away" for a
        moment, "gone", or has other "tabs". `on_use`: a user or a client has used the browser with this address.
        `drift_level`: log level of changed tools. `command`: what starts this program, for messages."""
        self._command = command
        self._on_presence = on_presence
        self._wall = wall
        self._on_names = on_names
        self._clock = clock
        self._capacity = NameCapacity(most, declared := frozenset(declared))
        self._store = store
        self._entries: dict[str, ServerEntry] = {}
        self._is_closed = False
        self.shared_names = SharedNames(self._entries, self.remove, wall, on_front_change, on_use)
        self.catalogues = Catalogues(
            self._entries,
            store,
            static_tools=static_tools,
            budget=catalogue_budget,
            drift_level=drift_level,
            clock=clock,
        )
        shared = frozenset(instances)
        for name, record in store.load().items():
            if name != server_of(name) and server_of(name) not in shared:
                continue  # the configuration changed: this server has one browser at a time now
            # The row of an upstream stays in the store until the configuration has the upstream, if it still does.
            # defence: servers that were removed from the configuration
            if record.source is None:
                self._entries[name] = _restored(name, record)
                self.catalogues.load(self._entries[name])
        for name in declared:
            self.declare(name)
        for name in shared:
            self.declare(name).instances = SharedName()

    # -- names --------------------------------------------------------------------------------------------------------

    def declare(self, name: str) -> ServerEntry:
        """Make a name known: from the command line, a pairing, or a browser that connects."""
        return self._entries.get(check_server_name(name)) or self._add(name)

    def undeclare(self, name: str) -> None:
        """The configuration no longer has this server. With a page that is connected, it stays as long as that."""
        self._capacity.undeclare(name)
        if name in self._entries and not self._is_held(name):
            self._remove_whole(name)

    def forget(self, name: str) -> str | None:
        """Remove a name at the user's request, with the browsers that share it. Returns the reason if it stays."""
        if name not in self._entries and not self._store.has(name):
            raise UnknownServer(f'No server is called "{name}".')
        if self._is_held(name):
            entry = self._entries[name]
            if entry.connector is not None:
                return f'"{name}" is a server of the configuration. Remove it there.'
            tabs = sum(len(one.tabs) for one in (entry, *self.shared_names.members(name)))
            shown = f"{tabs} tab{'' if tabs == 1 else 's'}" if tabs else "a page"
            return f'"{name}" is online: {shown} of a browser offers it. Close the page first.'
        self._remove_whole(name)
        return None

    def declare_configured(self, name: str) -> None:
        """The configuration has this server of pages now."""
        self.declare(name)
        self._capacity.declare(name)

    def is_declared(self, name: str) -> bool:
        """Does the command line or the configuration name it?"""
        return self._capacity.is_declared(name)

    def _is_held(self, name: str) -> bool:
        """Does a peer have the name, or a part of it?"""
        return any(one.peer is not None for one in (self.find(name), *self.shared_names.members(name)))

    def _remove_whole(self, name: str) -> None:
        for one in self.shared_names.members(name):
            self.remove(one.name)
        self.remove(name)
        self._store.remove(name)

    def _add(self, name: str, *, is_remote: bool = False, record: StoredServer | None = None) -> ServerEntry:
        for idle in self._capacity.to_evict(self._entries, 0 if is_remote else 1):
            del self._entries[idle]
        entry = self._entries[check_address(name)] = _restored(name, record or StoredServer())
        self.catalogues.load(entry)
        self._save(entry)
        return entry

    def remove(self, name: str) -> None:
        """No server has the name any more."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._capacity.set_remote(name, is_remote=False)
            self._store.remove(name)
            entry.up.set()  # calls that wait for a peer find that there is no such server any more
            self._on_names()

    def _save(self, entry: ServerEntry) -> None:
        self._store.put(entry.name, entry.stored())
        self._on_names()

    def has_room_for(self, name: str) -> bool:
        """Can this name be held?"""
        return self._capacity.has_room_for(name, self._entries)

    def holding(self, name: str) -> list[ServerEntry]:
        """The entries that have or had a browser for the name: its own, and those of the browsers that share it."""
        entry = self._entries.get(name)
        return (
            [] if entry is None else [entry, *(self.shared_names.members(name) if entry.instances is not None else ())]
        )

    def empty_for_s(self, entry: ServerEntry) -> float | None:
        """For how long its browser has had no tab and no call that waits; None while it has one."""
        return None if entry.empty_since is None else self._clock() - entry.empty_since

    def __len__(self) -> int:
        """How many names are known."""
        return len(self._entries)

    def knows(self, name: str) -> bool:
        return name in self._entries

    def find(self, name: str) -> ServerEntry:
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownServer(
                f'No server is called "{name}". Open a page that offers it, or declare it: {self._command} serve {name}'
                if name.isascii() and name.isprintable()
                else "No server has that name."
            )
        return entry

    def entries(self) -> list[ServerEntry]:
        """Every name, in order."""
        return [self._entries[name] for name in sorted(self._entries)]

    # -- catalogues ---------------------------------------------------------------------------------------------------

    def cached_catalogue(self, name: str) -> Catalogue | None:
        """The answer for clients while the server is offline."""
        return self.catalogues.cached(self.find(name))

    def accept_tools(self, name: str) -> None:
        """The user accepts the present tools of a server, and of each browser that shares its name."""
        for entry in (self.find(name), *self.shared_names.members(name)):
            self.catalogues.accept(entry)

    def changed_tools(self, name: str) -> dict[str, list[Mapping[str, Any]]]:
        """The tools that differ from those at first use: `before`, as far as that is known, and `after`."""
        entry = next((one for one in (self.find(name), *self.shared_names.members(name)) if one.drift), None)
        if entry is None or entry.catalogue is None:
            return {"before": [], "after": []}
        wanted = {*entry.drift.changed, *entry.drift.added}
        now = (tool for tool in entry.catalogue.without_statics().tools if tool.get("name") in wanted)
        return {"before": list(entry.originals.values()), "after": as_many_as_shown(now)}

    def differences(self, gone: str) -> frozenset[str]:
        """The lists that differ between a browser that is gone and the one that is in front now."""
        entry = self._entries.get(gone)
        now = self.find(self.shared_names.destination(server_of(gone))).catalogue
        return now.changes(entry.catalogue) if entry is not None and now is not None else frozenset()

    # -- leases -------------------------------------------------------------------------------------------------------

    def holder(self, name: str, session: str | None = None) -> Peer | None:
        """The peer that has the name, if there is one; never raises. `session`: a channel, which may be bound to one
        of several browsers."""
        entry = self._entries.get(self.shared_names.destination(name, TabRequest(session)))
        return entry.peer if entry is not None else None

    def hold_upstream(self, name: str, peer: Peer, connector: Connector, source: str) -> None:
        """An upstream has the name, connected or not. Its catalogue is kept if it is of the same upstream."""
        entry = self._entries.get(check_server_name(name)) or self._add(name, record=self._store.get(name))
        is_old = self._wall() - (entry.last_seen or 0.0) > CATALOGUE_LIFE_S
        if entry.source != source or is_old:
            entry.catalogue = None
        if entry.source != source:  # the user has changed the configuration
            entry.baseline, entry.is_used, entry.drift = None, False, Drift()
        entry.peer, entry.connector, entry.source = peer, connector, source
        entry.is_fresh = False
        entry.up.clear()
        self._save(entry)

    def take(self, name: str, peer: Peer) -> Peer | None:
        """Give the name to `peer`; returns the peer that it displaced, if another had it."""
        is_remote = peer.kind is PeerKind.NODE
        entry = self._entries.get(name) or self._add(name, is_remote=is_remote)
        self._capacity.set_remote(name, is_remote=is_remote)
        displaced, entry.peer = entry.peer, peer
        entry.since = entry.last_seen = self._wall()
        if displaced is not peer:
            entry.is_fresh = False
            entry.flaws.clear()
            entry.focus_count = 0
            entry.forget_tabs()
        entry.up.set()
        self._save(entry)
        self.shared_names.joined(entry, is_new=displaced is not peer)
        self._on_presence(name, peer, "up")
        return displaced if displaced is not peer else None

    def mark_away(self, name: str, peer: Peer) -> None:
        """The peer's socket dropped: calls wait, the lease stays."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.up.clear()
            entry.last_seen = self._wall()
            self.shared_names.update_presence(entry)
            self._on_presence(name, peer, "away")

    def release(self, name: str, peer: Peer) -> None:
        """The peer will not come back. Only the peer that has the name can release it."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.peer = entry.connector = None
            self._capacity.set_remote(name, is_remote=False)
            entry.since = None
            entry.tabs = ()
            entry.forget_tabs()
            entry.up.clear()
            entry.last_seen = self._wall()
            self._save(entry)
            self.shared_names.left(entry)
            self._on_presence(name, peer, "gone")

    def set_browser(self, name: str, browser: str) -> None:
        self._entries[name].browser = browser

    def set_tabs(self, name: str, report: TabReport) -> None:
        """A browser reports its tabs."""
        entry = self._entries[name]
        self.shared_names.set_tabs(entry, report.tabs, report.focus_count)
        entry.tasks = report.tasks
        if report.is_awake is not False:
            entry.idle_since = None
        elif entry.idle_since is None:
            entry.idle_since = self._wall()
        entry.is_awake = report.is_awake
        if report.tabs or report.is_in_use or report.is_awake is None:
            entry.empty_since = None
        elif entry.empty_since is None:
            entry.empty_since = self._clock()
        if entry.peer is not None:
            self._on_presence(name, entry.peer, "tabs")

    def title_of_tab(self, address: str, id: str) -> str | None:
        """None: there is no such tab now."""
        entry = self._entries.get(address)
        return next((tab.title for tab in entry.tabs if tab.id == id), None) if entry is not None else None

    # -- peers for calls ----------------------------------------------------------------------------------------------

    def acquire(self, named: ServerEntry, call: Call | None = None) -> tuple[ServerEntry, Peer | None]:
        """The entry that a call to `named` goes to, and the peer that can start it at this moment; None: it has to
        wait."""
        entry = named
        if named.instances is not None:
            entry = self.find(self.shared_names.destination(named.name, ANY if call is None else TabRequest.of(call)))
        if self._is_closed:
            raise unavailable()
        peer = entry.peer
        if peer is None or not peer.is_up:
            return entry, None
        if call is not None and (named.instances is not None or entry.name != entry.server):
            self.shared_names.record_call(named, entry, call)
        return entry, peer

    async def wait_for_peer(self, name: str, wait_s: float, call: Call | None = None) -> tuple[ServerEntry, Peer]:
        """`acquire` once the peer is there. Raises ServerOffline if it is not, after `wait_s`."""
        entry, peer = self.acquire(self.find(name), call)
        try:
            async with asyncio.timeout(wait_s):
                for _ in range(2):  # the peer may be gone again at once
                    if peer is None:
                        await (entry.up.wait() if entry.connector is None else entry.connector.wait_for_start())
                        entry, peer = self.acquire(self.find(name), call)
        except TimeoutError:
            peer = None
        if peer is None:
            raise ServerOffline(self._offline_text(entry), retry_after_ms=3000)
        return entry, peer

    def _offline_text(self, entry: ServerEntry) -> str:
        if entry.connector is not None:
            return entry.connector.offline_text()
        if entry.last_seen is None:
            return f'Server "{entry.name}" is not connected. Open its page (it was never seen here).'
        ago = max(0, round(self._wall() - entry.last_seen))
        return f'Server "{entry.name}" is not connected. Open its page (last seen {_duration_text(ago)} ago).'

    def close(self) -> None:
        """The relay stops: no peer can be acquired any more, and every wait ends."""
        self._is_closed = True
        for entry in self._entries.values():
            entry.up.set()
            if entry.connector is not None:
                entry.connector.dismiss(unavailable())


def _restored(name: str, record: StoredServer) -> ServerEntry:
    return ServerEntry(
        name,
        catalogue=record.catalogue,
        last_seen=record.last_seen,
        source=record.source,
        size=record.catalogue.size if record.catalogue else 0,
        is_used=record.baseline is not None,
        baseline=record.baseline,
    )


def _duration_text(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
