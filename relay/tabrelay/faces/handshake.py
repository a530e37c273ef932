"""The face for clients that begin with `initialize`: 2025-03-26, 2025-06-18 and 2025-11-25 over Streamable HTTP.

A session has one channel to the browser. It outlives the page and the relay: to a worker that does not know it, the
channel is opened as one whose handshake is done, and told what the client had set. Here hanging up is not cancelling;
`notifications/cancelled` is.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import orjson

from tabrelay.calls import LISTS, Call, Peer, Pending, Reply
from tabrelay.config import Settings
from tabrelay.drain import Drain
from tabrelay.errors import BadRequest, Busy, RelayError, ServerOffline
from tabrelay.faces.batch import answer_batch
from tabrelay.faces.diary import Diary
from tabrelay.faces.events import Stream, is_standing
from tabrelay.faces.exchange import Exchange, Header
from tabrelay.faces.message import check_message, is_request, request_id
from tabrelay.faces.negotiation import prefers_stream
from tabrelay.faces.recall import recall_legacy
from tabrelay.faces.resumable import Answers
from tabrelay.faces.seal import Seal, new_nonce
from tabrelay.faces.sessions import Session, Sessions
from tabrelay.policy import Principal
from tabrelay.switch import Switch
from tabserver.wire import eras, jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

VERSION_HEADER: Final = b"mcp-protocol-version"
SESSION_HEADER: Final = b"mcp-session-id"
LAST_EVENT_HEADER: Final = b"last-event-id"
# What a session is answered from memory when its browser leaves in the middle.
RECALLED: Final = frozenset(LISTS) | {"ping", "logging/setLevel"}
# What a session's channel must be told again when another worker takes over.
REMEMBERED: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


class Handshake:
    """Answers legacy POST, GET and DELETE."""

    def __init__(self, switch: Switch, settings: Settings, drain: Drain, seal: Seal) -> None:
        self._switch = switch
        self._drain = drain
        self._answers = Answers(settings.keepalive_s)
        self._ids = itertools.count(1)
        self._sessions = Sessions(
            settings,
            seal,
            Diary(settings.home / "sessions.json"),
            new_channel=switch.new_channel,
            on_end=self._ended,
        )

    def _ended(self, session: Session, why: str) -> None:
        for pending in list(session.running):
            self._switch.abandon(session.server, pending, why)
            pending.fail(BadRequest(f"The session ended: {why}.", status=404, reason="session_not_found"))
        self._switch.end(session.server, session.channel, why)

    def came_up(self, server: str) -> None:
        """A browser took the name: sessions whose state it must know tell it, before any of their calls gets there."""
        for session in self._sessions.of(server):
            if session.wants_notices or session.level or session.subscriptions:
                self._tell(session)

    def went(self, server: str, changes: frozenset[str]) -> None:
        """Of several browsers under this name one is gone for good: its sessions go on with another, where these lists
        are others."""
        for session in self._sessions.of(server):
            if session.told is not None and not session.told.is_up and self._home(session) == server:
                self._tell(session)
                session.hear_lists(changes)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        """The lists are others than clients were told: those who listen shall ask again."""
        for session in self._sessions.all():
            if self._home(session) == server:
                session.hear_lists(lists)

    def _home(self, session: Session) -> str:
        """The browser that the session stays with, or else its server."""
        return self._switch.registry.seat(session.server, session.channel)

    def dismiss(self, principals: set[str]) -> None:
        for session in self._sessions.all():
            if session.caller.principal in principals:
                self._sessions.end(session, "its token was revoked")

    def close(self) -> None:
        """The relay stops: GET streams end as if nothing more could ever come."""
        for session in self._sessions.all():
            if not session.is_pipe:
                session.streams.standing.finish()

    def flush(self) -> None:
        """Write down what a relay that comes after this one must know."""
        self._sessions.flush()

    def _tell(self, session: Session) -> None:
        """Open the channel at a browser that does not know it, as the client believes that it is."""
        peer = self._peer(session)
        if peer is None or not peer.is_up or session.told is peer:
            return
        session.told = peer
        if session.wants_notices:
            peer.listen(session.channel, session.caller, session.hear)
        wishes = [("logging/setLevel", {"level": session.level})] if session.level else []
        wishes += [("resources/subscribe", {"uri": uri}) for uri in session.subscriptions]
        for method, params in wishes:
            id = f"tabrelay-{next(self._ids)}"
            payload = orjson.dumps(jsonrpc.request(id, method, params)).decode()
            pending = Pending(Call(session.channel, id, method, payload, session.caller))
            pending.release()  # nobody reads the answer
            try:
                peer.start(pending)
            except RelayError:
                session.told = None
                return

    def _peer(self, session: Session) -> Peer | None:
        return self._switch.registry.holder(session.server, session.channel)

    # -- POST ---------------------------------------------------------------------------------------------------------

    async def post(self, exchange: Exchange, server: str, principal: Principal, message: Any) -> None:
        id = request_id(message)
        try:
            if isinstance(message, list):
                await self._batch(exchange, self._find(exchange, server, principal), message)
                return
            check_message(message)
            if message.get("method") == "initialize":
                await self._initialize(exchange, server, principal, message)
                return
            session = self._find(exchange, server, principal)
            if not is_request(message):
                self.pass_on(session, message)
                await exchange.reply(202)
                return
            await self._request(exchange, session, message)
        except RelayError as error:
            await exchange.error(error, id, server)

    async def _initialize(self, exchange: Exchange, server: str, principal: Principal, message: dict[str, Any]) -> None:
        if exchange.header(SESSION_HEADER) is not None:
            raise BadRequest("This session is initialized already.", reason="already_initialized")
        body, session = await self.initialize(server, principal, message)
        await exchange.json(200, body, _session_header(session))

    async def initialize(self, server: str, principal: Principal, message: dict[str, Any]) -> tuple[bytes, Session]:
        """Open a session; gives the body of the answer too."""
        if "id" not in message:
            raise BadRequest("initialize must be a request: it has no id.")
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
            session=new_nonce(),
        )
        self._sessions.check_room()
        channel = self._switch.new_channel()
        body, told = await self._greet(server, channel, caller, message)
        session = self._sessions.open(server, channel, caller)
        session.told = self._peer(session) if told else None
        return body, session

    async def _greet(self, server: str, channel: str, caller: Caller, message: dict[str, Any]) -> tuple[bytes, bool]:
        """The server's own answer when it is there, else what we remember of it."""
        is_told = True

        def remembered() -> str:
            nonlocal is_told
            is_told = False
            catalogue = self._switch.registry.recall(server)
            result = recall_legacy("initialize", message["params"], server, catalogue)
            return orjson.dumps(jsonrpc.result_message(message["id"], result)).decode()

        if self._is_there(server, channel):
            call = Call(channel, message["id"], "initialize", orjson.dumps(message).decode(), caller)
            with suppress(Busy, ServerOffline):  # that is no reason not to begin
                reply = await self._switch.ask(server, call, remembered)
                return reply.payload.encode(), is_told
        return remembered().encode(), False

    def pass_on(self, session: Session, message: dict[str, Any]) -> None:
        self._tell(session)
        self._switch.notify(session.server, session.channel, session.caller, orjson.dumps(message).decode())

    async def _request(self, exchange: Exchange, session: Session, message: dict[str, Any]) -> None:
        headers = _session_header(session)
        remembered = self.recall(session, message)
        if remembered is not None:
            await exchange.json(200, remembered, headers)
            return
        pending = await self.start(session, message)
        await self._answers.send(
            exchange,
            pending,
            session.streams,
            server=session.server,
            version=session.caller.version,
            headers=headers,
            prefers_stream=prefers_stream(exchange.accept),
        )

    def recall(self, session: Session, message: dict[str, Any]) -> bytes | None:
        """What can be answered without a browser, while there is none."""
        return None if self._is_there(session.server, session.channel) else self._recall(session, message)

    def _is_there(self, server: str, channel: str) -> bool:
        return self._switch.is_up(server, channel) and not self._drain.is_on

    def _recall(self, session: Session, message: dict[str, Any]) -> bytes | None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        catalogue = self._switch.registry.recall(self._home(session))
        result = recall_legacy(message["method"], params, session.server, catalogue)
        if result is None:
            return None
        self._remember(session, message["method"], params)
        return orjson.dumps(jsonrpc.result_message(message["id"], result))

    async def start(self, session: Session, message: dict[str, Any]) -> Pending:
        """Put a session's request on its way; what it sets is remembered when the server agrees."""
        self._drain.admit()
        self._tell(session)
        call = Call(session.channel, message["id"], message["method"], orjson.dumps(message).decode(), session.caller)

        def remembered() -> str | None:
            known = self._recall(session, message)
            return None if known is None else known.decode()

        rescue = remembered if call.method in RECALLED else None
        try:
            pending = await self._switch.start(session.server, call, rescue)
        except (Busy, ServerOffline):
            known = rescue() if rescue is not None else None
            if known is None:
                raise
            pending = Pending(call)
            pending.finish(Reply(known))
            return pending
        session.running.add(pending)
        ended = pending.on_done

        def done() -> None:
            session.running.discard(pending)
            if call.method in REMEMBERED and pending.is_success:
                params = message.get("params")
                self._remember(session, call.method, params if isinstance(params, dict) else {})
            if ended is not None:
                ended()

        pending.on_done = done
        pending.on_pin = lambda tab: self._pin(session, tab)
        if pending.is_done:
            session.running.discard(pending)
        return pending

    def _pin(self, session: Session, tab: str | None) -> None:
        session.caller = replace(session.caller, tab=tab)
        self._sessions.changed(session)

    def _remember(self, session: Session, method: str, params: dict[str, Any]) -> None:
        level, uri = params.get("level"), params.get("uri")
        if method == "logging/setLevel" and isinstance(level, str):
            session.level = level
        elif method == "resources/subscribe" and isinstance(uri, str):
            session.subscriptions[uri] = None
        elif method == "resources/unsubscribe" and isinstance(uri, str):
            session.subscriptions.pop(uri, None)
        else:
            return
        self._sessions.changed(session)

    async def _batch(self, exchange: Exchange, session: Session, messages: list[Any]) -> None:
        if session.caller.version != eras.BATCH_VERSION:
            raise BadRequest(f"Version {session.caller.version} has no batches: send one message per POST.")
        await answer_batch(
            exchange,
            messages,
            recall=lambda message: self.recall(session, message),
            start=lambda message: self.start(session, message),
            pass_on=lambda message: self.pass_on(session, message),
            deliver=session.deliver,
            server=session.server,
            headers=_session_header(session),
        )

    def _find(self, exchange: Exchange, server: str, principal: Principal) -> Session:
        versions = exchange.headers(VERSION_HEADER)
        if len(set(versions)) > 1:
            raise BadRequest("The header MCP-Protocol-Version is there more than once.")
        if versions and versions[0] not in eras.LEGACY_VERSIONS:
            raise BadRequest(f"Protocol version {versions[0]!r} is not supported here.", reason="unsupported_version")
        ids = exchange.headers(SESSION_HEADER)
        if len(ids) > 1:
            raise BadRequest("The header Mcp-Session-Id is there more than once.")
        return self._sessions.find(ids[0] if ids else None, server, principal.id)

    # -- GET and DELETE -----------------------------------------------------------------------------------------------

    async def get(self, exchange: Exchange, server: str, principal: Principal) -> None:
        """The session's own stream: what belongs to no request. Or, after a loss, the rest of any stream."""
        try:
            self._drain.admit()
            session = self._find(exchange, server, principal)
            stream, after = _wanted(session, exchange.header(LAST_EVENT_HEADER))
        except RelayError as error:
            await exchange.error(error, None, server)
            return
        if stream is session.streams.standing:
            self.listen(session)
        await self._answers.resume(exchange, stream, after, _session_header(session))

    def listen(self, session: Session) -> None:
        """From now on what belongs to no request is wanted."""
        session.wants_notices = True
        peer = self._peer(session)
        if session.told is peer and peer is not None and peer.is_up:
            peer.listen(session.channel, session.caller, session.hear)
        self._tell(session)

    def leave(self, session: Session) -> None:
        """The stream that was the session has closed."""
        self._sessions.release(session, "the client left")

    async def delete(self, exchange: Exchange, server: str, principal: Principal) -> None:
        try:
            session = self._find(exchange, server, principal)
        except RelayError as error:
            await exchange.error(error, None, server)
            return
        self._sessions.end(session, "the client ended it")
        await exchange.reply(204)


def _wanted(session: Session, last_event: str | None) -> tuple[Stream, int]:
    standing = session.streams.standing
    known = session.streams.find(last_event) if last_event is not None else None
    if known is not None:
        return known
    if last_event is not None and not is_standing(last_event):
        text = "This stream can't be taken up again: it is too old, or the relay was restarted."
        raise BadRequest(text, reason="unknown_event")
    if standing.reader is not None:
        raise BadRequest("This session has a GET stream already.", status=409, reason="conflict")
    return standing, standing.sent


def _session_header(session: Session) -> tuple[Header, ...]:
    return ((SESSION_HEADER, session.id.encode()),)
