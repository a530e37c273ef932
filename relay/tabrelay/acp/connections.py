"""Table of the agent's MCP connections to servers that the editor provides.

A message from the editor is delivered to the connection (G1 to G3) or the running request (G4) that it names. Endings
run to completion even if the task that waits for them is cancelled. Connections are made in `editor_connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tabrelay.acp import dialects
from tabrelay.acp.connection import AcpConnection
from tabrelay.acp.envelope_requests import EnvelopeRequests
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import RequestTable
from tabrelay.system.tasks import BackgroundTasks


class OpenConnections:
    def __init__(self, requests: RequestTable) -> None:
        self._requests = requests
        self._connections: dict[str, AcpConnection] = {}
        self._envelopes: list[tuple[str, EnvelopeRequests]] = []
        self._closing = BackgroundTasks()

    def add_connection(self, connection: AcpConnection) -> None:
        self._connections[connection.id] = connection

    def add_envelopes(self, server_id: str, envelopes: EnvelopeRequests) -> None:
        self._envelopes.append((server_id, envelopes))

    def remove(self, one: AcpConnection | EnvelopeRequests) -> None:
        if not isinstance(one, AcpConnection):
            self._envelopes = [pair for pair in self._envelopes if pair[1] is not one]
        elif self._connections.get(one.id) is one:  # an editor may give two connections the same id
            del self._connections[one.id]

    async def run_to_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work that ends a connection to completion, even if the caller is cancelled."""
        await asyncio.shield(self._closing.start(work))

    async def close(self) -> None:
        """Cancels the endings: the editor reads nothing any more."""
        await self._closing.cancel()

    def owns(self, message: AcpMessage) -> bool:
        return self._find(message) is not None

    def _find(self, message: AcpMessage) -> AcpConnection | EnvelopeRequests | None:
        params = message.params
        if message.method == "$/cancel_request":
            request = params.get("requestId")
            return next((one for one in self._connections.values() if one.has_inbound(request)), None)
        found = self._connections.get(dialects.connection_of(params) or "")
        if found is not None:
            return found
        server = params.get("serverId")
        return next((one for id, one in self._envelopes if id == server and one.owns(message)), None)

    async def receive(self, message: AcpMessage) -> None:
        found = self._find(message)
        if isinstance(found, EnvelopeRequests):
            if message.is_notification:
                await found.receive(message)
            else:
                text = "In this dialect an MCP server sends only notifications."
                await self._requests.refuse(message.id_text, dialects.INVALID, text)
        elif found is not None and message.method == "$/cancel_request":
            await found.cancel_inbound(message.params.get("requestId"))
        elif found is not None and message.method in dialects.DISCONNECTS:
            found.closed_by_peer.set()
            if message.is_request:
                await self._requests.answer(message.id_text, result="{}")
        elif found is not None:
            await found.receive(message)
