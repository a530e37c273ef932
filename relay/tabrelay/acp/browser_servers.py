"""Browser servers for agents that take MCP over ACP themselves: no port and no program, only messages.

The agent chooses the shape, and gets it: connections (G1 to G3), or an envelope for each request (G4) with the limits
and codes that this shape has.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from tabrelay.acp import dialects, json_edit
from tabrelay.acp import message as frames
from tabrelay.acp.connection import AcpConnection, disconnect
from tabrelay.acp.dialects import G1, G2, G3, G4, Dialect
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.relay_session import RelaySession
from tabrelay.acp.requests import ConnectionGone, RequestTable
from tabrelay.acp.sessions import OfferedServer
from tabrelay.bridge import errors
from tabrelay.bridge.messages import Key, key
from tabrelay.bridge.outbound import Outbound
from tabrelay.errors import Busy
from tabserver.wire import jsonrpc
from tabserver.wire.eras import META_VERSION

MAX_CONNECTIONS: Final = 64
MAX_CLOSED: Final = 1024
BACKEND: Final = (errors.FAILED, errors.REFUSED)

Reach = Callable[[OfferedServer, str], Outbound]
"""The way to the browser's server, for one connection."""


class McpEnvelope:
    """One request of the G4 shape, while it runs."""

    def __init__(self, offer: OfferedServer, outer: str, id: str) -> None:
        self.offer = offer
        self.outer = outer
        self.id = id
        self.line: RelaySession | None = None


