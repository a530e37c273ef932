"""Calls in a legacy session: starting a request on the session's channel, tracking it, and answering it over HTTP.

What a request sets (log level, subscription) is recorded only after the server accepted it. Sessions are opened and
found in `legacy`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from tabrelay.calls.calls import LISTS, Call, Pending, Reply, Response
from tabrelay.calls.peer import Peer
from tabrelay.calls.trace_context import Traces
from tabrelay.faces.mcp.jsonrpc import name_of
from tabrelay.faces.mcp.offline_answers import cached_legacy_result
from tabrelay.faces.mcp.resumable_response import STREAM_AFTER_S, ResumableResponses
from tabrelay.faces.mcp.session_replay import REPLAYED_METHODS, SessionReplay
from tabrelay.faces.mcp.sessions import Session, Sessions
from tabrelay.http.accept import prefers_stream
from tabrelay.http.exchange import Exchange
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.drain import Drain, unavailable
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.switch import Switch
from tabrelay.routing.waiting_call import WaitingCall
from tabserver.wire import jsonrpc, methods

# Methods that are answered from the cached catalogue if no browser answers.
ANSWERED_OFFLINE: Final = frozenset(LISTS) | {methods.SKILLS_LIST, methods.PING, methods.LOGGING_SET_LEVEL}


@dataclass(slots=True)
class SessionHeaders:
    """What the headers of a request in a session say: equal for all requests with the same header block."""

    id: str | None
    prefers_stream: bool


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
        self.sessions = sessions
        self.session_replay = session_replay
        self._responses = responses

    def is_available(self, server: str, channel: str) -> bool:
        """Can a call on this channel be started now?"""
        return self._switch.is_up(server, channel) and not self._drain.is_on

    def start(
        self, request: RequestHeaders, entry: ServerEntry, session: Session, message: dict[str, Any], scope: Any
    ) -> Pending | WaitingCall:
        """Start a request of a session. What it sets is recorded when the server accepts it."""
        if self._drain.is_on:
            raise unavailable()
        trace = self._traces.begin(scope, request.first, session.server, message)  # may change the message
        call = Call(
            session.channel,
            message["id"],
            message["method"],
            orjson.dumps(message).decode(),
            session.caller,
            trace,
            name_of(message),
        )
        # defence: values of a call that waits
        message["params"] = None  # it goes on as text: a great many values must not wait for the answer too
        return self._switch.start(entry, call, SessionOwner(self, session))

    async def respond(self, exchange: Exchange, session: Session, pending: Pending) -> None:
        await self._responses.send(
            exchange,
            pending,
            session.streams,
            server=session.server,
            version=session.caller.version,
            headers=session.headers,
            prefers_stream=prefers_stream(exchange.accept),
            stream_after_s=STREAM_AFTER_S - (time.monotonic() - pending.sent_at),
        )

    # -- without a browser ---------------------------------------------------------------------------------------------

    def offline_answer(self, session: Session, message: dict[str, Any]) -> bytes | None:
        """The response from the cached catalogue while no browser is connected; None if a browser must answer."""
        if message["method"] not in ANSWERED_OFFLINE or self.is_available(session.server, session.channel):
            return None
        return self.cached_answer(session, message)

    def cached_answer(self, session: Session, message: dict[str, Any]) -> bytes | None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        catalogue = self._switch.registry.cached_catalogue(self.session_replay.address(session))
        result = cached_legacy_result(message["method"], params, session.server, catalogue, session.caller.capabilities)
        if result is None:
            return None
        self.session_replay.record(session, message["method"], params)
        return orjson.dumps(jsonrpc.result_message(message["id"], result))


class SessionOwner:
    """A session as the owner of its calls."""

    __slots__ = ("_calls", "_session")

    def __init__(self, calls: SessionCalls, session: Session) -> None:
        self._calls = calls
        self._session = session

    def may_be_cached(self, method: str) -> bool:
        return method in ANSWERED_OFFLINE

    def cached_reply(self, call: Call) -> str | None:
        known = self._calls.cached_answer(self._session, call.message())
        return None if known is None else known.decode()

    def sending(self, pending: Pending, peer: Peer) -> None:
        """List the call as running until it ends. The peer gets the session's state first, if it does not have it."""
        self._session.running.add(pending)
        if self._session.replayed_to is not peer:
            self._calls.session_replay.send(self._session)

    def pinned(self, call: Call, tab: str | None) -> None:
        self._session.caller = replace(self._session.caller, tab=tab)
        self._calls.sessions.changed(self._session)

    def ended(self, pending: Pending) -> None:
        self._session.running.discard(pending)
        if pending.call.method in REPLAYED_METHODS and pending.is_success:
            params = pending.call.message().get("params")
            params = params if isinstance(params, dict) else {}
            self._calls.session_replay.record(self._session, pending.call.method, params)

    def response(self, pending: Pending, reply: Reply) -> Response:
        """In these versions a JSON-RPC error of the server is sent with status 200 too."""
        return 200, self._session.json_headers, reply.encoded()

    @property
    def stream_headers(self) -> None: ...

    async def respond(self, exchange: Exchange, pending: Pending) -> None:
        await self._calls.respond(exchange, self._session, pending)
