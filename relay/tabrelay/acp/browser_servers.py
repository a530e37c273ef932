"""Browser servers for agents that support MCP over ACP: neither a port nor a program, only messages.

The agent chooses the dialect: connections (G1 to G3), or one envelope for each request (G4) with that dialect's limits
and error codes. Servers that the editor provides are in `editor_connection`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from tabrelay.acp import dialects, json_edit
from tabrelay.acp import message as acp_message
from tabrelay.acp.connection import AcpConnection, disconnect
from tabrelay.acp.dialects import G1, G2, G3, G4, Dialect
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.relay_session import RelaySession
from tabrelay.acp.requests import ConnectionGone, RequestTable
from tabrelay.acp.sessions import OfferedServer
from tabrelay.bridge import errors
from tabrelay.bridge.messages import Key, key
from tabrelay.bridge.outbound import Outbound
from tabrelay.bridge.parsing import parsed
from tabrelay.errors import Busy
from tabrelay.system.tasks import BackgroundTasks
from tabserver.wire import jsonrpc
from tabserver.wire.eras import META_VERSION

MAX_CONNECTIONS: Final = 64
MAX_CLOSED: Final = 1024
BRIDGE_ERRORS: Final = (errors.FAILED, errors.REFUSED)

MakeOutbound = Callable[[OfferedServer, str], Outbound]
"""Makes the HTTP client for one MCP connection to a browser's server."""


class McpEnvelope:
    """One running request of the G4 dialect."""

    def __init__(self, offer: OfferedServer, outer: str, id: str) -> None:
        self.offer = offer
        self.outer = outer
        self.id = id
        self.relay_session: RelaySession | None = None


