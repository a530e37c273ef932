"""Streamable HTTP for protocol versions with `initialize`: 2025-03-26, 2025-06-18 and 2025-11-25.

Handles POST, GET and DELETE of sessions. A session has one channel to the browser and outlives the page and the relay
process: at a worker that does not know it, the channel is opened as already initialized and its state is replayed.
Closing the connection does not cancel a call; `notifications/cancelled` does. Calls are started in `legacy_calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tabrelay import mcp_headers
from tabrelay.calls.calls import Call, Pending, Reply
from tabrelay.calls.peer import Peer
from tabrelay.calls.principal import Principal
from tabrelay.calls.trace_context import Traces
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, RelayError
from tabrelay.faces.mcp.event_store import TOO_OLD, EventStream, is_get_event
from tabrelay.faces.mcp.jsonrpc import check_message
from tabrelay.faces.mcp.legacy_batch import answer_batch
from tabrelay.faces.mcp.legacy_calls import ANSWERED_OFFLINE, SessionCalls, SessionHeaders
from tabrelay.faces.mcp.legacy_initialize import Initialization, read_caller
from tabrelay.faces.mcp.legacy_sessionless import SessionlessCalls
from tabrelay.faces.mcp.outcomes import Answer, Deferred, Outcome
from tabrelay.faces.mcp.resumable_response import ResumableResponses
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.faces.mcp.session_replay import SessionReplay
from tabrelay.faces.mcp.session_routes import SessionRoutes
from tabrelay.faces.mcp.session_store import SessionStore, digest
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabrelay.http.accept import prefers_stream
from tabrelay.http.exchange import Exchange
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.drain import Drain, unavailable
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.switch import Switch
from tabrelay.routing.waiting_call import WaitingCall
from tabserver.wire import eras, methods
from tabserver.wire.frames import Caller

if TYPE_CHECKING:
    from tabrelay.faces.mcp.bus_sync import BusSync
    from tabrelay.faces.mcp.remote_streams import StreamReader


class LegacyFace:
    """Handles legacy POST, GET and DELETE requests. One per relay."""

    def __init__(
        self, switch: Switch, settings: Settings, drain: Drain, session_ids: SessionIdCodec, traces: Traces
    ) -> None:
        self.switch = switch
        self._drain = drain
        self._traces = traces
        self._responses = ResumableResponses(settings.keepalive_s)
        self._bus_sync: BusSync | None = None
        self._sessions = Sessions(
            settings,
            session_ids,
            SessionStore(
                settings.home / "sessions.json",
                max_records=settings.kept_sessions,
                max_characters=settings.max_subscribed,
            ),
            new_channel=switch.new_channel,
            on_end=self._ended,
        )
        self.session_routes = SessionRoutes(self._sessions)
        self.session_replay = SessionReplay(switch, self._sessions)
        self.calls = SessionCalls(switch, drain, traces, self._sessions, self.session_replay, self._responses)
        self._sessionless = SessionlessCalls(switch, drain, traces)
        self._stream_reader: StreamReader | None = None

    def _ended(self, session: Session, why: str) -> None:
        for pending in list(session.running):
            self.switch.abandon(session.server, pending, why)
            pending.end(BadRequest(f"The session ended: {why}.", status=404, reason="session_not_found"))
        self.switch.end(session.server, session.channel, why)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def end_sessions(self, principals: set[str]) -> None:
        for session in self._sessions.all():
            if session.caller.principal in principals:
                self._sessions.end(session, "its token was revoked")

    def share(self, bus_sync: BusSync) -> None:
        """This relay is one of several: a client may send any message of a session to any of them."""
        from tabrelay.faces.mcp.remote_streams import StreamReader, StreamServer

        self._bus_sync = bus_sync
        self._sessions.node = bus_sync.cluster.id
        self._stream_reader = StreamReader(bus_sync.cluster)
        StreamServer(bus_sync.cluster, self._find_for_node, self._drain.exchanges)
        self._sessions.share(bus_sync, self.session_replay.changed_at_node)
        bus_sync.on_message(self._receive_from_node)

    def _find_for_node(self, key: str, server: str, principal: str) -> Session | None:
        """A session that a client used at another relay. That relay has checked its owner; this one checks again."""
        session = self._sessions.find_by_key(key)
        is_theirs = session is not None and (session.server, session.caller.principal) == (server, principal)
        # defence: another client's stream at another relay
        return session if is_theirs else None

    def _receive_from_node(self, key: str, message: dict[str, Any]) -> None:
        session = self._sessions.find_by_key(key)
        if session is not None:
            payload = orjson.dumps(message).decode()
            self.switch.notify(session.server, session.channel, session.caller, payload)

    def close(self) -> None:
        """The relay stops: end the GET streams."""
        if self._stream_reader is not None:
            self._stream_reader.close()
        for session in self._sessions.all():
            if not session.is_http_sse:
                session.streams.get_stream.finish()

    def flush(self) -> None:
        """Save the sessions for the next relay process."""
        self._sessions.flush()

    # -- POST ----------------------------------------------------------------------------------------------------------

    def decide(
        self, request: RequestHeaders, entry: ServerEntry, principal: Principal, message: Any, scope: Any
    ) -> Outcome:
        """What becomes of a message. Raises RelayError."""
        if type(message) is list:
            session = self._find(request, entry.name, principal)
            return Deferred(lambda exchange: self._batch(exchange, session, message))
        check_message(message)
        method = message.get("method")
        if method == methods.INITIALIZE:
            if mcp_headers.RAW_SESSION_ID in request.first:
                raise BadRequest("This session is already initialized.", reason="already_initialized")
            return self.initialize(request, entry, principal, message, scope)[0]
        headers = request.verified
        if type(headers) is not SessionHeaders:
            headers = self._headers(request)
        if headers.id is None:
            return self._sessionless.decide(request, entry, principal, message, scope)
        session = self._sessions.find(headers.id, entry.name, principal.id)
        if method is None or "id" not in message:
            self.pass_on(session, message)
            return Answer(202)
        if method in ANSWERED_OFFLINE:
            cached = self.calls.offline_answer(session, message)
            if cached is not None:
                return Answer(200, cached, session.json_headers)
        started = self.calls.start(request, entry, session, message, scope)
        if not headers.prefers_stream:
            return started
        return Deferred(lambda exchange: self._stream(exchange, session, started), message["id"])

    async def _stream(self, exchange: Exchange, session: Session, started: Pending | WaitingCall) -> None:
        await self.calls.respond(exchange, session, await started.started())

    def initialize(
        self, request: RequestHeaders, entry: ServerEntry, principal: Principal, message: dict[str, Any], scope: Any
    ) -> tuple[Pending | WaitingCall, Initialization]:
        """Start `initialize`. Its owner opens the session when it has the reply."""
        server, caller = entry.name, read_caller(principal, message)
        self._sessions.make_room(principal.id)
        channel = self.switch.new_channel()
        owner = Initialization(self, server, channel, caller)
        is_there = self.calls.is_available(server, channel)
        trace = self._traces.begin(scope, request.first, server, message) if is_there else None
        call = Call(channel, message["id"], methods.INITIALIZE, orjson.dumps(message).decode(), caller, trace)
        message["params"] = None  # it goes on as text, and its values must not stay in memory during the call
        if is_there:
            return self.switch.start(entry, call, owner), owner
        pending = Pending(call, owner)
        pending.end(Reply(owner.cached_reply(call)))
        return pending, owner

    def open_session(self, server: str, channel: str, caller: Caller, peer: Peer | None) -> Session:
        session = self._sessions.open(server, channel, caller)
        session.replayed_to = peer
        return session

    def pass_on(self, session: Session, message: dict[str, Any]) -> None:
        self.session_replay.send(session)
        self.switch.notify(session.server, session.channel, session.caller, orjson.dumps(message).decode())
        if self._bus_sync is not None and message.get("method") != methods.INITIALIZED:
            self._bus_sync.broadcast(digest(session.id), message)

    async def _batch(self, exchange: Exchange, session: Session, messages: list[Any]) -> None:
        if session.caller.version != eras.BATCH_VERSION:
            raise BadRequest(f"Version {session.caller.version} has no batches: send one message per POST.")
        await answer_batch(
            exchange,
            messages,
            offline_answer=lambda message: self.calls.offline_answer(session, message),
            start=lambda message: self.calls.start(
                exchange, self.entry(session.server), session, message, exchange.scope
            ).started(),
            pass_on=lambda message: self.pass_on(session, message),
            deliver=session.deliver,
            server=session.server,
            headers=session.headers,
        )

    def _find(self, request: RequestHeaders, server: str, principal: Principal) -> Session:
        return self._sessions.find(self._headers(request).id, server, principal.id)

    def _headers(self, request: RequestHeaders) -> SessionHeaders:
        known = request.verified
        if type(known) is not SessionHeaders:
            known = request.verified = SessionHeaders(_session_id(request), prefers_stream(request.accept))
        return known

    def entry(self, server: str) -> ServerEntry:
        return self.switch.registry.find(server)

    # -- GET and DELETE ------------------------------------------------------------------------------------------------

    async def get(self, exchange: Exchange, server: str, principal: Principal) -> None:
        """The session's GET stream, for messages that belong to no request; or, with Last-Event-ID, the rest of any
        stream."""
        try:
            if self._drain.is_on:
                raise unavailable()
            session = self._find(exchange, server, principal)
            last_event = exchange.first.get(mcp_headers.RAW_LAST_EVENT_ID)
            if await self._resume_remote(exchange, session, last_event):
                return
            stream, after = _wanted(session, last_event)
        except RelayError as error:
            await exchange.error(error, None, server)
            return
        if stream is session.streams.get_stream:
            self.session_replay.listen(session)
        await self._responses.resume(exchange, stream, after, session.headers)

    async def _resume_remote(self, exchange: Exchange, session: Session, last_event: str | None) -> bool:
        """Resume a stream that another relay holds; False if none does."""
        if self._stream_reader is None or last_event is None or self._stream_reader.remote_node(last_event) is None:
            return False
        headers = session.headers
        return await self._stream_reader.resume(exchange, session, digest(session.id), last_event, headers)

    def leave(self, session: Session) -> None:
        """The stream of an HTTP+SSE session has closed."""
        self._sessions.release(session, "the client left")

    async def delete(self, exchange: Exchange, server: str, principal: Principal) -> None:
        try:
            session = self._find(exchange, server, principal)
        except RelayError as error:
            await exchange.error(error, None, server)
            return
        self._sessions.end(session, "the client ended it")
        await exchange.reply(204)


def _session_id(request: RequestHeaders) -> str | None:
    versions = request.all.get(mcp_headers.RAW_PROTOCOL_VERSION)
    if versions and len(set(versions)) > 1:
        raise BadRequest("The header MCP-Protocol-Version was sent more than once.")
    if versions and versions[0] not in eras.LEGACY_VERSIONS:
        raise BadRequest(f"Protocol version {versions[0]!r} is not supported here.", reason="unsupported_version")
    ids = request.all.get(mcp_headers.RAW_SESSION_ID, [])
    if len(ids) > 1:
        raise BadRequest("The header Mcp-Session-Id was sent more than once.")
    return ids[0] if ids else None


def _wanted(session: Session, last_event: str | None) -> tuple[EventStream, int]:
    get_stream = session.streams.get_stream
    known = session.streams.find(last_event) if last_event is not None else None
    if known is not None:
        return known
    if last_event is not None and not is_get_event(last_event):
        raise BadRequest(TOO_OLD, reason="unknown_event")
    if get_stream.reader is not None:
        raise BadRequest("This session already has a GET stream.", status=409, reason="conflict")
    return get_stream, get_stream.sent
