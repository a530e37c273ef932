"""ASGI endpoint for MCP over HTTP at `/{server}`: detects the protocol era of a request and passes it to that face.

All eras share one URL. `/{server}/mcp` is an alias, because some clients append `/mcp` to every address without it;
`/{server}/sse` and `/{server}/messages` belong to 2024-11-05. A POST is decided once: by `decide` if its body is
complete, else by the same functions after the waits. What a message means is decided by the faces and the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tabrelay import mcp_headers
from tabrelay.admission.routes import MCP
from tabrelay.calls.principal import Principal
from tabrelay.calls.trace_context import Traces
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, RelayError, not_own_server
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.faces.mcp.body import CLIENT_GONE, BodyReader
from tabrelay.faces.mcp.http_sse import SseFace
from tabrelay.faces.mcp.jsonrpc import request_id
from tabrelay.faces.mcp.legacy import LegacyFace
from tabrelay.faces.mcp.modern import ModernFace
from tabrelay.faces.mcp.outcomes import OUTCOME, Answer, Deferred, Outcome, write
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.http.accept import JSON, SSE, accepts
from tabrelay.http.exchange import Exchange, Receive, Scope, Send, error_body, error_headers
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.drain import Drain
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.switch import Switch
from tabserver.wire import eras
from tabserver.wire.jsonrpc import RequestId
from tabserver.wire.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from tabrelay.faces.mcp.bus_sync import BusSync

# Values of the version header without which a request is legacy, unless its body is modern.
NOT_MODERN: Final = frozenset({None, *eras.LEGACY_VERSIONS})


NO_SCOPE: Final[Mapping[str, Any]] = MappingProxyType({})


class McpEndpoint:
    """ASGI application for `/{server}` over HTTP. Plain ASGI: this is the hot path."""

    def __init__(
        self,
        switch: Switch,
        settings: Settings,
        drain: Drain,
        session_ids: SessionIdCodec,
        acp_sessions: AcpSessions,
        traces: Traces,
        on_error: Callable[[RelayError], None] | None = None,
    ) -> None:
        """`traces` finds the trace of a call. `on_error` is called with every error that the relay itself answers."""
        self._on_error = on_error
        self._switch = switch
        self._drain = drain
        self._exchanges = drain.exchanges
        self._body_reader = BodyReader(settings, acp_sessions)
        self._modern = ModernFace(switch, settings, drain, traces)
        self._legacy = LegacyFace(switch, settings, drain, session_ids, traces)
        self.session_routes = self._legacy.session_routes
        self._sse = SseFace(self._legacy, self._body_reader, settings, drain)

    @property
    def sessions(self) -> int:
        """Number of legacy sessions in memory."""
        return self._legacy.sessions

    @property
    def bodies(self) -> MemoryBudget:
        """Memory budget of the bodies that are being read."""
        return self._body_reader.budget

    def came_up(self, server: str) -> None:
        self._legacy.session_replay.came_up(server)
        self._modern.came_up(server)

    def peer_left(self, server: str, changes: frozenset[str]) -> None:
        """One of several browsers with this name is gone; these lists differ in the browser that is in front now."""
        self._legacy.session_replay.peer_left(server, changes)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        """These lists differ from what clients know."""
        self._legacy.session_replay.lists_changed(server, lists)
        self._modern.lists_changed(server, lists)

    def end_sessions(self, principals: set[str]) -> None:
        """The tokens of these principals were revoked: end their sessions."""
        self._legacy.end_sessions(principals)

    def close(self) -> None:
        """The relay stops: end open streams."""
        self._legacy.close()
        self._modern.close()
        self._sse.close()

    def share(self, bus_sync: BusSync) -> None:
        """This relay is one of several, and clients may use any of them."""
        self._legacy.share(bus_sync)
        self._modern.share(bus_sync)
        self._sse.share(bus_sync)

    def flush(self) -> None:
        self._legacy.flush()
        self._modern.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._exchanges:
            exchange, outcome = Exchange(scope, receive, send, self._on_error), scope.get(OUTCOME)
            server, _, place = scope["path"].strip("/").partition("/")
            if outcome is not None:
                await write(exchange, outcome, server)
                return
            try:
                entry = self._switch.find(server) or await self._locate(server)
                await self._answer(exchange, entry, place, scope["state"]["principal"])
            except RelayError as error:
                await exchange.error(error, None, server)

    async def _answer(self, exchange: Exchange, entry: ServerEntry, place: str, principal: Principal) -> None:
        if principal.origin is not None:
            self._check_own_server(entry, principal)
        if place and place != MCP:
            await self._answer_http_sse(exchange, entry, principal, place)
        elif exchange.method == "POST":
            _check_head(exchange)
            await self._post(entry, principal, None, exchange)
        elif exchange.method not in ("GET", "DELETE"):
            raise _not_allowed("GET, POST, DELETE")
        elif exchange.first.get(mcp_headers.RAW_PROTOCOL_VERSION) not in NOT_MODERN:
            raise _not_allowed("POST")
        elif exchange.method == "GET":
            _check_accept(exchange, SSE)
            await self._legacy.get(exchange, entry.name, principal)
        else:
            await self._legacy.delete(exchange, entry.name, principal)

    # -- POST ----------------------------------------------------------------------------------------------------------

    def decide(
        self, server: str, request: RequestHeaders, principal: Principal, body: bytes, scope: Any = NO_SCOPE
    ) -> Outcome:
        """What becomes of a POST whose body is complete. A RelayError is an answer too: nothing is raised."""
        try:
            entry = self._switch.find(server)
            if entry is None:
                return Deferred(partial(self._locate_and_post, server, principal, body))
            if principal.origin is not None:
                self._check_own_server(entry, principal)
            if request.verified is None:
                _check_head(request)
            if entry.connector is not None and entry.is_starting:
                return Deferred(partial(self._post, entry, principal, body))
            message = self._body_reader.read_small(body, request.first.get(mcp_headers.RAW_TABRELAY_ACP))
        except RelayError as error:
            return self._refusal(error, None, server)
        return self._decide(entry, request, principal, message, scope)

    def _decide(
        self, entry: ServerEntry, request: RequestHeaders, principal: Principal, message: Any, scope: Any
    ) -> Outcome:
        try:
            if request.first.get(mcp_headers.RAW_PROTOCOL_VERSION) in NOT_MODERN and not _has_envelope(message):
                return self._legacy.decide(request, entry, principal, message, scope)
            return self._modern.decide(request, entry, principal, message, scope)
        except RelayError as error:
            return self._refusal(error, request_id(message), entry.name)

    def _refusal(self, error: RelayError, id: RequestId | None, server: str) -> Answer:
        if self._on_error is not None:
            self._on_error(error)
        return Answer(error.status, error_body(error, id, server), error_headers(error))

    async def _locate(self, server: str) -> ServerEntry:
        await self._switch.locate(server)
        return self._switch.registry.find(server)

    async def _locate_and_post(self, server: str, principal: Principal, body: bytes, exchange: Exchange) -> None:
        entry = await self._locate(server)
        if principal.origin is not None:
            self._check_own_server(entry, principal)
        _check_head(exchange)
        await self._post(entry, principal, body, exchange)

    def _check_own_server(self, entry: ServerEntry, principal: Principal) -> None:
        """A page calls what its own origin serves. The switch checks the peer that gets the call once more."""
        held = [one.peer for one in self._switch.registry.holding(entry.name) if one.peer is not None]
        # defence: the call key of a page: servers of its origin only
        if not held or any(peer.principal != principal.id for peer in held):
            raise not_own_server(entry.name)

    async def _post(self, entry: ServerEntry, principal: Principal, body: bytes | None, exchange: Exchange) -> None:
        """The rest of `decide`, with the waits. `body`: None if it has to be read."""
        if entry.connector is not None:
            await self._switch.wait_for_start(entry)  # before the body is parsed, which takes much more memory
        reader = self._body_reader
        if body is None:
            message = await reader.read(exchange)
        else:
            message = reader.read_small(body, exchange.first.get(mcp_headers.RAW_TABRELAY_ACP))
        if message is CLIENT_GONE:
            return
        outcome = self._decide(entry, exchange, principal, message, exchange.scope)
        del message, body  # not needed during the call
        await write(exchange, outcome, entry.name)

    async def _answer_http_sse(self, exchange: Exchange, entry: ServerEntry, principal: Principal, place: str) -> None:
        """The two URLs of 2024-11-05."""
        server = entry.name
        if place not in ("sse", "messages"):
            text = f"There is nothing at this address. The server is at /{server}, and at /{server}/sse for 2024-11-05."
            raise BadRequest(text, status=404, reason="not_found")
        method = "GET" if place == "sse" else "POST"
        if exchange.method != method:
            raise _not_allowed(method)
        if method == "GET":
            _check_accept(exchange, SSE)
            await self._sse.get(exchange, server, principal)
        else:
            _check_content_type(exchange)
            await self._switch.wait_for_start(entry)
            await self._sse.post(exchange, server, principal)


def _has_envelope(message: Any) -> bool:
    """Body first: a modern request that lost its header must get the modern error, or clients take us for legacy."""
    params = message.get("params") if type(message) is dict else None
    if type(params) is not dict or "_meta" not in params:
        return False
    return isinstance(params["_meta"], dict) and eras.META_VERSION in params["_meta"]


def _check_head(request: RequestHeaders) -> None:
    _check_content_type(request)
    _check_accept(request, JSON, SSE)


def _check_content_type(request: RequestHeaders) -> None:
    types = {value.partition(";")[0].strip().lower() for value in request.all.get(b"content-type", ())}
    if types != {JSON}:  # two different values are ambiguous
        raise BadRequest("Send the message as Content-Type: application/json.", status=415, reason="content_type")
    if request.first.get(b"content-encoding") not in (None, "", "identity"):
        # RFC 9110, 15.5.16: Accept-Encoding lists the codings that are accepted.
        plain = ((b"accept-encoding", b"identity"),)
        text = "Send the message without Content-Encoding."
        raise BadRequest(text, status=415, reason="content_encoding", headers=plain)


def _check_accept(request: RequestHeaders, *wanted: str) -> None:
    if not accepts(request.accept, wanted):
        raise BadRequest(f"Send Accept: {', '.join(wanted)}.", status=406, reason="not_acceptable")


def _not_allowed(methods: str) -> BadRequest:
    return BadRequest(
        f"This method is not allowed here. Allowed: {methods}.",
        status=405,
        reason="method_not_allowed",
        headers=((b"allow", methods.encode()),),
    )
