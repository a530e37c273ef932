"""The agent's MCP connections to servers of the editor's: found by what a message names, when it comes from there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tabrelay.acp import dialects
from tabrelay.acp.connection import AcpConnection
from tabrelay.acp.envelope_requests import EnvelopeRequests
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import RequestTable


class OpenConnections:
    def __init__(self, peer: RequestTable) -> None:
        self._peer = peer
        self._conversations: dict[str, AcpConnection] = {}
        self._carriers: list[tuple[str, EnvelopeRequests]] = []
        self._endings: set[asyncio.Task[None]] = set()

    def connected(self, conversation: AcpConnection) -> None:
        self._conversations[conversation.id] = conversation

    def carrying(self, server_id: str, carrier: EnvelopeRequests) -> None:
        self._carriers.append((server_id, carrier))

    def gone(self, one: AcpConnection | EnvelopeRequests) -> None:
        if not isinstance(one, AcpConnection):
            self._carriers = [pair for pair in self._carriers if pair[1] is not one]
        elif self._conversations.get(one.id) is one:  # an editor may give two connections the same id
            del self._conversations[one.id]

    async def end(self, work: Coroutine[Any, Any, None]) -> None:
        """Say what is to be said at the end of a connection: all of it, also if whoever waits for it is cancelled."""
        ending = asyncio.create_task(work)
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        await asyncio.shield(ending)

    async def close(self) -> None:
        """Nobody hears any more of it."""
        for ending in list(self._endings):
            ending.cancel()
        await asyncio.gather(*self._endings, return_exceptions=True)

    def owns(self, frame: AcpMessage) -> bool:
        return self._find(frame) is not None

    def _find(self, frame: AcpMessage) -> AcpConnection | EnvelopeRequests | None:
        params = frame.params
        if frame.method == "$/cancel_request":
            request = params.get("requestId")
            return next((one for one in self._conversations.values() if one.is_asked(request)), None)
        found = self._conversations.get(dialects.connection_of(params) or "")
        if found is not None:
            return found
        server = params.get("serverId")
        return next((one for id, one in self._carriers if id == server and one.owns(frame)), None)

    async def hear(self, frame: AcpMessage) -> None:
        found = self._find(frame)
        if isinstance(found, EnvelopeRequests):
            if frame.is_notification:
                await found.hear(frame)
            else:
                text = "In this shape an MCP server says only notifications."
                await self._peer.refuse(frame.id_text, dialects.INVALID, text)
        elif found is not None and frame.method == "$/cancel_request":
            await found.cancelled(frame.params.get("requestId"))
        elif found is not None and frame.method in dialects.DISCONNECTS:
            found.hung_up.set()
            if frame.is_request:
                await self._peer.answer(frame.id_text, result="{}")
        elif found is not None:
            await found.hear(frame)
