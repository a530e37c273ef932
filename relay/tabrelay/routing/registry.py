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
LINES_AT_ONCE: Final = 5
LINES_PER_S: Final = 1 / 60
MAX_ABSENT: Final = 16  # browsers of one server that are away; those that were away longest are forgotten


class Registry:
    """name -> Entry. A name is known once it was declared, paired or seen; the shelf remembers it over restarts."""

    def __init__(
        self,
        shelf: CatalogueStore,
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
        self.on_turn: Callable[[str], None] = lambda server: None
        # A peer came ("up"), is "away" for a moment, is "gone", or has other "tabs".
        self.on_presence: Callable[[str, Peer, str], None] = lambda name, peer, state: None
        self.on_use: Callable[[str], None] = lambda name: None
        self._wall, self._clock = wall, clock
        self._static_tools = frozenset(static_tools)
        self._catalogue_budget = catalogue_budget
        self._room = NameCapacity(most, declared := frozenset(declared))
        self._shelf = shelf
        self._entries: dict[str, ServerEntry] = {}
        self._is_closed = False
        self._lines = RateLimiter(LINES_PER_S, LINES_AT_ONCE)
        self._weight = 0  # of all catalogues, or more: whoever is forgotten is still in it until they are counted
        shared = frozenset(instances)
        for name, record in shelf.load().items():
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
            self._weight += self._entries[name].size
            self._compare(self._entries[name])
        for name in declared:
            self.declare(name)
        for name in shared:
            self.declare(name).instances = SharedName()

    def declare(self, name: str) -> ServerEntry:
        """Make a name known: from the command line, a pairing, or a browser that dials in."""
        return self._entries.get(check_server_name(name)) or self._add(name)

    def _add(self, name: str, *, is_remote: bool = False) -> ServerEntry:
        for idle in self._room.surplus(self._entries, 0 if is_remote else 1):
            del self._entries[idle]
        entry = self._entries[check_address(name)] = ServerEntry(name)
        self._remember(entry)
        return entry

    def hold(self, name: str, peer: Peer, keeper: Connector, source: str) -> None:
        """A server elsewhere has the name, whether it is there yet or not. What is known of it is kept, if it is about
        the same one."""
        entry = self.declare(name)
        is_old = self._wall() - (entry.last_seen or 0.0) > CATALOGUE_LIFE_S
        if entry.source != source or is_old:
            entry.catalogue = None
        if entry.source != source:  # whoever wrote the configuration changed it
            entry.baseline, entry.is_used, entry.drift = None, False, Drift()
        entry.peer, entry.keeper, entry.source = peer, keeper, source
        entry.is_fresh = False
        entry.up.clear()
        self._remember(entry)

    def forget(self, name: str) -> None:
        """The name is no server's any more."""
        if self._entries.pop(name, None) is not None:
            self._room.note(name, is_remote=False)
            self._shelf.forget(name)

    def _remember(self, entry: ServerEntry) -> None:
        self._shelf.remember(entry.name, StoredServer(entry.catalogue, entry.last_seen, entry.source, entry.baseline))

    def has_room_for(self, name: str) -> bool:
        """Can this name be held?"""
        return self._room.is_for(name, self._entries)

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
        return not self._lines.take(what, self._clock())

    def used(self, entry: ServerEntry) -> None:
        """A client uses the server for the first time: what it offers now is what is expected of it."""
        entry.is_used = True
        # A name that browsers share offers what the one in front does: each of them is compared with itself.
        if entry.is_fresh and entry.instances is None:
            self._compare(entry)
            self._remember(entry)

    def accept(self, name: str) -> None:
        """Somebody finds its tools fine as they are now."""
        for entry in (self.find(name), *self.members(name)):
            if entry.baseline is not None and entry.catalogue is not None:
                entry.baseline = entry.baseline.accepting(entry.catalogue.without_statics().tools)
                self._compare(entry)
                self._remember(entry)

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

    def recall(self, name: str) -> Catalogue | None:
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
        entry = self._entries.get(self.place(name, TabRequest(session)))
        return entry.peer if entry is not None else None

    def take(self, name: str, peer: Peer) -> Peer | None:
        """`peer` holds the name from now on; gives back whom it displaced, if anyone else."""
        is_remote = peer.kind is PeerKind.NODE
        entry = self._entries.get(name) or self._add(name, is_remote=is_remote)
        self._room.note(name, is_remote=is_remote)
        displaced, entry.peer = entry.peer, peer
        entry.since = entry.last_seen = self._wall()
        if displaced is not peer:
            entry.is_fresh = False
            entry.flaws.clear()
            entry.turns = 0
        entry.up.set()
        self._remember(entry)
        if (whole := self._whole(entry)) is not None:
            whole.since = whole.since if whole.up.is_set() else entry.since
            whole.up.set()
            if displaced is not peer:
                self._use(entry)
        self.on_presence(name, peer, "up")
        return displaced if displaced is not peer else None

    def away(self, name: str, peer: Peer) -> None:
        """The peer's socket dropped: calls wait, the lease stays."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.up.clear()
            entry.last_seen = self._wall()
            self._miss(entry)
            self.on_presence(name, peer, "away")

    def release(self, name: str, peer: Peer) -> None:
        """The peer is gone for good. Only the one who holds the name can give it up."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.peer = entry.keeper = None
            self._room.note(name, is_remote=False)
            entry.since = None
            entry.tabs = ()
            entry.up.clear()
            entry.last_seen = self._wall()
            self._remember(entry)
            whole = self._whole(entry)
            if whole is not None and whole.instances is not None:
                whole.instances.leave(name)
                self._forget_absent(whole)
            self._miss(entry)
            self.on_presence(name, peer, "gone")

    # -- several browsers under one name ------------------------------------------------------------------------------

    def place(self, name: str, wish: TabRequest = ANY) -> str:
        """Where a request for this name goes: to the name itself, or to one of the browsers that share it."""
        entry = self._entries.get(name)
        if entry is None or entry.instances is None:
            return name
        return entry.instances.choose(wish, self._up(entry)) or name

    def places(self, name: str, session: str) -> list[str]:
        """Everywhere that a session's requests went."""
        entry = self._entries.get(name)
        seats = entry.instances.seats(session) if entry is not None and entry.instances is not None else []
        return seats or [self.place(name)]

    def seat(self, name: str, session: str) -> str:
        """The browser that a session stays with; the name itself if it has none of its own."""
        entry = self._entries.get(name)
        seat = entry.instances.seat(session) if entry is not None and entry.instances is not None else None
        return seat or name

    def rise(self, name: str, session: str) -> None:
        """The session has ended."""
        entry = self._entries.get(name)
        if entry is not None and entry.instances is not None:
            entry.instances.rise(session)

    def members(self, name: str) -> list[ServerEntry]:
        """The browsers that share a name, also those that are away: the one used last comes first."""
        found = [entry for entry in self._entries.values() if entry.name != name and server_of(entry.name) == name]
        return sorted(found, key=lambda entry: (entry.up.is_set(), entry.last_used or 0.0), reverse=True)

    def differences(self, gone: str) -> frozenset[str]:
        """Lists of a browser that went which are others in the one that is in front now."""
        entry = self._entries.get(gone)
        now = self.find(self.place(server_of(gone))).catalogue
        return now.changes(entry.catalogue) if entry is not None and now is not None else frozenset()

    def introduce(self, name: str, browser: str) -> None:
        self._entries[name].browser = browser

    def know_tabs(self, name: str, tabs: tuple[TabInfo, ...], turns: int) -> None:
        """A browser says which tabs it has, and how often its user has turned to one of them."""
        entry = self._entries[name]
        entry.tabs = tabs
        whole = self._whole(entry)
        if whole is not None and whole.instances is not None:
            whole.instances.know_tabs(name, (tab.id for tab in tabs))
        is_used, entry.turns = turns > entry.turns, turns
        if is_used:
            self._use(entry)
        if entry.peer is not None:
            self.on_presence(name, entry.peer, "tabs")

    def used_at(self, name: str, at: float | None = None) -> None:
        """Somebody used this browser, at another relay."""
        entry = self._entries.get(name)
        if entry is not None and (at is None or at > (entry.last_used or 0.0)):
            self._use(entry, at)

    def _use(self, entry: ServerEntry, at: float | None = None) -> None:
        entry.last_used = self._wall() if at is None else at
        self.on_use(entry.name)
        whole = self._whole(entry)
        if whole is None or whole.instances is None:
            return
        before = self.place(whole.name)
        whole.instances.use(entry.name)
        if before != self.place(whole.name):
            self.on_turn(whole.name)

    def _miss(self, entry: ServerEntry) -> None:
        """A browser went: the name that it shared is as reachable as the others make it."""
        whole = self._whole(entry)
        if whole is None:
            return
        if not self._up(whole):
            whole.up.clear()
            whole.since, whole.last_seen = None, entry.last_seen
        self.on_turn(whole.name)

    def _whole(self, entry: ServerEntry) -> ServerEntry | None:
        """The name that this browser shares with others."""
        server = server_of(entry.name)
        return self._entries.get(server) if server != entry.name else None

    def _up(self, whole: ServerEntry) -> list[str]:
        members = (self._entries[name] for name in whole.instances or ())
        return [entry.name for entry in members if entry.peer is not None and entry.peer.is_up]

    def _forget_absent(self, whole: ServerEntry) -> None:
        """Every private window is a browser of its own, and most never come back."""
        absent = [entry for entry in self.members(whole.name) if entry.peer is None]
        for entry in sorted(absent, key=lambda entry: entry.last_seen or 0.0, reverse=True)[MAX_ABSENT:]:
            self.forget(entry.name)

    # -- catalogues ---------------------------------------------------------------------------------------------------

    def keep_catalogue(self, name: str, catalogue: Catalogue) -> None:
        entry = self._entries[name]
        self._weigh(entry, catalogue)
        entry.is_fresh = True
        self._compare(entry)
        self._remember(entry)

    def learn(self, name: str, catalogue: Catalogue, last_seen: float | None) -> None:
        """Another relay remembers what this one has never seen."""
        entry = self._entries[name]
        if entry.catalogue is None:
            entry.last_seen = last_seen
            self._weigh(entry, catalogue)
            self._remember(entry)

    def _weigh(self, entry: ServerEntry, catalogue: Catalogue) -> None:
        before, entry.catalogue, entry.size = entry.size, catalogue, catalogue.size
        self._weight += entry.size - before
        # defence: catalogues: the budget of all catalogues
        if self._weight > self._catalogue_budget:
            self._forget_catalogues(entry)

    def _forget_catalogues(self, new: ServerEntry) -> None:
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
            self._remember(entry)
        self._weight = total

    def close(self) -> None:
        """The relay stops: nobody can be reached any more, and nobody waits any longer."""
        self._is_closed = True
        for entry in self._entries.values():
            entry.up.set()
            if entry.keeper is not None:
                entry.keeper.dismiss(unavailable())

    def at_hand(self, name: str, call: Call) -> tuple[ServerEntry, Peer] | None:
        """The peer that can take a call at this moment, and what has it; None if somebody would have to wait."""
        whole = self.find(name)
        entry = whole if whole.instances is None else self.find(self.place(name, TabRequest.of(call)))
        peer = entry.peer
        if self._is_closed or peer is None or not peer.is_up:
            return None
        if whole.instances is not None or entry.name != entry.server:
            self._taken(whole, entry, call)
        return entry, peer

    async def reach(self, name: str, wait_s: float, call: Call | None = None) -> tuple[str, Peer]:
        """The peer that can take a call now, and its own name; waits up to `wait_s` for one that is away."""
        entry = whole = self.find(name)
        if whole.instances is not None:
            entry = self.find(self.place(name, TabRequest.of(call) if call is not None else ANY))
        if self._is_closed:
            raise unavailable()
        if entry.peer is None or not entry.peer.is_up:
            try:
                async with asyncio.timeout(wait_s):
                    await (entry.up.wait() if entry.keeper is None else entry.keeper.reach())
            except TimeoutError:
                raise ServerOffline(self._absence(entry), retry_after_ms=3000) from None
            if self._is_closed:
                raise unavailable()
        if entry.instances is not None:
            entry = self.find(self.place(name))
        assert entry.peer is not None
        if call is not None:
            self._taken(whole, entry, call)
        return entry.name, entry.peer

    def _taken(self, whole: ServerEntry, entry: ServerEntry, call: Call) -> None:
        if whole.instances is not None and call.caller.era is Era.LEGACY:
            whole.instances.sit(call.channel, entry.name)
        if entry.name != entry.server and counts_as_use(call):
            self._use(entry)

    def _absence(self, entry: ServerEntry) -> str:
        if entry.keeper is not None:
            return entry.keeper.absence()
        if entry.last_seen is None:
            return f'Server "{entry.name}" is not connected. Open its page (it was never seen here).'
        ago = max(0, round(self._wall() - entry.last_seen))
        return f'Server "{entry.name}" is not connected. Open its page (last seen {_span(ago)} ago).'

    def entries(self) -> list[ServerEntry]:
        """Every name, in order."""
        return [self._entries[name] for name in sorted(self._entries)]


def _span(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
