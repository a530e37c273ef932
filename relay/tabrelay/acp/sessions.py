"""State of one ACP session: the MCP servers that the conductor declared to the agent, and their connections.

Closing a session closes its ports and connections and revokes its tokens. `describe` returns what `tabrelay status`
shows. Servers are started in `session_servers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tabrelay.acp.local_port import LocalPort


@dataclass(eq=False)
class OfferedServer:
    """A server in a session. `server`: the browser's, or None when the editor provides it. `how`: stdio, http, acp.

    `envelope_connection`: the connection id of all requests in envelopes (G4), which have no connection.
    """

    session: AcpSession
    name: str
    server: str | None
    server_id: str
    how: str
    local_port: LocalPort | None = None
    revoke: Callable[[], None] | None = None
    connections: set[str] = field(default_factory=set)
    is_used: bool = False
    envelope_connection: str | None = None

    def connected(self, connection: str) -> None:
        self.is_used = True
        self.connections.add(connection)
        self.session.on_change()

    def disconnected(self, connection: str) -> None:
        self.connections.discard(connection)
        self.session.on_change()

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "server": self.server,
            "server_id": self.server_id,
            "how": self.how,
            "connections": sorted(self.connections),
            "is_used": self.is_used,
        }


class AcpSession:
    """`id` is None until the agent has answered the request that opens the session."""

    def __init__(self, id: str | None, on_change: Callable[[], None]) -> None:
        self.id = id
        self.id_known = asyncio.Event()
        self.offers: list[OfferedServer] = []
        self.on_change = on_change
        self.is_closed = False
        if id is not None:
            self.id_known.set()

    def resolve(self, id: str) -> None:
        self.id = id
        self.id_known.set()

    def describe(self) -> dict[str, Any]:
        return {"session": self.id, "servers": [offer.describe() for offer in self.offers]}

    async def close(self) -> None:
        """The session's ports, connections and tokens are gone when this returns."""
        self.is_closed = True
        for offer in self.offers:
            if offer.local_port is not None:
                await offer.local_port.close()
            revoke, offer.revoke = offer.revoke, None
            if revoke is not None:
                revoke()