class BrowserServers:
    def __init__(self, peer: RequestTable, reach: Reach) -> None:
        self._peer = peer
        self._reach = reach
        self._offers: dict[str, OfferedServer] = {}
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._connections: dict[str, tuple[OfferedServer, AcpConnection, RelaySession]] = {}
        self._envelopes: dict[Key, McpEnvelope] = {}
        self._numbers = itertools.count(1)
        self._endings: set[asyncio.Task[None]] = set()

    # -- what there is -------------------------------------------------------------------------------------------------

    def offer(self, offer: OfferedServer) -> None:
        self._offers[offer.server_id] = offer

    async def withdraw(self, offer: OfferedServer) -> None:
        if self._offers.pop(offer.server_id, None) is None:
            return
        self._closed[offer.server_id] = None
        if len(self._closed) > MAX_CLOSED:
            self._closed.popitem(last=False)
        for id, (whose, _, _) in list(self._connections.items()):
            if whose is offer:
                await self._disconnect(id)
        for one, envelope in list(self._envelopes.items()):
            if envelope.offer is offer:
                await self._cancelled(one)

    async def close(self) -> None:
        """The agent hears no more of it."""
        for ending in list(self._endings):
            ending.cancel()
        await asyncio.gather(*self._endings, return_exceptions=True)

    def owns(self, frame: AcpMessage) -> bool:
        """Is this message of the agent's for one of these?"""
        if frame.method == "$/cancel_request":
            return self._holder(frame.params.get("requestId")) is not None
        if dialects.connection_of(frame.params) in self._connections:
            return True
        id = _bare(dialects.server_of(frame.params))
        return id in self._offers or id in self._closed

    async def hear(self, frame: AcpMessage) -> None:
        params = frame.params
        if frame.method == "$/cancel_request":
            await self._cancel(params["requestId"])
        elif frame.method in dialects.CONNECTS:
            if frame.is_request:
                await self._connect(frame)
        elif frame.method in dialects.DISCONNECTS:
            await self._disconnect(str(dialects.connection_of(params)))
            if frame.is_request:
                await self._peer.answer(frame.id_text, result="{}")
        elif dialects.connection_of(params) in self._connections:
            await self._connections[str(dialects.connection_of(params))][1].hear(frame)
        elif frame.is_request:
            await self._request(frame)

    def _holder(self, request: Any) -> AcpConnection | McpEnvelope | None:
        if key(request) in self._envelopes:
            return self._envelopes[key(request)]
        return next((one for _, one, _ in self._connections.values() if one.is_asked(request)), None)

    async def _cancel(self, request: Any) -> None:
        holder = self._holder(request)
        if isinstance(holder, AcpConnection):
            await holder.cancelled(request)
        elif holder is not None:
            await self._cancelled(key(request))

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _connect(self, frame: AcpMessage) -> None:
        offer = self._offers.get(_bare(dialects.server_of(frame.params)) or "")
        if offer is None:
            await self._peer.refuse(frame.id_text, dialects.INVALID, "This MCP server is no longer available.")
            return
        if sum(whose is offer for whose, _, _ in self._connections.values()) >= MAX_CONNECTIONS:
            text = f"This MCP server has {MAX_CONNECTIONS} connections already: end one that is not used any more."
            await self._peer.refuse(frame.id_text, Busy.code, text)
            return
        shape = _shape(frame)
        id = f"c{next(self._numbers)}-{secrets.token_hex(4)}"
        conversation: AcpConnection

        async def deliver(line: bytes) -> None:
            await conversation.say(line)

        def stuck() -> None:
            ending = asyncio.create_task(self._hang_up(id))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

        line = RelaySession(self._reach(offer, id), deliver, has_listener=True, on_stuck=stuck)
        conversation = AcpConnection(shape, id, self._peer, line.say, lambda: offer.session.id)
        self._connections[id] = (offer, conversation, line)
        offer.connected(id)
        name = "connectionId" if shape is G3 else "connection_id"
        await self._peer.answer(frame.id_text, result=json.dumps({name: id}))

    async def _disconnect(self, id: str) -> None:
        found = self._connections.pop(id, None)
        if found is not None:
            offer, conversation, line = found
            await line.close()
            await conversation.close()
            offer.disconnected(id)

    async def _hang_up(self, id: str) -> None:
        """On an agent whose server takes nothing any more."""
        found = self._connections.get(id)
        if found is None:
            return
        await self._disconnect(id)
        with contextlib.suppress(ConnectionGone):
            await disconnect(self._peer, found[1].profile, id)

    # -- envelopes -----------------------------------------------------------------------------------------------------

    async def _request(self, frame: AcpMessage) -> None:
        problem = self._problem(frame)
        if problem is not None:
            await self._peer.refuse(frame.id_text, *problem)
            return
        offer = self._offers[frame.params["serverId"]]
        if not _is_stamped(frame.params.get("params")):
            error = {"code": dialects.INVALID, "message": f"Invalid params: missing {META_VERSION} in params._meta"}
            await self._peer.answer(frame.id_text, result=json.dumps({"error": error}))
            return
        one = frame.key
        envelope = self._envelopes[one] = McpEnvelope(offer, frame.id_text, frame.params["requestId"])
        connection = self._connection(offer)

        async def deliver(line: bytes) -> None:
            await self._said(one, AcpMessage.read(line))

        envelope.line = RelaySession(self._reach(offer, connection), deliver, has_listener=False)
        await envelope.line.say(frames.request(envelope.id, frame.params["method"], frame.part("params", "params")))

    def _connection(self, offer: OfferedServer) -> str:
        """This shape knows none. What an agent asks of one server in one session is one conversation all the same, from
        the first request until the session ends: people see it as one, and tools may keep it apart from others."""
        if offer.carried is None:
            offer.carried = f"{G4.name}-{secrets.token_hex(4)}"
            offer.connected(offer.carried)
        return offer.carried

    def _problem(self, frame: AcpMessage) -> tuple[int, str] | None:
        """Why it is refused: code and text."""
        params = frame.params
        id, server = params.get("requestId"), params.get("serverId")
        if not isinstance(id, str) or not isinstance(server, str) or not isinstance(params.get("method"), str):
            return dialects.INVALID, "serverId, requestId and method have to be there, and to be strings."
        if (flaw := jsonrpc.id_flaw(id, "A requestId")) is not None:
            return dialects.INVALID, flaw
        if not isinstance(params.get("params"), dict | None):
            return dialects.INVALID, "params has to be an object."
        if server not in self._offers:
            return dialects.UNAVAILABLE, "This MCP server is no longer available."
        if frame.key in self._envelopes:
            return dialects.INVALID, "A request with this id is still running."
        active = [one for one in self._envelopes.values() if one.offer.server_id == server]
        if any(one.id == id for one in active):
            return dialects.INVALID, "A request with this requestId is still running."
        if len(active) >= dialects.MAX_ACTIVE:
            return dialects.LIMIT, f"{dialects.MAX_ACTIVE} requests to this server are running; wait for one to end."
        return None

    async def _said(self, one: Key, frame: AcpMessage) -> None:
        envelope = self._envelopes.get(one)
        if envelope is None:
            return
        if frame.is_response:
            del self._envelopes[one]
            await self._answer(envelope, frame)
            assert envelope.line is not None
            # Its own task says this: it ends when it has said it.
            envelope.line.stop()
        elif frame.is_notification:
            parts = {
                "serverId": json.dumps(envelope.offer.server_id),
                "requestId": json.dumps(envelope.id),
                "method": json.dumps(frame.method),
                "params": frame.part("params"),
            }
            await self._peer.notify(G4.notification, json_edit.build(parts))

    async def _answer(self, envelope: McpEnvelope, frame: AcpMessage) -> None:
        if frame.error is not None and frame.error_code in BACKEND:
            said = (frame.value or {})["error"]
            text = str(said.get("message", "The browser's server could not be reached."))
            await self._peer.answer(
                envelope.outer, error=json.dumps({"code": dialects.FAILED, "message": text, "data": said.get("data")})
            )
            return
        await self._peer.answer(envelope.outer, result=json_edit.build({"error": frame.error, "result": frame.result}))

    async def _cancelled(self, one: Key) -> None:
        envelope = self._envelopes.pop(one, None)
        if envelope is not None:
            if envelope.line is not None:
                await envelope.line.close()
            await self._peer.refuse(envelope.outer, dialects.CANCELLED, "The request was cancelled.")


def _shape(frame: AcpMessage) -> Dialect:
    if frame.method == G3.connect:
        return G3
    return G1 if "session_id" in frame.params else G2


def _bare(server: str | None) -> str | None:
    return None if server is None else server.removeprefix("acp:")


def _is_stamped(params: Any) -> bool:
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get(META_VERSION), str)
