"""Last known lists of every server: memory budget, rejected items, and drift from the tools at first use.

A catalogue stays in its `ServerEntry` while the server is offline, so that clients can still be answered. All of them
together stay within one budget; past it, the catalogues of the servers that have been away longest are dropped. This
module reads no list from a server (`faces.mcp.catalogue_reader`) and refuses no call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.payloads.list_checks import Rejection, describe
from tabrelay.payloads.printable_text import printable
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.tool_drift import Baseline
from tabserver.wire.names import server_of
from tabserver.wire.static_tools import STATIC_TOOLS

log = logging.getLogger(__name__)

MAX_FLAWS: Final = 32  # of one server; more of them say nothing new
# A server whose lists change all the time must not fill the log: a burst of lines, then one per minute. The status
# always shows the present state.
LOG_BURST: Final = 5
LOG_LINES_PER_S: Final = 1 / 60


class Catalogues:
    """The catalogues of one registry. `entries` is the registry's table; this class changes its values only."""

    def __init__(
        self,
        entries: Mapping[str, ServerEntry],
        store: CatalogueStore,
        *,
        static_tools: Iterable[str],
        budget: int,
        drift_level: int,
        clock: Callable[[], float],
    ) -> None:
        """`static_tools`: names of servers that have the static tools. `budget`: bytes of memory for all catalogues.
        `drift_level`: log level of tools that have changed under their old names."""
        self._entries = entries
        self._store = store
        self._static_tools = frozenset(static_tools)
        self._budget = budget
        self._drift_level = drift_level
        self._clock = clock
        self._log_limiter = RateLimiter(LOG_LINES_PER_S, LOG_BURST)
        # An upper bound: a removed entry still counts until the next eviction adds up what is left.
        self._bytes = 0

    def load(self, entry: ServerEntry) -> None:
        """Count the catalogue of an entry that was read from the store."""
        self._bytes += entry.size
        self._compare(entry)

    def keep(self, name: str, catalogue: Catalogue) -> None:
        """Keep the catalogue that was just read from the server."""
        entry = self._entries[name]
        before = entry.catalogue
        self._set(entry, catalogue)
        entry.is_fresh = True
        self._compare(entry, before)
        self._save(entry)

    def add_remote(self, name: str, catalogue: Catalogue, last_seen: float | None) -> None:
        """Keep the catalogue that another relay has cached, unless this relay has one."""
        entry = self._entries[name]
        if entry.catalogue is None:
            entry.last_seen = last_seen
            self._set(entry, catalogue)
            self._save(entry)

    def cached(self, entry: ServerEntry) -> Catalogue | None:
        """The answer for clients while the server is offline: its last catalogue, with static tools if it has them.

        Static tools are present even if the server never had a browser: some clients read the list only once.
        """
        catalogue = entry.catalogue
        if server_of(entry.name) not in self._static_tools:
            return catalogue.without_statics() if catalogue else None
        catalogue = catalogue or Catalogue({"capabilities": {"tools": {"listChanged": True}}})
        return replace(catalogue, tools=(*STATIC_TOOLS, *catalogue.without_statics().tools))

    # -- rejected items -----------------------------------------------------------------------------------------------

    def flag(self, name: str, method: str, flaws: Sequence[Rejection], *, is_whole: bool) -> None:
        """Record what is wrong in a list. The log has it when it changes, the status until the server drops it.

        `is_whole`: the list has no other pages, so earlier flaws of this list no longer count.
        """
        entry = self._entries.get(name)
        before = entry.flaws.get(method, {}) if entry is not None else {}
        if entry is None or not (before or flaws):
            return
        now = {} if is_whole else dict(before)
        now.update((flaw.name, flaw) for flaw in flaws[: MAX_FLAWS - len(now)])
        entry.flaws[method] = now
        news = [flaw for flaw in flaws if before.get(flaw.name) != flaw]
        # Only flaws that are kept can be compared the next time.
        if any(flaw.name in now for flaw in news) and self._may_log(f"{name} {method}"):
            log.warning("%s: wrong in %s: %s", name, method, describe(news))

    def _may_log(self, what: str) -> bool:
        # defence: lines of the log that one server makes
        return not self._log_limiter.take(what, self._clock())

    # -- drift --------------------------------------------------------------------------------------------------------

    def mark_used(self, entry: ServerEntry) -> None:
        """A client uses the server for the first time: its present tools become the baseline."""
        entry.is_used = True
        # A shared name offers what the browser in front offers: each browser is compared with itself.
        if entry.is_fresh and entry.instances is None:
            self._compare(entry)
            self._save(entry)

    def accept(self, entry: ServerEntry) -> None:
        """The user accepts the present tools: they become part of the baseline."""
        if entry.baseline is not None and entry.catalogue is not None:
            entry.baseline = entry.baseline.accepting(entry.catalogue.without_statics().tools)
            self._compare(entry)
            self._save(entry)

    def _compare(self, entry: ServerEntry, earlier: Catalogue | None = None) -> None:
        """`earlier`: what was known before the present catalogue."""
        if not entry.is_used or entry.catalogue is None or entry.instances is not None:
            return
        tools = entry.catalogue.without_statics().tools
        if entry.baseline is None:
            entry.baseline = Baseline.of(tools)
        before, entry.drift = entry.drift, entry.baseline.drift(tools)
        known = () if earlier is None else earlier.without_statics().tools
        entry.originals = entry.baseline.originals(entry.drift, (*entry.originals.values(), *known))
        if entry.drift and entry.drift != before and self._may_log(f"{entry.name} drift"):
            # Tools come and go with tabs. A tool that changes under its old name is what an attack looks like.
            level = self._drift_level if set(entry.drift.changed) - set(before.changed) else logging.INFO
            log.log(
                level,
                "%s: its tools differ from those at first use: %s",
                entry.name,
                printable(str(entry.drift), 1000),
            )

    # -- memory budget ------------------------------------------------------------------------------------------------

    def _set(self, entry: ServerEntry, catalogue: Catalogue) -> None:
        before, entry.catalogue, entry.size = entry.size, catalogue, catalogue.size
        self._bytes += entry.size - before
        # defence: catalogues: the budget of all catalogues
        if self._bytes > self._budget:
            self._evict(entry)

    def _evict(self, new: ServerEntry) -> None:
        """Drop catalogues until all fit the budget: servers without a peer first, the longest away before the rest."""
        known = [entry for entry in self._entries.values() if entry.catalogue is not None and entry is not new]
        known.sort(key=lambda entry: (entry.peer is not None, entry.last_seen or 0.0))
        total = new.size + sum(entry.size for entry in known)
        # defence: catalogues: a catalogue that is larger than the budget
        for entry in (*known, new):
            if total <= self._budget:
                break
            total -= entry.size
            entry.catalogue, entry.size = None, 0
            self._save(entry)
        self._bytes = total

    def _save(self, entry: ServerEntry) -> None:
        self._store.put(entry.name, entry.stored())
