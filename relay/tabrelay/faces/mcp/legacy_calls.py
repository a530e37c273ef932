"""Calls in a legacy session: starting a request on the session's channel, tracking it, and answering it over HTTP.

The regular path (`start`) may wait for a browser; the fast path (`begin`) only starts what needs no wait. Both share
the functions that build, track and answer a call. What a request sets (log level, subscription) is recorded only after
the server accepted it. Opening and finding sessions is done in `legacy`.
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
from tabrelay.calls.started import RepeatCall, StartedCall
from tabrelay.calls.trace_context import Traces
from tabrelay.errors import Busy, RelayError, ServerOffline
from tabrelay.faces.mcp.jsonrpc import NAMED_BY, name_of
from tabrelay.faces.mcp.offline_answers import cached_legacy_result
from tabrelay.faces.mcp.resumable_response import STREAM_AFTER_S, ResumableResponses
from tabrelay.faces.mcp.session_replay import REPLAYED_METHODS, SessionReplay
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabrelay.http.accept import prefers_stream
from tabrelay.http.exchange import JSON_TYPE, Exchange, Header
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.drain import Drain
from tabrelay.routing.switch import RECORDED, Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.frames import META_ACP

# Methods that are answered from the cached catalogue when the browser disconnects before it answers.
ANSWERED_OFFLINE: Final = frozenset(LISTS) | {methods.PING, methods.LOGGING_SET_LEVEL}


class SessionCalls:
    """Starts and answers the requests of all legacy sessions. One per relay."""

    def __init__(
        self,
        switch: Switch,
        drain: Drain,
        traces: Traces,
        sessions: Sessions,
        session_replay: SessionReplay,
        responses: ResumableResponses,
    ) -> None:
        self._switch = switch
        self._drain = drain
        self._traces = traces
        self._sessions = sessions
        self._session_replay = session_replay
        self._responses = responses

    def is_available(self, server: str, channel: str) -> bool:
        """Can a call on this channel be started now?"""
        return self._switch.is_up(server, channel) and not self._drain.is_on

    # -- the regular path ----------------------------------------------------------------------------------------------

    async def start(self, exchange: Exchange, session: Session, message: dict[str, Any]) -> Pending:
        """Start a request of a session. What it sets is recorded when the server accepts it."""
        self._drain.admit()
        self._session_replay.send(session)
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

    async def answer(
        self, exchange: Exchange, session: Session, pending: Pending, stream_after_s: float = STREAM_AFTER_S
    ) -> None:
        await self._responses.send(
            exchange,
            pending,
            session.streams,
            server=session.server,
            version=session.caller.version,
            headers=session_header(session),
            prefers_stream=prefers_stream(exchange.accept),
            stream_after_s=stream_after_s,
        )

    # -- the fast path -------------------------------------------------------------------------------------------------

    def begin(
        self,
        request: RequestHeaders,
        session: Session,
        principal: Principal,
        message: dict[str, Any],
        *,
        is_plain: bool,
    ) -> StartedCall | None:
        """Start a checked request that needs no wait; None, with no side effect, if it needs one.

        `is_plain`: no header has to be copied into the message.
        """
        if prefers_stream(request.accept) or not self.is_available(session.server, session.channel):
            return None
        call = self._call(request, session, message, {})
        headers = (JSON_TYPE, *session_header(session))
        again = partial(self._begin_again, session.id, headers) if is_plain else None
        return self._begin(session, principal, call, headers, again)

    def _begin_again(
        self, id: str, headers: tuple[Header, ...], server: str, principal: Principal, message: Any
    ) -> StartedCall | None:
        """`begin` for a request whose header block equals that of a started request in the session with this id."""
        method = message.get("method") if type(message) is dict else None
        # defence: a call like the one before it: a list
        if type(method) is not str or method not in RECORDED or message.get("jsonrpc") != "2.0":
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
                return None  # a modern request, or a key that only the relay may set
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
        again: RepeatCall | None = None,
    ) -> StartedCall | None:
        began = time.monotonic()
        pending = self._switch.start_now(session.server, call, lambda peer: self._replay_to(session, peer))
        if pending is None:
            return None
        self._track(session, None, pending)

        async def resume(exchange: Exchange) -> None:
            try:
                await self.answer(exchange, session, pending, STREAM_AFTER_S - (time.monotonic() - began))
            except RelayError as error:
                await exchange.error(error, pending.call.id, session.server)

        return StartedCall(pending, principal, headers=headers, status_of=_ok, resume=resume, repeat=again)

    def _replay_to(self, session: Session, peer: Peer) -> None:
        """A call of the session is about to be sent to this peer."""
        if session.replayed_to is not peer:
            self._session_replay.send(session)

    # -- without a browser ---------------------------------------------------------------------------------------------

    def offline_answer(self, session: Session, message: dict[str, Any]) -> bytes | None:
        """The response from the cached catalogue while no browser is connected; None if a browser must answer."""
        return None if self.is_available(session.server, session.channel) else self._cached_answer(session, message)

    def _cached_answer(self, session: Session, message: dict[str, Any]) -> bytes | None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        catalogue = self._switch.registry.cached_catalogue(self._session_replay.address(session))
        result = cached_legacy_result(message["method"], params, session.server, catalogue)
        if result is None:
            return None
        self._session_replay.record(session, message["method"], params)
        return orjson.dumps(jsonrpc.result_message(message["id"], result))

    # -- both paths ----------------------------------------------------------------------------------------------------

    def _call(self, request: RequestHeaders, session: Session, message: dict[str, Any], scope: Any) -> Call:
        trace = self._traces.begin(scope, request.header, session.server, message)
        payload = orjson.dumps(message).decode()
        about = trace, name_of(message)
        return Call(session.channel, message["id"], message["method"], payload, session.caller, *about)

    def _track(self, session: Session, summary: dict[str, Any] | None, pending: Pending) -> None:
        """List the call as running until it ends. `summary`: given for a request that may set something."""
        if pending.is_done:
            return
        session.running.add(pending)
        ended = pending.on_done

        def done(pending: Pending) -> None:
            session.running.discard(pending)
            if summary is not None and summary["method"] in REPLAYED_METHODS and pending.is_success:
                self._session_replay.record(session, summary["method"], summary["params"])
            if ended is not None:
                ended(pending)

        pending.on_done = done
        pending.on_pin = lambda tab: self._pin(session, tab)

    def _pin(self, session: Session, tab: str | None) -> None:
        session.caller = replace(session.caller, tab=tab)
        self._sessions.changed(session)


def session_header(session: Session) -> tuple[Header, ...]:
    return ((mcp_headers.RAW_SESSION_ID, session.id.encode()),)


def _summary(message: dict[str, Any]) -> dict[str, Any]:
    """The part of a request that is needed when its response arrives."""
    params = message.get("params")
    given = params if isinstance(params, dict) else {}
    kept = {key: given[key] for key in ("level", "uri") if isinstance(given.get(key), str)}
    return {"id": message["id"], "method": message["method"], "params": kept}


def _ok(reply: Reply) -> int:
    """In these versions a JSON-RPC error of the server is sent with status 200 too."""
    return 200
