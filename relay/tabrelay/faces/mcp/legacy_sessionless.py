"""Requests of the handshake era without a session: from clients that do not keep the session id, or never initialize.

Each request gets a channel that is opened as already initialized and ends with the answer. The caller has no
capabilities, so no question is sent to it, and progress and log messages are dropped. Requests whose effect lasts
longer than the answer need a session: those that set a log level, subscribe, or use tasks.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from tabrelay import mcp_headers
from tabrelay.calls.calls import LISTS, Call, Pending, Reply, Response
from tabrelay.calls.peer import Peer
from tabrelay.calls.principal import Principal
from tabrelay.calls.trace_context import Traces
from tabrelay.errors import BadRequest
from tabrelay.faces.mcp.jsonrpc import is_request, name_of
from tabrelay.faces.mcp.offline_answers import cached_legacy_result
from tabrelay.faces.mcp.outcomes import Answer, Outcome
from tabrelay.http.exchange import JSON_TYPE, Exchange
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.drain import Drain, unavailable
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.switch import Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

ANSWERED_OFFLINE: Final = frozenset(LISTS) | {methods.PING}
ANSWERED: Final = ANSWERED_OFFLINE | {
    methods.SKILLS_LIST,
    methods.TOOLS_CALL,
    methods.RESOURCES_READ,
    methods.RESOURCES_DIRECTORY_READ,
    methods.PROMPTS_GET,
    methods.COMPLETION_COMPLETE,
    methods.SKILLS_GET,
}


class SessionlessCalls:
    """Starts and answers requests without a session. One per relay."""

    def __init__(self, switch: Switch, drain: Drain, traces: Traces) -> None:
        self.switch = switch
        self._drain = drain
        self._traces = traces

    def decide(
        self, request: RequestHeaders, entry: ServerEntry, principal: Principal, message: dict[str, Any], scope: Any
    ) -> Outcome:
        """What becomes of a checked message. Raises RelayError."""
        if "method" in message and not is_request(message):
            return Answer(202)  # a notification, such as `initialized`: there is nothing that it could change
        method = message.get("method")
        if method not in ANSWERED:
            what = f'"{method}" needs a session' if method else "A response needs a session"
            raise BadRequest(
                f"{what}: the header Mcp-Session-Id is missing. Send initialize first.", reason="no_session"
            )
        if self._drain.is_on:
            raise unavailable()
        # A request without the header is one of 2025-03-26, says 2025-06-18.
        version = request.first.get(mcp_headers.RAW_PROTOCOL_VERSION) or eras.BATCH_VERSION
        caller = Caller(era=Era.LEGACY, version=version, principal=principal.id, ready=True)
        owner = SessionlessOwner(self, entry.name)
        channel = self.switch.new_channel()
        if not self.switch.is_up(entry.name, channel) and method in ANSWERED_OFFLINE:
            call = Call(channel, message["id"], method, orjson.dumps(message).decode(), caller)
            if (known := owner.cached_reply(call)) is not None:
                return Answer(200, known.encode(), (JSON_TYPE,))
        trace = self._traces.begin(scope, request.first, entry.name, message)
        payload = orjson.dumps(message).decode()
        call = Call(channel, message["id"], method, payload, caller, trace, name_of(message))
        message["params"] = None  # it goes on as text, and its values must not stay in memory during the call
        return self.switch.start(entry, call, owner)


class SessionlessOwner:
    """The owner of one call. Its channel ends with the call."""

    __slots__ = ("_calls", "_server")

    def __init__(self, calls: SessionlessCalls, server: str) -> None:
        self._calls = calls
        self._server = server

    def may_be_cached(self, method: str) -> bool:
        return method in ANSWERED_OFFLINE

    def cached_reply(self, call: Call) -> str | None:
        params = call.message().get("params")
        catalogue = self._calls.switch.registry.cached_catalogue(self._server)
        given = params if isinstance(params, dict) else {}
        result = cached_legacy_result(call.method, given, self._server, catalogue, {})
        return None if result is None else orjson.dumps(jsonrpc.result_message(call.id, result)).decode()

    def sending(self, pending: Pending, peer: Peer) -> None: ...

    def pinned(self, call: Call, tab: str | None) -> None: ...

    def ended(self, pending: Pending) -> None:
        self._calls.switch.end(self._server, pending.call.channel, "answered")

    def response(self, pending: Pending, reply: Reply) -> Response:
        return 200, (JSON_TYPE,), reply.encoded()

    @property
    def stream_headers(self) -> None: ...

    async def respond(self, exchange: Exchange, pending: Pending) -> None:
        reply = await self._calls.switch.reply_to(self._server, pending)
        status, headers, body = self.response(pending, reply)
        await exchange.reply(status, body, headers)
