"""The `initialize` request: the client's description, and the server's answer or a cached one.

If no browser is connected, or it leaves before it answers, the answer is made from the cached catalogue, so that a
session can always be opened. Does not start the call and does not store sessions.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import orjson

from tabrelay.calls.calls import Call, Pending, Reply, Response
from tabrelay.calls.peer import Peer
from tabrelay.calls.principal import Principal
from tabrelay.errors import BadAnswer, BadRequest
from tabrelay.faces.mcp.jsonrpc import check_client_info
from tabrelay.faces.mcp.offline_answers import cached_legacy_result
from tabrelay.faces.mcp.session_ids import new_nonce
from tabrelay.faces.mcp.sessions import Session
from tabrelay.http.exchange import Exchange
from tabrelay.payloads.list_checks import read_server_description
from tabrelay.routing.switch import Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

MAX_ANSWER: Final = 1024 * 1024


class Initializing(Protocol):
    """The face that opens sessions."""

    switch: Switch

    def open_session(self, server: str, channel: str, caller: Caller, peer: Peer | None) -> Session:
        """`peer`: the one that has received `initialize`."""


class Initialization:
    """One `initialize` request, as the owner of its call."""

    def __init__(self, face: Initializing, server: str, channel: str, caller: Caller) -> None:
        self._face = face
        self._server = server
        self._channel = channel
        self._caller = caller
        self._peer: Peer | None = None  # the peer that has received the request

    def may_be_cached(self, method: str) -> bool:
        return True

    def cached_reply(self, call: Call) -> str:
        self._peer = None
        catalogue = self._face.switch.registry.cached_catalogue(self._server)
        params = {"protocolVersion": self._caller.version}
        result = cached_legacy_result(methods.INITIALIZE, params, self._server, catalogue, self._caller.capabilities)
        return orjson.dumps(jsonrpc.result_message(call.id, result)).decode()

    def sending(self, pending: Pending, peer: Peer) -> None:
        self._peer = peer

    def pinned(self, call: Call, tab: str | None) -> None: ...

    def ended(self, pending: Pending) -> None: ...

    async def reply(self, pending: Pending) -> Reply:
        return await self._face.switch.reply_to(self._server, pending)

    def open(self, reply: Reply) -> tuple[bytes, Session]:
        """Open the session. Returns the body of the response, and the session."""
        body = _checked(reply, self._server, self._caller.version)
        return body, self._face.open_session(self._server, self._channel, self._caller, self._peer)

    def response(self, pending: Pending, reply: Reply) -> Response:
        body, session = self.open(reply)
        return 200, session.json_headers, body

    @property
    def stream_headers(self) -> None: ...

    async def respond(self, exchange: Exchange, pending: Pending) -> None:
        status, headers, body = self.response(pending, await self.reply(pending))
        await exchange.reply(status, body, headers)


def _checked(reply: Reply, server: str, version: str) -> bytes:
    """The server's InitializeResult, with defaults for required members that are missing or of another type.

    Raises BadAnswer if it is larger than MAX_ANSWER.
    """
    if reply.error_code is not None:
        return reply.encoded()
    if len(reply.raw) > MAX_ANSWER:
        raise BadAnswer(f"The server's answer to initialize has more than {MAX_ANSWER:,} characters.")
    message = orjson.loads(reply.payload)
    required = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": server, "version": "0"}}
    result = required | read_server_description(message["result"])
    return orjson.dumps(jsonrpc.result_message(message["id"], result))


def read_caller(principal: Principal, message: dict[str, Any]) -> Caller:
    """The caller that an `initialize` request describes. Raises BadRequest."""
    if "id" not in message:
        raise BadRequest("initialize must be a request: it has no id.")
    params = message.get("params")
    if not isinstance(params, dict):
        raise BadRequest("initialize needs params.", code=jsonrpc.INVALID_PARAMS, reason="invalid_params")
    client, capabilities = params.get("clientInfo"), params.get("capabilities")
    check_client_info(orjson.dumps((client, capabilities)))
    return Caller(
        era=Era.LEGACY,
        version=eras.negotiate(params.get("protocolVersion")),
        principal=principal.id,
        client=client if isinstance(client, dict) else None,
        capabilities=capabilities if isinstance(capabilities, dict) else {},
        session=new_nonce(),
    )
