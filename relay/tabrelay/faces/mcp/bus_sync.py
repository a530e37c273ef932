"""Synchronisation of client state between relays on one bus, so that a client may use any of them.

Shares changed records of sessions and pins, forwards a client's messages for calls that run at another relay, and
forwards POSTs to the relay that holds a 2024-11-05 stream. Delivery is that of the bus: nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from tabrelay.bus.errors import unreachable
from tabrelay.bus.members import Membership
from tabrelay.faces.mcp.session_store import SessionStore


class BusSync:
    """One per relay on a bus."""

    def __init__(self, cluster: Membership) -> None:
        self.cluster = self._cluster = cluster
        self._stores: dict[str, tuple[SessionStore, Callable[[str], None]]] = {}
        self._on_message: Callable[[str, dict[str, Any]], None] = lambda key, message: None
        self._on_post: Callable[[dict[str, Any], dict[str, Any]], None] = lambda header, message: None
        cluster.handle("page", self._receive_record)
        cluster.handle("said", self._receive_message)
        cluster.handle("post", self._receive_post)

    def sync_store(self, name: str, store: SessionStore, on_change: Callable[[str], None] = lambda key: None) -> None:
        """Keep this store equal on all relays. `on_change` gets the key of a record that another relay wrote."""
        self._stores[name] = store, on_change
        send = self._cluster.send_reliably
        store.on_write.append(lambda key, row: send(None, {"op": "page", "d": name, "k": key, "row": row}))

    def _receive_record(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        store, on_change = self._stores.get(str(header.get("d")), (None, None))
        key, row = header.get("k"), header.get("row")
        if store is not None and on_change is not None and isinstance(key, str) and store.receive(key, row) is not None:
            on_change(key)

    # -- messages of a session's client --------------------------------------------------------------------------------

    def on_message(self, handler: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_message = handler

    def broadcast(self, key: str, message: dict[str, Any]) -> None:
        """Send a message to all relays: its call or question may be at any of them."""
        if self._cluster.nodes:
            self._cluster.send_reliably(None, {"op": "said", "k": key}, orjson.dumps(message).decode())

    def _receive_message(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        if payload is not None and isinstance(header.get("k"), str):
            self._on_message(header["k"], orjson.loads(payload))

    # -- streams of 2024-11-05 -----------------------------------------------------------------------------------------

    def serve_streams(
        self,
        has: Callable[[dict[str, Any]], dict[str, Any] | None],
        on_post: Callable[[dict[str, Any], dict[str, Any]], None],
    ) -> None:
        """`has` finds a stream of this relay; `on_post` receives messages for it that arrived at another relay."""
        self._cluster.handle_question("stream", has)
        self._on_post = on_post

    async def forward_post(self, where: dict[str, Any], message: dict[str, Any]) -> bool:
        """Send a message to the relay that holds its stream; False if none does. Raises if the bus is down."""
        if not self._cluster.is_up:
            raise unreachable()
        for answer in await self._cluster.ask_all("stream", where):
            self._cluster.send_reliably(str(answer["from"]), {**where, "op": "post"}, orjson.dumps(message).decode())
            return True
        return False

    def _receive_post(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        if payload is not None:
            self._on_post(header, orjson.loads(payload))
