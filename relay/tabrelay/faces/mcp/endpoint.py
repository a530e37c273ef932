"""Where MCP over HTTP comes in: `/{server}`, every era at one URL. Decides the era, then hands over.

`/{server}/mcp` is the same address: some clients put that behind every address that lacks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabrelay import mcp_headers
from tabrelay.admission.routes import MCP
from tabrelay.calls.principal import Principal
from tabrelay.calls.started import STARTED_CALL, RepeatCall, StartedCall
from tabrelay.calls.trace_context import PARENT_HEADER, Traces
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, RelayError
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.faces.mcp.body import CLIENT_GONE, BodyReader
from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.mcp.http_sse import SseFace
from tabrelay.faces.mcp.legacy import LegacyFace
from tabrelay.faces.mcp.modern import ModernFace
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.http.accept import JSON, SSE, accepts
from tabrelay.http.exchange import Exchange, Receive, Scope, Send
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.drain import Drain
from tabrelay.routing.switch import RECORDED, Switch
from tabserver.wire import eras
from tabserver.wire.memory_budget import MemoryBudget


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
        """`traces` says to which trace a call belongs. `on_error` hears of every error of ours that a client was
        answered with."""
        self._on_error = on_error
        self._switch = switch
        self._drain = drain
        self._exchanges = drain.exchanges
        self._body_reader = BodyReader(settings, acp_sessions)
        self._modern = ModernFace(switch, settings, drain, traces)
        self._legacy = LegacyFace(switch, settings, drain, session_ids, traces)
        self._sse = SseFace(self._legacy, self._body_reader, settings, drain)

    @property
    def sessions(self) -> int:
        """How many handshake sessions are in memory."""
        return self._legacy.sessions

    @property
    def bodies(self) -> MemoryBudget:
        """What requests that are being read take."""
        return self._body_reader.budget

    def came_up(self, server: str) -> None:
        self._legacy.session_replay.came_up(server)
        self._modern.came_up(server)

    def peer_left(self, server: str, changes: frozenset[str]) -> None:
        """Of several browsers under this name one is gone; in the one that is in front now these lists are others."""
        self._legacy.session_replay.peer_left(server, changes)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        """The lists are not those that clients know."""
        self._legacy.session_replay.lists_changed(server, lists)
        self._modern.lists_changed(server, lists)

    def end_sessions(self, principals: set[str]) -> None:
        """Their tokens were revoked: what they began ends."""
        self._legacy.end_sessions(principals)

    def close(self) -> None:
        """The relay stops: what would not end by itself ends now."""
        self._legacy.close()
        self._modern.close()
        self._sse.close()

    def share(self, bus_sync: BusSync) -> None:
        """This relay is one of several: clients may reach any of them."""
        self._legacy.share(bus_sync)
        self._modern.share(bus_sync)
        self._sse.share(bus_sync)

    def flush(self) -> None:
        self._legacy.flush()
        self._modern.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._exchanges:
            exchange, begun = Exchange(scope, receive, send, self._on_error), scope.get(STARTED_CALL)
            await (self._answer(exchange, scope) if begun is None else begun.resume(exchange))

    def begin_again(
        self, server: str, request: RequestHeaders, principal: Principal, body: bytes, again: RepeatCall | None
    ) -> StartedCall | None:
        """The same for a request with the header of one that was begun. `again`: a shorter way, if there is one."""
        if again is not None and not self._drain.is_on:
            try:
                begun = again(server, principal, self._body_reader.parse(body))
            except RelayError:
                return None
            if begun is not None:
                return begun
        return self.begin(server, request, principal, body, is_known=True)

    def begin(
        self, server: str, request: RequestHeaders, principal: Principal, body: bytes, *, is_known: bool = False
    ) -> StartedCall | None:
        """What `_post` does, for a request that is complete and whose call can start without any wait.

        None for every other, and nothing was done: also for one that is wrong, which is told so in the ordinary way.
        `is_known`: what the heading says by itself was looked at before.
        """
        if self._drain.is_on:
            return None
        try:
            self._switch.registry.find(server)
            if not is_known:
                _check_content_type(request)
                _check_accept(request, JSON, SSE)
            message = self._body_reader.read_small(body, request)
            if not _is_logged_request(message):
                return None
            face = self._modern if _is_modern(request, message) else self._legacy
            # Its header says nothing that its message has to be told.
            is_plain = mcp_headers.RAW_TABRELAY_ACP not in request and PARENT_HEADER not in request
            return face.begin(request, server, principal, message, is_plain=is_plain)
        except RelayError:
            return None

    async def _answer(self, exchange: Exchange, scope: Scope) -> None:
        principal: Principal = scope["state"]["principal"]
        server, _, place = scope["path"].strip("/").partition("/")
        try:
            await self._switch.locate(server)
            self._switch.registry.find(server)
            if place and place != MCP:
                await self._answer_http_sse(exchange, server, principal, place)
            elif exchange.method == "POST":
                await self._post(exchange, server, principal)
            elif exchange.method not in ("GET", "DELETE"):
                raise _not_allowed("GET, POST, DELETE")
            elif _is_modern_version(exchange):
                raise _not_allowed("POST")
            elif exchange.method == "GET":
                _check_accept(exchange, SSE)
                await self._legacy.get(exchange, server, principal)
            else:
                await self._legacy.delete(exchange, server, principal)
        except RelayError as error:
            await exchange.error(error, None, server)

    async def _answer_http_sse(self, exchange: Exchange, server: str, principal: Principal, place: str) -> None:
        """The two addresses of 2024-11-05."""
        if place not in ("sse", "messages"):
            text = f"There is nothing at this address. The server's own is /{server}, and /{server}/sse for 2024-11-05."
            raise BadRequest(text, status=404, reason="not_found")
        method = "GET" if place == "sse" else "POST"
        if exchange.method != method:
            raise _not_allowed(method)
        if method == "GET":
            _check_accept(exchange, SSE)
            await self._sse.get(exchange, server, principal)
        else:
            _check_content_type(exchange)
            await self._switch.wait_for_start(server)
            await self._sse.post(exchange, server, principal)

    async def _post(self, exchange: Exchange, server: str, principal: Principal) -> None:
        _check_content_type(exchange)
        _check_accept(exchange, JSON, SSE)
        await self._switch.wait_for_start(server)  # before the body is values, which take much more room
        message = await self._body_reader.read(exchange)
        if message is CLIENT_GONE:
            return
        if _is_modern(exchange, message):
            await self._modern(exchange, server, principal, message)
        else:
            await self._legacy.post(exchange, server, principal, message)


def _is_logged_request(message: Any) -> bool:
    """A request that does something for somebody, and is nothing else besides."""
    method = message.get("method") if isinstance(message, dict) else None
    return isinstance(method, str) and method in RECORDED and "id" in message


def _is_modern(request: RequestHeaders, message: Any) -> bool:
    return _is_modern_version(request) or _has_envelope(message)


def _is_modern_version(request: RequestHeaders) -> bool:
    version = request.header(mcp_headers.RAW_PROTOCOL_VERSION)
    return version is not None and version not in eras.LEGACY_VERSIONS


def _has_envelope(message: Any) -> bool:
    """Body first: a modern request that lost its header must get the modern error, or clients take us for legacy."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and eras.META_VERSION in meta


def _check_content_type(request: RequestHeaders) -> None:
    types = {value.partition(";")[0].strip().lower() for value in request.headers(b"content-type")}
    if types != {JSON}:  # of two that differ, nobody knows which one the client means
        raise BadRequest("Send the message as Content-Type: application/json.", status=415, reason="content_type")
    if request.header(b"content-encoding") not in (None, "", "identity"):
        # RFC 9110, 15.5.16: which ones would do is said in Accept-Encoding.
        plain = ((b"accept-encoding", b"identity"),)
        text = "Send the message as it is, without Content-Encoding."
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
