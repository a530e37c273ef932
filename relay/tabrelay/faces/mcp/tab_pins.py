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

    def __init__(self, diary: SessionStore, wall: Callable[[], float] = time.time) -> None:
        self._diary = diary
        self._wall = wall

    def caller(self, server: str, caller: Caller) -> Caller:
        """The caller with what it has pinned."""
        if not self._diary.pages:  # nearly always, and each call asks
            return caller
        id, now = _id(server, caller), self._wall()
        page = self._diary.find(id)
        if page is None or page.tab is None or now - page.last_used > LIFE_S:
            return caller
        self._diary.write(id, SessionRecord(now, tab=page.tab))
        return replace(caller, tab=page.tab)

    def pin(self, server: str, caller: Caller, tab: str | None) -> None:
        self._diary.forget(self._wall() - LIFE_S)
        self._diary.write(_id(server, caller), SessionRecord(self._wall(), tab=tab), now=True)

    def share(self, sharing: BusSync) -> None:
        """Each of several relays has them."""
        sharing.diary("pins", self._diary)

    def flush(self) -> None:
        """The relay stops: write down what was used when."""
        if self._diary:
            self._diary.flush()


def _id(server: str, caller: Caller) -> str:
    client = (caller.client or {}).get("name")
    return "\n".join((server, caller.principal, client if isinstance(client, str) else ""))
