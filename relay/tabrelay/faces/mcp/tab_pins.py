"""Pinned tabs of modern callers, by principal and client name, because modern callers have no session.

A pin expires when it was not used for an hour. It is stored over restarts and sent to the worker with every request;
the worker decides what it means.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tabrelay.faces.mcp.session_store import SessionRecord, SessionStore
from tabserver.wire.frames import Caller

if TYPE_CHECKING:
    from tabrelay.faces.mcp.bus_sync import BusSync

LIFE_S: Final = 3600.0


class TabPins:
    """Stored in their own file over restarts: a restart must not give a caller the results of another tab."""

    def __init__(self, store: SessionStore, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self.records = store.records
        self._wall = wall

    def caller(self, server: str, caller: Caller) -> Caller:
        """The caller with its pinned tab. Not needed while there are no `records`."""
        id, now = _id(server, caller), self._wall()
        record = self._store.find(id)
        if record is None or record.tab is None or now - record.last_used > LIFE_S:
            return caller
        self._store.write(id, SessionRecord(now, tab=record.tab))
        return replace(caller, tab=record.tab)

    def pin(self, server: str, caller: Caller, tab: str | None) -> None:
        self._store.forget(self._wall() - LIFE_S)
        self._store.write(_id(server, caller), SessionRecord(self._wall(), tab=tab), now=True)

    def share(self, bus_sync: BusSync) -> None:
        """Share the pins with the other relays."""
        bus_sync.sync_store("pins", self._store)

    def flush(self) -> None:
        """The relay stops: store when each pin was last used."""
        if self._store:
            self._store.flush()


def _id(server: str, caller: Caller) -> str:
    client = (caller.client or {}).get("name")
    return "\n".join((server, caller.principal, client if isinstance(client, str) else ""))
