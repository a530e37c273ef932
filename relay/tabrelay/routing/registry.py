"""Names and who holds them: leases, presence, the last known catalogue. Knows no transport and starts no call.

A name that several browsers share is held by none of them: each has an address of its own, `server~instance`, which is
a name like any other here, and `place` says which of them a request for the server goes to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.calls.calls import Call, Peer, PeerKind
from tabrelay.errors import ServerOffline, UnknownServer
from tabrelay.payloads.list_checks import Rejection, describe
from tabrelay.payloads.printable_text import printable
from tabrelay.routing.capacity import NameCapacity
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore, StoredServer
from tabrelay.routing.drain import unavailable
from tabrelay.routing.entry import Connector, ServerEntry
from tabrelay.routing.instances import ANY, SharedName, TabInfo, TabRequest, counts_as_use
from tabrelay.routing.tool_drift import Baseline, Drift
from tabserver.wire.eras import Era
from tabserver.wire.names import check_address, check_server_name, server_of
from tabserver.wire.static_tools import STATIC_TOOLS

# Servers elsewhere that were not there for so long are other servers by now, most likely.
CATALOGUE_LIFE_S: Final = 30 * 86_400.0


log = logging.getLogger(__name__)

MAX_FLAWS: Final = 32  # of one server; more of them say nothing new
# A server whose lists change all the time must not fill the log: so many lines at once, then one a minute. The status
# always says how it is now.
LOG_BURST: Final = 5
LOG_LINES_PER_S: Final = 1 / 60
MAX_ABSENT: Final = 16  # browsers of one server that are away; those that were away longest are forgotten


class Registry:
    """name -> Entry. A name is known once it was declared, paired or seen; the shelf remembers it over restarts."""

    def __init__(
        self,
        store: CatalogueStore,
        *,
        declared: Iterable[str] = (),
        static_tools: Iterable[str] = (),
        instances: Iterable[str] = (),
        most: int = 512,
        catalogue_budget: int = 32 * 1024 * 1024,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`static_tools`: the names that have those, from before their first browser. `instances`: the names that
        several browsers share. `most`: how many names are remembered. `catalogue_budget`: bytes of memory for
        the catalogues of all servers."""
        # Of the browsers that share this name, another is in front.
        self.on_front_change: Callable[[str], None] = lambda server: None
        # A peer came ("up"), is "away" for a moment, is "gone", or has other "tabs".
        self.on_presence: Callable[[str, Peer, str], None] = lambda name, peer, state: None
        self.on_use: Callable[[str], None] = lambda name: None
        self._wall, self._clock = wall, clock
        self._static_tools = frozenset(static_tools)
        self._catalogue_budget = catalogue_budget
        self._capacity = NameCapacity(most, declared := frozenset(declared))
        self._store = store
        self._entries: dict[str, ServerEntry] = {}
        self._is_closed = False
        self._log_limiter = RateLimiter(LOG_LINES_PER_S, LOG_BURST)
        self._catalogue_bytes = (
            0  # of all catalogues, or more: whoever is forgotten is still in it until they are counted
        )
        shared = frozenset(instances)
        for name, record in store.load().items():
            if name != server_of(name) and server_of(name) not in shared:
                continue  # it has one browser at a time now
            self._entries[name] = ServerEntry(
                name,
                catalogue=record.catalogue,
                last_seen=record.last_seen,
                source=record.source,
                size=record.catalogue.size if record.catalogue else 0,
                is_used=record.baseline is not None,
                baseline=record.baseline,
            )
            self._catalogue_bytes += self._entries[name].size
            self._compare(self._entries[name])
        for name in declared:
            self.declare(name)
        for name in shared:
            self.declare(name).instances = SharedName()

    def declare(self, name: str) -> ServerEntry:
        """Make a name known: from the command line, a pairing, or a browser that dials in."""
        return self._entries.get(check_server_name(name)) or self._add(name)

    def _add(self, name: str, *, is_remote: bool = False) -> ServerEntry:
        for idle in self._capacity.to_evict(self._entries, 0 if is_remote else 1):
            del self._entries[idle]
        entry = self._entries[check_address(name)] = ServerEntry(name)
        self._save(entry)
        return entry

    def hold_upstream(self, name: str, peer: Peer, connector: Connector, source: str) -> None:
        """A server elsewhere has the name, whether it is there yet or not. What is known of it is kept, if it is about
        the same one."""
        entry = self.declare(name)
        is_old = self._wall() - (entry.last_seen or 0.0) > CATALOGUE_LIFE_S
        if entry.source != source or is_old:
            entry.catalogue = None
        if entry.source != source:  # whoever wrote the configuration changed it
            entry.baseline, entry.is_used, entry.drift = None, False, Drift()
        entry.peer, entry.connector, entry.source = peer, connector, source
        entry.is_fresh = False
        entry.up.clear()
        self._save(entry)

    def remove(self, name: str) -> None:
        """The name is no server's any more."""
        if self._entries.pop(name, None) is not None:
            self._capacity.set_remote(name, is_remote=False)
            self._store.remove(name)

    def _save(self, entry: ServerEntry) -> None:
        self._store.put(entry.name, StoredServer(entry.catalogue, entry.last_seen, entry.source, entry.baseline))

    def has_room_for(self, name: str) -> bool:
        """Can this name be held?"""
        return self._capacity.has_room_for(name, self._entries)

    def flag(self, name: str, method: str, flaws: Sequence[Rejection], *, is_whole: bool) -> None:
        """What is wrong in a list: told in the log when it is something else than before, and in the status until it
        is offered no longer.

        `is_whole`: the list has no other pages, so what was left out of it before no longer counts.
        """
        entry = self._entries.get(name)
        before = entry.flaws.get(method, {}) if entry is not None else {}
        if entry is None or not (before or flaws):
            return
        now = {} if is_whole else dict(before)
        now.update((flaw.name, flaw) for flaw in flaws[: MAX_FLAWS - len(now)])
        entry.flaws[method] = now
        news = [flaw for flaw in flaws if before.get(flaw.name) != flaw]
        # Which are new is known only of those that are kept.
        if any(flaw.name in now for flaw in news) and self._may_log(f"{name} {method}"):
            log.warning("%s: wrong in %s: %s", name, method, describe(news))

    def _may_log(self, what: str) -> bool:
        # defence: lines of the log that one server makes
        return not self._log_limiter.take(what, self._clock())

    def mark_used(self, entry: ServerEntry) -> None:
        """A client uses the server for the first time: what it offers now is what is expected of it."""
        entry.is_used = True
        # A name that browsers share offers what the one in front does: each of them is compared with itself.
        if entry.is_fresh and entry.instances is None:
            self._compare(entry)
            self._save(entry)

    def accept(self, name: str) -> None:
        """Somebody finds its tools fine as they are now."""
        for entry in (self.find(name), *self.members(name)):
            if entry.baseline is not None and entry.catalogue is not None:
                entry.baseline = entry.baseline.accepting(entry.catalogue.without_statics().tools)
                self._compare(entry)
                self._save(entry)

    def _compare(self, entry: ServerEntry) -> None:
        if not entry.is_used or entry.catalogue is None or entry.instances is not None:
            return
        tools = entry.catalogue.without_statics().tools
        if entry.baseline is None:
            entry.baseline = Baseline.of(tools)
        before, entry.drift = entry.drift, entry.baseline.drift(tools)
        if entry.drift and entry.drift != before and self._may_log(f"{entry.name} drift"):
            # Tools come and go with tabs; one that is another under its old name is what an attack looks like.
            level = logging.WARNING if set(entry.drift.changed) - set(before.changed) else logging.INFO
            log.log(
                level,
                "%s: its tools are not those that were first used: %s",
                entry.name,
                printable(str(entry.drift), 1000),
            )

    def __len__(self) -> int:
        """How many names are known."""
        return len(self._entries)

    def knows(self, name: str) -> bool:
        return name in self._entries

    def find(self, name: str) -> ServerEntry:
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownServer(
                f'No server is called "{name}". Open a page that offers it, or declare it: tabrelay serve {name}'
                if name.isascii() and name.isprintable()
                else "No server has that name."
            )
        return entry

    def cached_catalogue(self, name: str) -> Catalogue | None:
        """What can be said of a server while its browser is away: its last catalogue, with static tools if it has them.

        Also if it never had a browser: a client that reads the list once, and now, must find them in it.
        """
        catalogue = self.find(name).catalogue
        if server_of(name) not in self._static_tools:
            return catalogue.without_statics() if catalogue else None
        catalogue = catalogue or Catalogue({"capabilities": {"tools": {"listChanged": True}}})
        return replace(catalogue, tools=(*STATIC_TOOLS, *catalogue.without_statics().tools))

    def holder(self, name: str, session: str | None = None) -> Peer | None:
        """Who holds the name, if anyone does; never raises. `session`: the channel of one, which may have a browser of
        its own."""
        entry = self._entries.get(self.destination(name, TabRequest(session)))
        return entry.peer if entry is not None else None

    def take(self, name: str, peer: Peer) -> Peer | None:
        """`peer` holds the name from now on; gives back whom it displaced, if anyone else."""
        is_remote = peer.kind is PeerKind.NODE
        entry = self._entries.get(name) or self._add(name, is_remote=is_remote)
        self._capacity.set_remote(name, is_remote=is_remote)
        displaced, entry.peer = entry.peer, peer
        entry.since = entry.last_seen = self._wall()
        if displaced is not peer:
            entry.is_fresh = False
            entry.flaws.clear()
            entry.focus_count = 0
        entry.up.set()
        self._save(entry)
        if (shared := self._shared_entry(entry)) is not None:
            shared.since = shared.since if shared.up.is_set() else entry.since
            shared.up.set()
            if displaced is not peer:
                self._record_use(entry)
        self.on_presence(name, peer, "up")
        return displaced if displaced is not peer else None

    def mark_away(self, name: str, peer: Peer) -> None:
        """The peer's socket dropped: calls wait, the lease stays."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.up.clear()
            entry.last_seen = self._wall()
            self._update_shared_presence(entry)
            self.on_presence(name, peer, "away")

    def release(self, name: str, peer: Peer) -> None:
        """The peer is gone for good. Only the one who holds the name can give it up."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.peer = entry.connector = None
            self._capacity.set_remote(name, is_remote=False)
            entry.since = None
            entry.tabs = ()
            entry.up.clear()
            entry.last_seen = self._wall()
            self._save(entry)
            shared = self._shared_entry(entry)
            if shared is not None and shared.instances is not None:
                shared.instances.remove(name)
                self._evict_absent(shared)
            self._update_shared_presence(entry)
            self.on_presence(name, peer, "gone")

    # -- several browsers under one name ------------------------------------------------------------------------------

    def destination(self, name: str, request: TabRequest = ANY) -> str:
        """Where a request for this name goes: to the name itself, or to one of the browsers that share it."""
        entry = self._entries.get(name)
        if entry is None or entry.instances is None:
            return name
        return entry.instances.choose(request, self._connected(entry)) or name

    def destinations(self, name: str, session: str) -> list[str]:
        """Everywhere that a session's requests went."""
        entry = self._entries.get(name)
        bindings = entry.instances.bindings(session) if entry is not None and entry.instances is not None else []
        return bindings or [self.destination(name)]

    def bound_to(self, name: str, session: str) -> str:
        """The browser that a session stays with; the name itself if it has none of its own."""
        entry = self._entries.get(name)
        address = entry.instances.bound_to(session) if entry is not None and entry.instances is not None else None
        return address or name

    def unbind(self, name: str, session: str) -> None:
        """The session has ended."""
        entry = self._entries.get(name)
        if entry is not None and entry.instances is not None:
            entry.instances.unbind(session)

    def members(self, name: str) -> list[ServerEntry]:
        """The browsers that share a name, also those that are away: the one used last comes first."""
        found = [entry for entry in self._entries.values() if entry.name != name and server_of(entry.name) == name]
        return sorted(found, key=lambda entry: (entry.up.is_set(), entry.last_used or 0.0), reverse=True)

    def differences(self, gone: str) -> frozenset[str]:
        """Lists of a browser that went which are others in the one that is in front now."""
        entry = self._entries.get(gone)
        now = self.find(self.destination(server_of(gone))).catalogue
        return now.changes(entry.catalogue) if entry is not None and now is not None else frozenset()

    def set_browser(self, name: str, browser: str) -> None:
        self._entries[name].browser = browser

    def set_tabs(self, name: str, tabs: tuple[TabInfo, ...], focus_count: int) -> None:
        """A browser says which tabs it has, and how often its user has turned to one of them."""
        entry = self._entries[name]
        entry.tabs = tabs
        shared = self._shared_entry(entry)
        if shared is not None and shared.instances is not None:
            shared.instances.set_tabs(name, (tab.id for tab in tabs))
        is_used, entry.focus_count = focus_count > entry.focus_count, focus_count
        if is_used:
            self._record_use(entry)
        if entry.peer is not None:
            self.on_presence(name, entry.peer, "tabs")

    def record_remote_use(self, name: str, at: float | None = None) -> None:
        """Somebody used this browser, at another relay."""
        entry = self._entries.get(name)
        if entry is not None and (at is None or at > (entry.last_used or 0.0)):
            self._record_use(entry, at)

    def _record_use(self, entry: ServerEntry, at: float | None = None) -> None:
        entry.last_used = self._wall() if at is None else at
        self.on_use(entry.name)
        shared = self._shared_entry(entry)
        if shared is None or shared.instances is None:
            return
        before = self.destination(shared.name)
        shared.instances.use(entry.name)
        if before != self.destination(shared.name):
            self.on_front_change(shared.name)

    def _update_shared_presence(self, entry: ServerEntry) -> None:
        """A browser went: the name that it shared is as reachable as the others make it."""
        shared = self._shared_entry(entry)
        if shared is None:
            return
        if not self._connected(shared):
            shared.up.clear()
            shared.since, shared.last_seen = None, entry.last_seen
        self.on_front_change(shared.name)

    def _shared_entry(self, entry: ServerEntry) -> ServerEntry | None:
        """The name that this browser shares with others."""
        server = server_of(entry.name)
        return self._entries.get(server) if server != entry.name else None

    def _connected(self, shared: ServerEntry) -> list[str]:
        members = (self._entries[name] for name in shared.instances or ())
        return [entry.name for entry in members if entry.peer is not None and entry.peer.is_up]

    def _evict_absent(self, shared: ServerEntry) -> None:
        """Every private window is a browser of its own, and most never come back."""
        absent = [entry for entry in self.members(shared.name) if entry.peer is None]
        for entry in sorted(absent, key=lambda entry: entry.last_seen or 0.0, reverse=True)[MAX_ABSENT:]:
            self.remove(entry.name)

    # -- catalogues ---------------------------------------------------------------------------------------------------

    def keep_catalogue(self, name: str, catalogue: Catalogue) -> None:
        entry = self._entries[name]
        self._set_catalogue(entry, catalogue)
        entry.is_fresh = True
        self._compare(entry)
        self._save(entry)

    def add_remote_catalogue(self, name: str, catalogue: Catalogue, last_seen: float | None) -> None:
        """Another relay remembers what this one has never seen."""
        entry = self._entries[name]
        if entry.catalogue is None:
            entry.last_seen = last_seen
            self._set_catalogue(entry, catalogue)
            self._save(entry)

    def _set_catalogue(self, entry: ServerEntry, catalogue: Catalogue) -> None:
        before, entry.catalogue, entry.size = entry.size, catalogue, catalogue.size
        self._catalogue_bytes += entry.size - before
        # defence: catalogues: the budget of all catalogues
        if self._catalogue_bytes > self._catalogue_budget:
            self._evict_catalogues(entry)

    def _evict_catalogues(self, new: ServerEntry) -> None:
        """All of them together have a limit: past it, those of the servers that are longest away are forgotten."""
        known = [entry for entry in self._entries.values() if entry.catalogue is not None and entry is not new]
        known.sort(key=lambda entry: (entry.peer is not None, entry.last_seen or 0.0))
        total = new.size + sum(entry.size for entry in known)
        # defence: catalogues: a catalogue that is larger than the budget
        for entry in (*known, new):
            if total <= self._catalogue_budget:
                break
            total -= entry.size
            entry.catalogue, entry.size = None, 0
            self._save(entry)
        self._catalogue_bytes = total

    def close(self) -> None:
        """The relay stops: nobody can be reached any more, and nobody waits any longer."""
        self._is_closed = True
        for entry in self._entries.values():
            entry.up.set()
            if entry.connector is not None:
                entry.connector.dismiss(unavailable())

    def acquire_now(self, name: str, call: Call) -> tuple[ServerEntry, Peer] | None:
        """The peer that can take a call at this moment, and what has it; None if somebody would have to wait."""
        named = self.find(name)
        entry = named if named.instances is None else self.find(self.destination(name, TabRequest.of(call)))
        peer = entry.peer
        if self._is_closed or peer is None or not peer.is_up:
            return None
        if named.instances is not None or entry.name != entry.server:
            self._record_call(named, entry, call)
        return entry, peer

    async def acquire(self, name: str, wait_s: float, call: Call | None = None) -> tuple[str, Peer]:
        """The peer that can take a call now, and its own name; waits up to `wait_s` for one that is away."""
        entry = named = self.find(name)
        if named.instances is not None:
            entry = self.find(self.destination(name, TabRequest.of(call) if call is not None else ANY))
        if self._is_closed:
            raise unavailable()
        if entry.peer is None or not entry.peer.is_up:
            try:
                async with asyncio.timeout(wait_s):
                    await (entry.up.wait() if entry.connector is None else entry.connector.reach())
            except TimeoutError:
                raise ServerOffline(self._offline_text(entry), retry_after_ms=3000) from None
            if self._is_closed:
                raise unavailable()
        if entry.instances is not None:
            entry = self.find(self.destination(name))
        assert entry.peer is not None
        if call is not None:
            self._record_call(named, entry, call)
        return entry.name, entry.peer

    def _record_call(self, named: ServerEntry, entry: ServerEntry, call: Call) -> None:
        if named.instances is not None and call.caller.era is Era.LEGACY:
            named.instances.bind(call.channel, entry.name)
        if entry.name != entry.server and counts_as_use(call):
            self._record_use(entry)

    def _offline_text(self, entry: ServerEntry) -> str:
        if entry.connector is not None:
            return entry.connector.absence()
        if entry.last_seen is None:
            return f'Server "{entry.name}" is not connected. Open its page (it was never seen here).'
        ago = max(0, round(self._wall() - entry.last_seen))
        return f'Server "{entry.name}" is not connected. Open its page (last seen {_duration_text(ago)} ago).'

    def entries(self) -> list[ServerEntry]:
        """Every name, in order."""
        return [self._entries[name] for name in sorted(self._entries)]


def _duration_text(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
