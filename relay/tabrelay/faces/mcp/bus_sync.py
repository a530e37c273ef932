"""What relays of one bus tell each other of their clients, so that each can go on where another left off: what changed
in a session or a pin, messages for a session's calls at another relay, and posts for a stream that another one has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from tabrelay.bus.errors import unreachable
from tabrelay.bus.members import Membership
from tabrelay.faces.mcp.session_store import SessionStore


class BusSync:
    """One per relay that is on a bus."""

    def __init__(self, cluster: Membership) -> None:
        self.cluster = self._cluster = cluster
        self._stores: dict[str, tuple[SessionStore, Callable[[str], None]]] = {}
        self._on_message: Callable[[str, dict[str, Any]], None] = lambda key, message: None
        self._on_post: Callable[[dict[str, Any], dict[str, Any]], None] = lambda header, message: None
        cluster.handle("page", self._receive_record)
        cluster.handle("said", self._receive_message)
        cluster.handle("post", self._receive_post)

    def sync_store(self, name: str, store: SessionStore, on_change: Callable[[str], None] = lambda key: None) -> None:
        """From now on every relay has the same; `on_change` hears which page another one wrote."""
        self._stores[name] = store, on_change
        store.on_write = lambda key, row: self._cluster.send_reliably(
            None, {"op": "page", "d": name, "k": key, "row": row}
        )

    def _receive_record(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        store, on_change = self._stores.get(str(header.get("d")), (None, None))
        key, row = header.get("k"), header.get("row")
        if store is not None and on_change is not None and isinstance(key, str) and store.receive(key, row) is not None:
            on_change(key)

    # -- what a session's client says to whichever relay it reaches ----------------------------------------------------

    def on_message(self, handler: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_message = handler

    def broadcast(self, key: str, message: dict[str, Any]) -> None:
        """The call or question that this is for may be at another relay."""
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
        """`has`: is the stream that is asked for here? `on_post`: a message for it came in at another relay."""
        self._cluster.handle_question("stream", has)
        self._on_post = on_post

    async def forward_post(self, where: dict[str, Any], message: dict[str, Any]) -> bool:
        """Bring a message to the relay that has its stream; False if none has it. Raises if nobody can be asked."""
        if not self._cluster.is_up:
            raise unreachable()
        for answer in await self._cluster.ask_all("stream", where):
            self._cluster.send_reliably(str(answer["from"]), {**where, "op": "post"}, orjson.dumps(message).decode())
            return True
        return False

    def _receive_post(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        if payload is not None:
            self._on_post(header, orjson.loads(payload))
