"""The face for clients that begin with `initialize`: 2025-03-26, 2025-06-18 and 2025-11-25 over Streamable HTTP.

A session has one channel to the browser. It outlives the page and the relay: to a worker that does not know it, the
channel is opened as one whose handshake is done, and told what the client had set. Here hanging up is not cancelling;
`notifications/cancelled` is.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from tabrelay import mcp_headers
from tabrelay.calls.calls import LISTS, Call, Peer, Pending, Reply
from tabrelay.calls.principal import Principal
from tabrelay.calls.started import Again, StartedCall
from tabrelay.calls.trace_context import Traces
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, Busy, RelayError, ServerOffline
from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.mcp.event_store import EventStream, is_get_event
from tabrelay.faces.mcp.jsonrpc import NAMED_BY, check_message, is_request, name_of, request_id
from tabrelay.faces.mcp.legacy_batch import answer_batch
from tabrelay.faces.mcp.legacy_initialize import LegacyInitialize, read_caller
from tabrelay.faces.mcp.offline_answers import cached_legacy_result
from tabrelay.faces.mcp.remote_streams import TOO_OLD, StreamReader, StreamServer
from tabrelay.faces.mcp.resumable_response import STREAM_AFTER_S, ResumableResponses
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.faces.mcp.session_replay import REPLAYED_METHODS, SessionReplay
from tabrelay.faces.mcp.session_store import SessionStore, digest
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabrelay.http.accept import prefers_stream
from tabrelay.http.exchange import JSON_TYPE, Exchange, Header
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.drain import Drain
from tabrelay.routing.switch import NOTED, Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.frames import META_ACP

# What a session is answered from memory when its browser leaves in the middle.
ANSWERED_OFFLINE: Final = frozenset(LISTS) | {methods.PING, methods.LOGGING_SET_LEVEL}


class LegacyFace:
    """Answers legacy POST, GET and DELETE."""

    def __init__(
        self, switch: Switch, settings: Settings, drain: Drain, session_ids: SessionIdCodec, traces: Traces
    ) -> None:
        self._switch = switch
        self._traces = traces
        self._drain = drain
        self._initializer = LegacyInitialize(switch, traces)
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
        self.session_replay = SessionReplay(switch, self._sessions)
        self._stream_reader: StreamReader | None = None

    def _ended(self, session: Session, why: str) -> None:
        for pending in list(session.running):
            self._switch.abandon(session.server, pending, why)
            pending.fail(BadRequest(f"The session ended: {why}.", status=404, reason="session_not_found"))
        self._switch.end(session.server, session.channel, why)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def end_sessions(self, principals: set[str]) -> None:
        for session in self._sessions.all():
            if session.caller.principal in principals:
                self._sessions.end(session, "its token was revoked")

    def share(self, bus_sync: BusSync) -> None:
        """A session's client may reach any of several relays, with any of its messages."""
        self._bus_sync = bus_sync
        self._sessions.node = bus_sync.cluster.id
        self._stream_reader = StreamReader(bus_sync.cluster)
        StreamServer(bus_sync.cluster, self._find_for_node, self._drain.exchanges)
        self._sessions.share(bus_sync, self.session_replay.changed_at_node)
        bus_sync.on_message(self._receive_from_node)

    def _find_for_node(self, key: str, server: str, principal: str) -> Session | None:
        """A session that a client reached another relay with. That one has checked whose it is; and so do we."""
        session = self._sessions.find_by_key(key)
        is_theirs = session is not None and (session.server, session.caller.principal) == (server, principal)
        # defence: somebody else's stream at another relay
        return session if is_theirs else None

    def _receive_from_node(self, key: str, message: dict[str, Any]) -> None:
        session = self._sessions.find_by_key(key)
        if session is not None:
            payload = orjson.dumps(message).decode()
            self._switch.notify(session.server, session.channel, session.caller, payload)

    def close(self) -> None:
        """The relay stops: GET streams end as if nothing more could ever come."""
        if self._stream_reader is not None:
            self._stream_reader.close()
        for session in self._sessions.all():
            if not session.is_http_sse:
                session.streams.get_stream.finish()

    def flush(self) -> None:
        """Write down what a relay that comes after this one must know."""
        self._sessions.flush()

    # -- POST ---------------------------------------------------------------------------------------------------------

    async def post(self, exchange: Exchange, server: str, principal: Principal, message: Any) -> None:
        id = request_id(message)
        try:
            if isinstance(message, list):
                await self._batch(exchange, self._find(exchange, server, principal), message)
                return
            check_message(message)
            if message.get("method") == methods.INITIALIZE:
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
        if exchange.header(mcp_headers.RAW_SESSION_ID) is not None:
            raise BadRequest("This session is initialized already.", reason="already_initialized")
        body, session = await self.initialize(exchange, server, principal, message)
        await exchange.json(200, body, _session_header(session))

    async def initialize(
        self, exchange: Exchange, server: str, principal: Principal, message: dict[str, Any]
    ) -> tuple[bytes, Session]:
        """Open a session; gives the body of the answer too."""
        caller = read_caller(principal, message)
        self._sessions.make_room(principal.id)
        channel = self._switch.new_channel()
        is_there = self._is_there(server, channel)
        body, is_sent = await self._initializer.initialize(
            exchange, server, channel, caller, message, is_there=is_there
        )
        session = self._sessions.open(server, channel, caller)
        session.replayed_to = self.session_replay.peer(session) if is_sent else None
        return body, session

    def pass_on(self, session: Session, message: dict[str, Any]) -> None:
        self.session_replay.send(session)
        self._switch.notify(session.server, session.channel, session.caller, orjson.dumps(message).decode())
        if self._bus_sync is not None and message.get("method") != methods.INITIALIZED:
            self._bus_sync.broadcast(digest(session.id), message)

    async def _request(self, exchange: Exchange, session: Session, message: dict[str, Any]) -> None:
        cached = self.offline_answer(session, message)
        if cached is not None:
            await exchange.json(200, cached, _session_header(session))
            return
        await self._answer(exchange, session, await self.start(exchange, session, message))

    async def _answer(
        self, exchange: Exchange, session: Session, pending: Pending, stream_after_s: float = STREAM_AFTER_S
    ) -> None:
        await self._responses.send(
            exchange,
            pending,
            session.streams,
            server=session.server,
            version=session.caller.version,
            headers=_session_header(session),
            prefers_stream=prefers_stream(exchange.accept),
            stream_after_s=stream_after_s,
        )

    def begin(
        self, request: RequestHeaders, server: str, principal: Principal, message: dict[str, Any], *, is_plain: bool
    ) -> StartedCall | None:
        """Start a request that needs no wait; None, and nothing was done, if it needs one. Raises what is wrong.

        `is_plain`: its header says nothing that its message has to be told.
        """
        check_message(message)
        session = self._find(request, server, principal)
        if prefers_stream(request.accept) or not self._is_there(server, session.channel):
            return None
        call = self._call(request, session, message, {})
        headers = (JSON_TYPE, *_session_header(session))
        again = partial(self._begin_again, session.id, headers) if is_plain else None
        return self._begin(session, principal, call, headers, again)

    def _begin_again(
        self, id: str, headers: tuple[Header, ...], server: str, principal: Principal, message: Any
    ) -> StartedCall | None:
        """The same for a request with the header of one that was begun in the session with this id."""
        method = message.get("method") if type(message) is dict else None
        # defence: a call like the one before it: a list
        if type(method) is not str or method not in NOTED or message.get("jsonrpc") != "2.0":
            return None
        number = message.get("id")
        if type(number) is not int and (type(number) is not str or len(number) > jsonrpc.MAX_ID):
            return None
        params = message.get("params")
        if type(params) is not dict:
            return None
        meta, name = params.get("_meta"), params.get(NAMED_BY[method])
        if type(meta) is dict:
            # defence: a call like the one before it: a forged session, legacy
            if eras.META_VERSION in meta or META_ACP in meta:
                return None  # of the other era, or with a word that only the relay may say
            if (token := meta.get("progressToken")) is not None and not jsonrpc.is_request_id(token):
                return None
        elif "_meta" in params:
            return None
        session = self._sessions.find(id, server, principal.id)
        payload = orjson.dumps(message).decode()
        called = name if type(name) is str else None
        call = Call(session.channel, number, method, payload, session.caller, None, called)
        return self._begin(session, principal, call, headers)

    def _begin(
        self,
        session: Session,
        principal: Principal,
        call: Call,
        headers: tuple[Header, ...],
        again: Again | None = None,
    ) -> StartedCall | None:
        began = time.monotonic()
        pending = self._switch.start_now(session.server, call, lambda peer: self._replay_to(session, peer))
        if pending is None:
            return None
        self._track(session, None, pending)

        async def carry_on(exchange: Exchange) -> None:
            try:
                await self._answer(exchange, session, pending, STREAM_AFTER_S - (time.monotonic() - began))
            except RelayError as error:
                await exchange.error(error, pending.call.id, session.server)

        return StartedCall(pending, principal, headers=headers, status_of=_ok, carry_on=carry_on, again=again)

    def _replay_to(self, session: Session, peer: Peer) -> None:
        """A call of the session is about to go there."""
        if session.replayed_to is not peer:
            self.session_replay.send(session)

    def offline_answer(self, session: Session, message: dict[str, Any]) -> bytes | None:
        """What can be answered without a browser, while there is none."""
        return None if self._is_there(session.server, session.channel) else self._cached_answer(session, message)

    def _is_there(self, server: str, channel: str) -> bool:
        return self._switch.is_up(server, channel) and not self._drain.is_on

    def _cached_answer(self, session: Session, message: dict[str, Any]) -> bytes | None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        catalogue = self._switch.registry.recall(self.session_replay.address(session))
        result = cached_legacy_result(message["method"], params, session.server, catalogue)
        if result is None:
            return None
        self.session_replay.record(session, message["method"], params)
        return orjson.dumps(jsonrpc.result_message(message["id"], result))

    async def start(self, exchange: Exchange, session: Session, message: dict[str, Any]) -> Pending:
        """Put a session's request on its way; what it sets is remembered when the server agrees."""
        self._drain.admit()
        self.session_replay.send(session)
        call = self._call(exchange, session, message, exchange.scope)
        summary = _summary(message)
        # defence: values of a call that waits
        message["params"] = None  # it goes on as text: a great many values must not wait for the answer too

        def cached() -> str | None:
            known = self._cached_answer(session, summary)
            return None if known is None else known.decode()

        fallback = cached if call.method in ANSWERED_OFFLINE else None
        try:
            pending = await self._switch.start(session.server, call, fallback)
        except (Busy, ServerOffline):
            known = fallback() if fallback is not None else None
            if known is None:
                raise
            pending = Pending(call)
            pending.finish(Reply(known))
            return pending
        self._track(session, summary, pending)
        return pending

    def _call(self, request: RequestHeaders, session: Session, message: dict[str, Any], scope: Any) -> Call:
        trace = self._traces.begin(scope, request.header, session.server, message)
        payload = orjson.dumps(message).decode()
        about = trace, name_of(message)
        return Call(session.channel, message["id"], message["method"], payload, session.caller, *about)

    def _track(self, session: Session, summary: dict[str, Any] | None, pending: Pending) -> None:
        """`gist`: of a request that sets something."""
        if pending.is_done:
            return
        session.running.add(pending)
        ended = pending.on_done

        def done(pending: Pending) -> None:
            session.running.discard(pending)
            if summary is not None and summary["method"] in REPLAYED_METHODS and pending.is_success:
                self.session_replay.record(session, summary["method"], summary["params"])
            if ended is not None:
                ended(pending)

        pending.on_done = done
        pending.on_pin = lambda tab: self._pin(session, tab)

    def _pin(self, session: Session, tab: str | None) -> None:
        session.caller = replace(session.caller, tab=tab)
        self._sessions.changed(session)

    async def _batch(self, exchange: Exchange, session: Session, messages: list[Any]) -> None:
        if session.caller.version != eras.BATCH_VERSION:
            raise BadRequest(f"Version {session.caller.version} has no batches: send one message per POST.")
        await answer_batch(
            exchange,
            messages,
            offline_answer=lambda message: self.offline_answer(session, message),
            start=lambda message: self.start(exchange, session, message),
            pass_on=lambda message: self.pass_on(session, message),
            deliver=session.deliver,
            server=session.server,
            headers=_session_header(session),
        )

    def _find(self, request: RequestHeaders, server: str, principal: Principal) -> Session:
        versions = request.headers(mcp_headers.RAW_PROTOCOL_VERSION)
        if len(set(versions)) > 1:
            raise BadRequest("The header MCP-Protocol-Version is there more than once.")
        if versions and versions[0] not in eras.LEGACY_VERSIONS:
            raise BadRequest(f"Protocol version {versions[0]!r} is not supported here.", reason="unsupported_version")
        ids = request.headers(mcp_headers.RAW_SESSION_ID)
        if len(ids) > 1:
            raise BadRequest("The header Mcp-Session-Id is there more than once.")
        return self._sessions.find(ids[0] if ids else None, server, principal.id)

    # -- GET and DELETE -----------------------------------------------------------------------------------------------

    async def get(self, exchange: Exchange, server: str, principal: Principal) -> None:
        """The session's own stream: what belongs to no request. Or, after a loss, the rest of any stream."""
        try:
            self._drain.admit()
            session = self._find(exchange, server, principal)
            last_event = exchange.header(mcp_headers.RAW_LAST_EVENT_ID)
            if await self._resume_remote(exchange, session, last_event):
                return
            stream, after = _wanted(session, last_event)
        except RelayError as error:
            await exchange.error(error, None, server)
            return
        if stream is session.streams.get_stream:
            self.session_replay.listen(session)
        await self._responses.resume(exchange, stream, after, _session_header(session))

    async def _resume_remote(self, exchange: Exchange, session: Session, last_event: str | None) -> bool:
        """Go on with a stream that another relay has; False if none has it."""
        if self._stream_reader is None or last_event is None or self._stream_reader.remote_node(last_event) is None:
            return False
        headers = _session_header(session)
        return await self._stream_reader.resume(exchange, session, digest(session.id), last_event, headers)

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


def _wanted(session: Session, last_event: str | None) -> tuple[EventStream, int]:
    standing = session.streams.get_stream
    known = session.streams.find(last_event) if last_event is not None else None
    if known is not None:
        return known
    if last_event is not None and not is_get_event(last_event):
        raise BadRequest(TOO_OLD, reason="unknown_event")
    if standing.reader is not None:
        raise BadRequest("This session has a GET stream already.", status=409, reason="conflict")
    return standing, standing.sent


def _summary(message: dict[str, Any]) -> dict[str, Any]:
    """What must be known of a request when its answer comes."""
    params = message.get("params")
    given = params if isinstance(params, dict) else {}
    kept = {key: given[key] for key in ("level", "uri") if isinstance(given.get(key), str)}
    return {"id": message["id"], "method": message["method"], "params": kept}


def _session_header(session: Session) -> tuple[Header, ...]:
    return ((mcp_headers.RAW_SESSION_ID, session.id.encode()),)


def _ok(reply: Reply) -> int:
    """Here an answer that is an error of the server's is an answer all the same."""
    return 200
