"""The face for clients that begin with `initialize`: 2025-03-26, 2025-06-18 and 2025-11-25 over Streamable HTTP.

A session has one channel to the browser. It outlives the page: when a new worker comes, its channel is opened again as
one whose handshake is done. Here hanging up is not cancelling; `notifications/cancelled` is.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import orjson

from tabrelay.calls import Call, Reply
from tabrelay.config import Settings
from tabrelay.drain import Drain
from tabrelay.errors import BadRequest, RelayError
from tabrelay.faces.exchange import Exchange, Header
from tabrelay.faces.recall import recall_legacy
from tabrelay.faces.sessions import Session, Sessions
from tabrelay.faces.stream import answer
from tabrelay.policy import Principal
from tabrelay.switch import Switch
from tabserver.wire import eras, jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

VERSION_HEADER: Final = b"mcp-protocol-version"
SESSION_HEADER: Final = b"mcp-session-id"
PATIENCE_S: Final = 0.5


class Handshake:
    """Answers legacy POST, GET and DELETE."""

    def __init__(self, switch: Switch, settings: Settings, drain: Drain) -> None:
        self._switch = switch
        self._drain = drain
        self._keepalive_s = settings.keepalive_s
        self._sessions = Sessions(settings, self._ended)

    def _ended(self, session: Session, why: str) -> None:
        peer = self._switch.registry.holder(session.server)
        if peer is not None:
            peer.end(session.channel, why)

    def came_up(self, server: str) -> None:
        """A browser took the name: open the channels of sessions that listen, so that notices reach them again."""
        for session in self._sessions.of(server):
            if session.is_listening:
                self._listen(session)

    def close(self) -> None:
        """The relay stops: GET streams end as if nothing more could ever come."""
        for session in self._sessions.all():
            session.arrived.set()

    def _listen(self, session: Session) -> None:
        peer = self._switch.registry.holder(session.server)
        if peer is not None and peer.is_up:
            peer.listen(session.channel, session.caller, session.deliver)

    # -- POST ---------------------------------------------------------------------------------------------------------

    async def post(self, exchange: Exchange, server: str, principal: Principal, message: Any) -> None:
        id: jsonrpc.RequestId | None = None
        try:
            if isinstance(message, list):
                raise BadRequest("Batches are not part of this protocol version: send one message per POST.")
            if not isinstance(message, dict):
                raise BadRequest("The body must be one JSON-RPC message: an object.")
            method = message.get("method")
            if "id" in message and method is not None:
                if not jsonrpc.is_request_id(message["id"]):
                    raise BadRequest("A request's id must be a string or an integer.")
                id = message["id"]
                self._drain.admit()
            if method == "initialize":
                await self._initialize(exchange, server, principal, message)
                return
            session = self._find(exchange, server, principal)
            if id is None or method is None:
                self._switch.notify(server, session.channel, session.caller, orjson.dumps(message).decode())
                await exchange.reply(202)
                return
            if not isinstance(method, str):
                raise BadRequest("A request's method must be a string.")
            await self._request(exchange, session, message)
        except RelayError as error:
            await exchange.error(error, id, server)

    async def _initialize(self, exchange: Exchange, server: str, principal: Principal, message: dict[str, Any]) -> None:
        if "id" not in message:
            raise BadRequest("initialize must be a request: it has no id.")
        if exchange.header(SESSION_HEADER) is not None:
            raise BadRequest("This session is initialized already.", reason="already_initialized")
        params = message.get("params")
        if not isinstance(params, dict):
            raise BadRequest("initialize needs params.", code=jsonrpc.INVALID_PARAMS, reason="invalid_params")
        client, capabilities = params.get("clientInfo"), params.get("capabilities")
        caller = Caller(
            era=Era.LEGACY,
            version=eras.negotiate(params.get("protocolVersion")),
            principal=principal.id,
            client=client if isinstance(client, dict) else None,
            capabilities=capabilities if isinstance(capabilities, dict) else {},
        )
        channel = self._switch.new_channel()
        body = await self._handshake(server, channel, caller, message)
        session = self._sessions.open(server, channel, replace(caller, ready=True))
        await exchange.json(200, body, _session_header(session))

    async def _handshake(self, server: str, channel: str, caller: Caller, message: dict[str, Any]) -> bytes:
        """The server's own answer when it is there, else what we remember of it."""
        if self._switch.is_up(server):
            call = Call(channel, message["id"], "initialize", orjson.dumps(message).decode(), caller)
            reply: Reply = await self._switch.ask(server, call)
            return reply.payload.encode()
        entry = self._switch.registry.find(server)
        result = recall_legacy("initialize", message["params"], server, entry.catalogue)
        return orjson.dumps(jsonrpc.result_message(message["id"], result))

    async def _request(self, exchange: Exchange, session: Session, message: dict[str, Any]) -> None:
        server, id, method = session.server, message["id"], message["method"]
        headers = _session_header(session)
        if not self._switch.is_up(server):
            params = message.get("params")
            catalogue = self._switch.registry.find(server).catalogue
            result = recall_legacy(method, params if isinstance(params, dict) else {}, server, catalogue)
            if result is not None:
                await exchange.json(200, orjson.dumps(jsonrpc.result_message(id, result)), headers)
                return
        call = Call(session.channel, id, method, orjson.dumps(message).decode(), session.caller)
        pending = await self._switch.start(server, call)
        await answer(
            exchange,
            pending,
            server,
            patience_s=PATIENCE_S,
            keepalive_s=self._keepalive_s,
            status_of=lambda _reply: 200,
            on_gone=lambda: None,
            headers=headers,
        )

    def _find(self, exchange: Exchange, server: str, principal: Principal) -> Session:
        version = exchange.header(VERSION_HEADER)
        if version is not None and version not in eras.LEGACY_VERSIONS:
            raise BadRequest(f"Protocol version {version!r} is not supported here.", reason="unsupported_version")
        return self._sessions.find(exchange.header(SESSION_HEADER), server, principal.id)

    # -- GET and DELETE -----------------------------------------------------------------------------------------------

    async def get(self, exchange: Exchange, server: str, principal: Principal) -> None:
        """The session's own stream: notices that belong to no request."""
        try:
            session = self._find(exchange, server, principal)
            if session.is_listening:
                raise BadRequest("This session has a GET stream already.", status=409, reason="conflict")
        except RelayError as error:
            await exchange.error(error, None, server)
            return
        session.is_listening = True
        self._listen(session)
        exchange.watch(session.arrived.set)
        try:
            await exchange.start_stream(_session_header(session))
            # A comment at once: some HTTP stacks hand the response to the client only with its first byte.
            await exchange.comment()
            while not exchange.is_gone and not self._drain.is_on:
                try:
                    async with asyncio.timeout(self._keepalive_s):
                        await session.arrived.wait()
                except TimeoutError:
                    await exchange.comment()
                session.arrived.clear()
                while session.unread and not exchange.is_gone:
                    await exchange.event(session.unread.popleft().payload.encode())
        finally:
            session.is_listening = False
            exchange.unwatch()
        await exchange.end_stream()

    async def delete(self, exchange: Exchange, server: str, principal: Principal) -> None:
        try:
            session = self._find(exchange, server, principal)
        except RelayError as error:
            await exchange.error(error, None, server)
            return
        self._sessions.end(session, "the client ended the session")
        await exchange.reply(204)


def _session_header(session: Session) -> tuple[Header, ...]:
    return ((SESSION_HEADER, session.id.encode()),)
