"""Tabs that modern callers have pinned. They have no session, so a pin belongs to a principal and the name of a client.

Nobody ends it, as a session would, so it ends by itself when it was not used for an hour. The relay remembers it and
says it with every request; what it means is the worker's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.mcp.session_store import SessionRecord, SessionStore
from tabserver.wire.frames import Caller

LIFE_S: Final = 3600.0


class TabPins:
    """Kept in a diary of their own, over restarts: a caller must not get another tab's results because of one."""

    def __init__(self, store: SessionStore, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self._wall = wall

    def caller(self, server: str, caller: Caller) -> Caller:
        """The caller with what it has pinned."""
        if not self._store.records:  # nearly always, and each call asks
            return caller
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
        """Each of several relays has them."""
        bus_sync.sync_store("pins", self._store)

    def flush(self) -> None:
        """The relay stops: write down what was used when."""
        if self._store:
            self._store.flush()


def _id(server: str, caller: Caller) -> str:
    client = (caller.client or {}).get("name")
    return "\n".join((server, caller.principal, client if isinstance(client, str) else ""))