class BrowserServers:
    def __init__(self, requests: RequestTable, make_outbound: MakeOutbound) -> None:
        self._requests = requests
        self._make_outbound = make_outbound
        self._offers: dict[str, OfferedServer] = {}
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._connections: dict[str, tuple[OfferedServer, AcpConnection, RelaySession]] = {}
        self._envelopes: dict[Key, McpEnvelope] = {}
        self._numbers = itertools.count(1)
        self._closing = BackgroundTasks()

    # -- offers --------------------------------------------------------------------------------------------------------

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
                await self._cancel_envelope(one)

    async def close(self) -> None:
        """Stops sending disconnects to the agent."""
        await self._closing.cancel()

    def owns(self, message: AcpMessage) -> bool:
        """Whether the agent's message is for one of these servers."""
        if message.method == "$/cancel_request":
            return self._find_request(message.params.get("requestId")) is not None
        if dialects.connection_of(message.params) in self._connections:
            return True
        id = _bare_id(dialects.server_of(message.params))
        return id in self._offers or id in self._closed

    async def receive(self, message: AcpMessage) -> None:
        params = message.params
        if message.method == "$/cancel_request":
            await self._cancel(params["requestId"])
        elif message.method in dialects.CONNECTS:
            if message.is_request:
                await self._connect(message)
        elif message.method in dialects.DISCONNECTS:
            await self._disconnect(str(dialects.connection_of(params)))
            if message.is_request:
                await self._requests.answer(message.id_text, result="{}")
        elif dialects.connection_of(params) in self._connections:
            await self._connections[str(dialects.connection_of(params))][1].receive(message)
        elif message.is_request:
            await self._request(message)

    def _find_request(self, request: Any) -> AcpConnection | McpEnvelope | None:
        if key(request) in self._envelopes:
            return self._envelopes[key(request)]
        return next((one for _, one, _ in self._connections.values() if one.has_inbound(request)), None)

    async def _cancel(self, request: Any) -> None:
        holder = self._find_request(request)
        if isinstance(holder, AcpConnection):
            await holder.cancel_inbound(request)
        elif holder is not None:
            await self._cancel_envelope(key(request))

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _connect(self, message: AcpMessage) -> None:
        offer = self._offers.get(_bare_id(dialects.server_of(message.params)) or "")
        if offer is None:
            await self._requests.refuse(message.id_text, dialects.INVALID, "This MCP server is no longer available.")
            return
        if sum(whose is offer for whose, _, _ in self._connections.values()) >= MAX_CONNECTIONS:
            text = f"This MCP server has {MAX_CONNECTIONS} connections already: end one that is not used any more."
            await self._requests.refuse(message.id_text, Busy.code, text)
            return
        dialect = _dialect_of(message)
        id = f"c{next(self._numbers)}-{secrets.token_hex(4)}"
        connection: AcpConnection

        async def deliver(relay_session: bytes) -> None:
            await connection.send(relay_session)

        def stuck() -> None:
            self._closing.start(self._disconnect_stuck(id))

        line = RelaySession(self._make_outbound(offer, id), deliver, has_server_stream=True, on_stuck=stuck)
        connection = AcpConnection(dialect, id, self._requests, line.send, lambda: offer.session.id)
        self._connections[id] = (offer, connection, line)
        offer.connected(id)
        name = "connectionId" if dialect is G3 else "connection_id"
        await self._requests.answer(message.id_text, result=json.dumps({name: id}))

    async def _disconnect(self, id: str) -> None:
        found = self._connections.pop(id, None)
        if found is not None:
            offer, conversation, line = found
            await line.close()
            await conversation.close()
            offer.disconnected(id)

    async def _disconnect_stuck(self, id: str) -> None:
        """Closes a connection whose server no longer reads, and notifies the agent."""
        found = self._connections.get(id)
        if found is None:
            return
        await self._disconnect(id)
        with contextlib.suppress(ConnectionGone):
            await disconnect(self._requests, found[1].dialect, id)

    # -- envelopes -----------------------------------------------------------------------------------------------------

    async def _request(self, message: AcpMessage) -> None:
        problem = self._refusal(message)
        if problem is not None:
            await self._requests.refuse(message.id_text, *problem)
            return
        offer = self._offers[message.params["serverId"]]
        if not _has_version(message.params.get("params")):
            error = {"code": dialects.INVALID, "message": f"Invalid params: missing {META_VERSION} in params._meta"}
            await self._requests.answer(message.id_text, result=json.dumps({"error": error}))
            return
        one = message.key
        envelope = self._envelopes[one] = McpEnvelope(offer, message.id_text, message.params["requestId"])
        connection = self._envelope_connection(offer)

        async def deliver(line: bytes) -> None:
            await self._receive_from_relay(one, await parsed(AcpMessage.read, line))

        envelope.relay_session = RelaySession(self._make_outbound(offer, connection), deliver, has_server_stream=False)
        await envelope.relay_session.send(
            acp_message.request(envelope.id, message.params["method"], message.part("params", "params"))
        )

    def _envelope_connection(self, offer: OfferedServer) -> str:
        """The connection id for all requests of one session to one server.

        G4 has no connections. The requests still share an id from the first request until the session ends, so that
        `tabrelay status` lists them as one connection and tools can tell callers apart."""
        if offer.envelope_connection is None:
            offer.envelope_connection = f"{G4.name}-{secrets.token_hex(4)}"
            offer.connected(offer.envelope_connection)
        return offer.envelope_connection

    def _refusal(self, message: AcpMessage) -> tuple[int, str] | None:
        """Code and text if the request must be refused."""
        params = message.params
        id, server = params.get("requestId"), params.get("serverId")
        if not isinstance(id, str) or not isinstance(server, str) or not isinstance(params.get("method"), str):
            return dialects.INVALID, "serverId, requestId and method have to be there, and to be strings."
        if (flaw := jsonrpc.id_flaw(id, "A requestId")) is not None:
            return dialects.INVALID, flaw
        if not isinstance(params.get("params"), dict | None):
            return dialects.INVALID, "params has to be an object."
        if server not in self._offers:
            return dialects.UNAVAILABLE, "This MCP server is no longer available."
        if message.key in self._envelopes:
            return dialects.INVALID, "A request with this id is still running."
        active = [one for one in self._envelopes.values() if one.offer.server_id == server]
        if any(one.id == id for one in active):
            return dialects.INVALID, "A request with this requestId is still running."
        if len(active) >= dialects.MAX_ACTIVE:
            return dialects.LIMIT, f"{dialects.MAX_ACTIVE} requests to this server are running; wait for one to end."
        return None

    async def _receive_from_relay(self, one: Key, message: AcpMessage) -> None:
        envelope = self._envelopes.get(one)
        if envelope is None:
            return
        if message.is_response:
            del self._envelopes[one]
            await self._answer(envelope, message)
            assert envelope.relay_session is not None
            # This runs in the session's own task, which ends after it has delivered this message.
            envelope.relay_session.stop()
        elif message.is_notification:
            parts = {
                "serverId": json.dumps(envelope.offer.server_id),
                "requestId": json.dumps(envelope.id),
                "method": json.dumps(message.method),
                "params": message.part("params"),
            }
            await self._requests.notify(G4.notification, json_edit.build(parts))

    async def _answer(self, envelope: McpEnvelope, message: AcpMessage) -> None:
        if message.error is not None and message.error_code in BRIDGE_ERRORS:
            error = (message.value or {})["error"]
            text = str(error.get("message", "The browser's server could not be reached."))
            await self._requests.answer(
                envelope.outer, error=json.dumps({"code": dialects.FAILED, "message": text, "data": error.get("data")})
            )
            return
        await self._requests.answer(
            envelope.outer, result=json_edit.build({"error": message.error, "result": message.result})
        )

    async def _cancel_envelope(self, one: Key) -> None:
        envelope = self._envelopes.pop(one, None)
        if envelope is not None:
            if envelope.relay_session is not None:
                await envelope.relay_session.close()
            await self._requests.refuse(envelope.outer, dialects.CANCELLED, "The request was cancelled.")


def _dialect_of(message: AcpMessage) -> Dialect:
    if message.method == G3.connect:
        return G3
    return G1 if "session_id" in message.params else G2


def _bare_id(server: str | None) -> str | None:
    return None if server is None else server.removeprefix("acp:")


def _has_version(params: Any) -> bool:
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get(META_VERSION), str)
