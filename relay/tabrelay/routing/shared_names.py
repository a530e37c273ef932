"""Names that several browsers share: destination of a request, session affinity, presence of the name as a whole.

A shared name has no peer. Each of its browsers has an address, `server~instance`, with an entry in the same table. The
choice between them is made by `SharedName` (instances.py); this module applies it to the registry's entries. It takes
no lease and waits for no browser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tabrelay.calls.calls import Call
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.instances import ANY, TabInfo, TabRequest, counts_as_use
from tabserver.wire.eras import Era
from tabserver.wire.names import server_of

MAX_ABSENT: Final = 16  # browsers of one server that are away; past it, those that were away longest are removed


class SharedNames:
    """The shared names of one registry. `entries` is the registry's table; `remove` removes a name from it."""

    def __init__(
        self,
        entries: Mapping[str, ServerEntry],
        remove: Callable[[str], None],
        wall: Callable[[], float],
        on_front_change: Callable[[str], None],
        on_use: Callable[[str], None],
    ) -> None:
        """`on_front_change`: another of the browsers that share this name is in front. `on_use`: one was used."""
        self._on_front_change = on_front_change
        self._on_use = on_use
        self._entries = entries
        self._remove = remove
        self._wall = wall

    # -- destinations -------------------------------------------------------------------------------------------------

    def destination(self, name: str, request: TabRequest = ANY) -> str:
        """The address that a request for this name goes to: the name itself, or one of the browsers that share it."""
        entry = self._entries.get(name)
        if entry is None or entry.instances is None:
            return name
        return entry.instances.choose(request, self._connected(entry)) or name

    def destinations(self, name: str, session: str) -> list[str]:
        """All addresses that a session's requests went to."""
        entry = self._entries.get(name)
        bindings = entry.instances.bindings(session) if entry is not None and entry.instances is not None else []
        return bindings or [self.destination(name)]

    def bound_to(self, name: str, session: str) -> str:
        """The browser that a session stays with; the name itself if it is bound to none."""
        entry = self._entries.get(name)
        address = entry.instances.bound_to(session) if entry is not None and entry.instances is not None else None
        return address or name

    def unbind(self, name: str, session: str) -> None:
        """The session has ended."""
        entry = self._entries.get(name)
        if entry is not None and entry.instances is not None:
            entry.instances.unbind(session)

    def record_call(self, named: ServerEntry, entry: ServerEntry, call: Call) -> None:
        """A call for the name of `named` goes to the browser of `entry`."""
        if named.instances is not None and call.caller.era is Era.LEGACY:
            named.instances.bind(call.channel, entry.name)
        if entry.name != entry.server and counts_as_use(call):
            self.record_use(entry)

    # -- members ------------------------------------------------------------------------------------------------------

    def members(self, name: str) -> list[ServerEntry]:
        """The browsers that share a name, also those that are away: the one used last comes first."""
        found = [entry for entry in self._entries.values() if entry.name != name and server_of(entry.name) == name]
        return sorted(found, key=lambda entry: (entry.up.is_set(), entry.last_used or 0.0), reverse=True)

    def set_tabs(self, entry: ServerEntry, tabs: tuple[TabInfo, ...], focus_count: int) -> None:
        """A browser reports its tabs, and how often its user has turned to one of them."""
        entry.tabs = tabs
        shared = self._shared_entry(entry)
        if shared is not None and shared.instances is not None:
            shared.instances.set_tabs(entry.name, (tab.id for tab in tabs))
        is_used, entry.focus_count = focus_count > entry.focus_count, focus_count
        if is_used:
            self.record_use(entry)

    def record_remote_use(self, name: str, at: float | None = None) -> None:
        """A caller at another relay used this browser."""
        entry = self._entries.get(name)
        if entry is not None and (at is None or at > (entry.last_used or 0.0)):
            self.record_use(entry, at)

    def record_use(self, entry: ServerEntry, at: float | None = None) -> None:
        entry.last_used = self._wall() if at is None else at
        self._on_use(entry.name)
        shared = self._shared_entry(entry)
        if shared is None or shared.instances is None:
            return
        before = self.destination(shared.name)
        shared.instances.use(entry.name)
        if before != self.destination(shared.name):
            self._on_front_change(shared.name)

    # -- presence -----------------------------------------------------------------------------------------------------

    def joined(self, entry: ServerEntry, *, is_new: bool) -> None:
        """A browser is connected: so is the name that it shares."""
        shared = self._shared_entry(entry)
        if shared is None:
            return
        shared.since = shared.since if shared.up.is_set() else entry.since
        shared.up.set()
        if is_new:
            self.record_use(entry)

    def left(self, entry: ServerEntry) -> None:
        """A browser is gone."""
        shared = self._shared_entry(entry)
        if shared is not None and shared.instances is not None:
            shared.instances.remove(entry.name)
            self._remove_absent(shared)
        self.update_presence(entry)

    def update_presence(self, entry: ServerEntry) -> None:
        """A browser is away or gone: the name is connected as long as one of the others is."""
        shared = self._shared_entry(entry)
        if shared is None:
            return
        if not self._connected(shared):
            shared.up.clear()
            shared.since, shared.last_seen = None, entry.last_seen
        self._on_front_change(shared.name)

    def _shared_entry(self, entry: ServerEntry) -> ServerEntry | None:
        """The entry of the name that this browser shares with others."""
        server = server_of(entry.name)
        return self._entries.get(server) if server != entry.name else None

    def _connected(self, shared: ServerEntry) -> list[str]:
        members = (self._entries[name] for name in shared.instances or ())
        return [entry.name for entry in members if entry.peer is not None and entry.peer.is_up]

    def _remove_absent(self, shared: ServerEntry) -> None:
        """Every private window is a new browser, and most never come back."""
        absent = [entry for entry in self.members(shared.name) if entry.peer is None]
        for entry in sorted(absent, key=lambda entry: entry.last_seen or 0.0, reverse=True)[MAX_ABSENT:]:
            self._remove(entry.name)
