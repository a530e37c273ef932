"""Names and who holds them: leases, presence, the last known catalogue. Knows no transport and starts no call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from tabrelay.calls import Peer
from tabrelay.drain import unavailable
from tabrelay.drift import Baseline, Drift
from tabrelay.errors import RelayError, ServerOffline, UnknownServer
from tabrelay.inspection import Flaw, is_title
from tabrelay.policy import shown
from tabrelay.shelf import Catalogue, Record, Shelf
from tabserver.wire.names import check_server_name
from tabserver.wire.statics import STATIC_TOOLS

# Servers elsewhere that were not there for so long are other servers by now, most likely.
CATALOGUE_LIFE_S: Final = 30 * 86_400.0


class Keeper(Protocol):
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


log = logging.getLogger(__name__)

MAX_CATALOGUES: Final = 16 * 1024 * 1024  # bytes of JSON, all servers together
MAX_FLAWS: Final = 32  # of one server; more of them say nothing new


@dataclass(slots=True)
class Entry:
    """One name. It outlives the peers that hold it: with no peer the server is offline, never unknown."""

    name: str
    catalogue: Catalogue | None = None
    last_seen: float | None = None
    peer: Peer | None = None
    keeper: Keeper | None = None
    # What a server elsewhere was made of when its catalogue was read.
    source: str | None = None
    since: float | None = None
    calls: int = 0
    listings: int = 0
    # Was the catalogue read from the browser that holds the name now?
    is_fresh: bool = False
    up: asyncio.Event = field(default_factory=asyncio.Event)
    # What it offered and nobody was told of: by the list it stood in, name -> why.
    flaws: dict[str, dict[str, str]] = field(default_factory=dict)
    size: int = 0  # of the catalogue, as JSON
    # Did a client list or call anything? From then on its tools are compared with those that it had.
    is_used: bool = False
    baseline: Baseline | None = None
    drift: Drift = field(default_factory=Drift)
    # Not set: a browser came a moment ago, and what it offers is still being found out.
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.settled.set()


class Registry:
    """name -> Entry. A name is known once it was declared, paired or seen; the shelf remembers it over restarts."""

    def __init__(
        self,
        shelf: Shelf,
        *,
        declared: Iterable[str] = (),
        static_tools: Iterable[str] = (),
        most: int = 512,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`static_tools`: the names that have those, from before their first browser. `most`: how many names are
        remembered."""
        self._wall = wall
        self._static_tools = frozenset(static_tools)
        self._most = most
        self._declared = frozenset(declared)
        self._shelf = shelf
        self._entries: dict[str, Entry] = {}
        self._is_closed = False
        for name, record in shelf.load().items():
            self._entries[name] = Entry(
                name,
                catalogue=record.catalogue,
                last_seen=record.last_seen,
                source=record.source,
                size=record.catalogue.size if record.catalogue else 0,
                is_used=record.baseline is not None,
                baseline=record.baseline,
            )
            self._compare(self._entries[name])
        for name in self._declared:
            self.declare(name)

    def declare(self, name: str) -> Entry:
        """Make a name known: from the command line, a pairing, or a browser that dials in."""
        entry = self._entries.get(check_server_name(name))
        if entry is None:
            self._make_room()
            entry = self._entries[name] = Entry(name)
            self._remember(entry)
        return entry

    def hold(self, name: str, peer: Peer, keeper: Keeper, source: str) -> None:
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
            self._shelf.forget(name)

    def _remember(self, entry: Entry) -> None:
        self._shelf.remember(entry.name, Record(entry.catalogue, entry.last_seen, entry.source, entry.baseline))

    def has_room_for(self, name: str) -> bool:
        """Can this name be held?"""
        return name in self._entries or len(self._entries) < self._most or bool(self._forgettable())

    def _forgettable(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.peer is None and entry.name not in self._declared]

    def _make_room(self) -> None:
        """Whoever makes up new names for ever must not fill the memory: past the limit, the longest unseen go."""
        if len(self._entries) >= self._most and (idle := self._forgettable()):
            del self._entries[min(idle, key=lambda entry: entry.last_seen or 0.0).name]

    def flag(self, name: str, method: str, flaws: Iterable[Flaw], *, is_whole: bool) -> None:
        """What was left out of a list: told once in the log, and in the status until it is offered no longer.

        `is_whole`: the list has no other pages, so what was left out of it before no longer counts.
        """
        entry = self._entries.get(name)
        before = entry.flaws.get(method, {}) if entry is not None else {}
        if entry is None or not (before or flaws):
            return
        now = {} if is_whole else dict(before)
        for flaw in flaws:
            if len(now) >= MAX_FLAWS:
                break
            now[flaw.name] = flaw.why
            if before.get(flaw.name) != flaw.why:
                log.warning('%s: "%s" was left out: it %s', name, flaw.name, flaw.why)
        entry.flaws[method] = now

    def used(self, entry: Entry) -> None:
        """A client uses the server for the first time: what it offers now is what is expected of it."""
        entry.is_used = True
        if entry.is_fresh:
            self._compare(entry)
            self._remember(entry)

    def accept(self, name: str) -> None:
        """Somebody finds its tools fine as they are now."""
        entry = self.find(name)
        if entry.baseline is not None and entry.catalogue is not None:
            entry.baseline = entry.baseline.accepting(entry.catalogue.without_statics().tools)
            self._compare(entry)
            self._remember(entry)

    def _compare(self, entry: Entry) -> None:
        if not entry.is_used or entry.catalogue is None:
            return
        tools = entry.catalogue.without_statics().tools
        if entry.baseline is None:
            entry.baseline = Baseline.of(tools)
        before, entry.drift = entry.drift, entry.baseline.drift(tools)
        if entry.drift and entry.drift != before:
            # Tools come and go with tabs; one that is another under its old name is what an attack looks like.
            level = logging.WARNING if set(entry.drift.changed) - set(before.changed) else logging.INFO
            log.log(
                level, "%s: its tools are not those that were first used: %s", entry.name, shown(str(entry.drift), 1000)
            )

    def find(self, name: str) -> Entry:
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
        if name not in self._static_tools:
            return catalogue.without_statics() if catalogue else None
        catalogue = catalogue or Catalogue({"capabilities": {"tools": {"listChanged": True}}})
        return replace(catalogue, tools=(*STATIC_TOOLS, *catalogue.without_statics().tools))

    def holder(self, name: str) -> Peer | None:
        """Who holds the name, if anyone does; never raises."""
        entry = self._entries.get(name)
        return entry.peer if entry is not None else None

    def take(self, name: str, peer: Peer) -> Peer | None:
        """`peer` holds the name from now on; gives back whom it displaced, if anyone else."""
        entry = self.declare(name)
        displaced, entry.peer = entry.peer, peer
        entry.since = entry.last_seen = self._wall()
        if displaced is not peer:
            entry.is_fresh = False
            entry.flaws.clear()
        entry.up.set()
        self._remember(entry)
        return displaced if displaced is not peer else None

    def away(self, name: str, peer: Peer) -> None:
        """The peer's socket dropped: calls wait, the lease stays."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.up.clear()
            entry.last_seen = self._wall()

    def release(self, name: str, peer: Peer) -> None:
        """The peer is gone for good. Only the one who holds the name can give it up."""
        entry = self._entries[name]
        if entry.peer is peer:
            entry.peer = entry.keeper = None
            entry.since = None
            entry.up.clear()
            entry.last_seen = self._wall()
            self._remember(entry)

    def keep_catalogue(self, name: str, catalogue: Catalogue) -> None:
        entry = self._entries[name]
        entry.catalogue, entry.size = catalogue, catalogue.size
        self._forget_catalogues(entry)
        entry.is_fresh = True
        self._compare(entry)
        self._remember(entry)

    def _forget_catalogues(self, new: Entry) -> None:
        """All of them together have a limit: past it, those of the servers that are longest away are forgotten."""
        known = [entry for entry in self._entries.values() if entry.catalogue is not None and entry is not new]
        known.sort(key=lambda entry: (entry.peer is not None, entry.last_seen or 0.0))
        total = new.size + sum(entry.size for entry in known)
        for entry in known:
            if total <= MAX_CATALOGUES:
                break
            total -= entry.size
            entry.catalogue, entry.size = None, 0
            self._remember(entry)

    def close(self) -> None:
        """The relay stops: nobody can be reached any more, and nobody waits any longer."""
        self._is_closed = True
        for entry in self._entries.values():
            entry.up.set()
            if entry.keeper is not None:
                entry.keeper.dismiss(unavailable())

    async def reach(self, name: str, wait_s: float) -> Peer:
        """The peer that can take a call now; waits up to `wait_s` for one that is away."""
        entry = self.find(name)
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
        assert entry.peer is not None
        return entry.peer

    def _absence(self, entry: Entry) -> str:
        if entry.keeper is not None:
            return entry.keeper.absence()
        if entry.last_seen is None:
            return f'Server "{entry.name}" is not connected. Open its page (it was never seen here).'
        ago = max(0, round(self._wall() - entry.last_seen))
        return f'Server "{entry.name}" is not connected. Open its page (last seen {_span(ago)} ago).'

    def describe(self, base_url: str, may_see: Callable[[str], bool]) -> list[dict[str, Any]]:
        """The servers as the status route shows them."""
        now = self._wall()
        rows = []
        for entry in sorted(self._entries.values(), key=lambda entry: entry.name):
            if not may_see(entry.name):
                continue
            online = entry.peer is not None and entry.peer.is_up
            info = entry.catalogue.initialize.get("serverInfo", {}) if entry.catalogue else {}
            rows.append(
                {
                    "name": entry.name,
                    "state": "online" if online else "offline",
                    "since_s": round(now - entry.since, 1) if online and entry.since is not None else None,
                    "last_seen_s": round(now - entry.last_seen, 1) if not online and entry.last_seen else None,
                    "mcp_url": f"{base_url}/{entry.name}",
                    # The lists may be out of date: they are what the last browser said.
                    "stale": entry.catalogue is not None and not (online and entry.is_fresh),
                    "title": next(
                        (text for key in ("title", "name") if is_title(text := info.get(key)) and text), None
                    ),
                    "tools": [
                        {key: tool[key] for key in ("name", "title", "description") if key in tool}
                        for tool in (entry.catalogue.tools if entry.catalogue else ())
                    ],
                    "left_out": [
                        {"name": name, "why": why} for flaws in entry.flaws.values() for name, why in flaws.items()
                    ],
                    # What is not as it was at the first use, until somebody accepts it.
                    "drift": entry.drift.describe(),
                    "in_flight": entry.peer.in_flight if entry.peer is not None else 0,
                    "calls": entry.calls,
                    **(entry.keeper.describe() if entry.keeper is not None else {"kind": "browser"}),
                }
            )
        return rows


def _span(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
