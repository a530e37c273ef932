"""MCP over HTTP for protocol version 2026-07-28: one POST per request, no sessions.

Every request describes its client in `_meta`. Closing the connection cancels the call. While no browser is connected,
discovery is answered from the cached catalogue and `subscriptions/listen` is held open. The checks of a request are in
`modern_checks`, the response is written by `modern_response`; what a method means is decided by the server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from tabrelay import mcp_headers
from tabrelay.calls.calls import LISTS, Call, Header, Notice, Pending, Reply, Response
from tabrelay.calls.peer import Peer
from tabrelay.calls.principal import Principal
from tabrelay.calls.trace_context import PARENT_HEADER, Traces
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest
from tabrelay.faces.mcp.jsonrpc import check_client_info, check_message, name_of
from tabrelay.faces.mcp.modern_checks import (
    NOT_REUSABLE,
    VerifiedEnvelope,
    check_notification,
    check_request,
    matching_meta,
    status_of,
)
from tabrelay.faces.mcp.modern_response import send_response
from tabrelay.faces.mcp.offline_answers import cached_modern_result
from tabrelay.faces.mcp.outcomes import Answer, Deferred, Outcome
from tabrelay.faces.mcp.param_header_cache import ParamHeaderCache
from tabrelay.faces.mcp.session_store import SessionStore
from tabrelay.faces.mcp.subscriptions import SubscriptionFilter, Subscriptions, final_response
from tabrelay.faces.mcp.tab_pins import TabPins
from tabrelay.http.exchange import JSON_TYPE, SSE_HEADERS, Exchange
from tabrelay.http.headers import RequestHeaders
from tabrelay.http.param_headers import check
from tabrelay.routing.drain import Drain, unavailable
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.switch import Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

if TYPE_CHECKING:
    from tabrelay.faces.mcp.bus_sync import BusSync

STREAM_AFTER_S: Final = 15.0
JSON_ONLY: Final = (JSON_TYPE,)
MAX_KNOWN: Final = 4096
DESCRIPTION: Final = (eras.META_VERSION, eras.META_CLIENT, eras.META_CAPABILITIES)
MOST_CALLERS: Final = 64  # needed for the first call of a connection only, which then keeps its caller


class ModernFace:
    """Handles modern POST requests. One per relay."""

    def __init__(self, switch: Switch, settings: Settings, drain: Drain, traces: Traces) -> None:
        self.switch = switch
        self._traces = traces
        self._drain = drain
        self._keepalive_s = settings.keepalive_s
        self._subscriptions = Subscriptions(settings.keepalive_s)
        self.pins = TabPins(SessionStore(settings.home / "pins.json", max_records=settings.kept_sessions))
        self._param_headers = ParamHeaderCache()

    def came_up(self, server: str) -> None:
        self._subscriptions.came_up(server)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        self._subscriptions.lists_changed(server, lists)

    def close(self) -> None:
        self._subscriptions.close()

    def share(self, bus_sync: BusSync) -> None:
        self.pins.share(bus_sync)

    def flush(self) -> None:
        self.pins.flush()

    def decide(
        self, request: RequestHeaders, entry: ServerEntry, principal: Principal, message: Any, scope: Any
    ) -> Outcome:
        """What becomes of a message. Raises RelayError."""
        verified = request.verified
        if type(verified) is not VerifiedEnvelope or not verified.holds_for(message, entry):
            check_message(message)
            if "method" not in message:
                raise BadRequest("The body must be one JSON-RPC request: an object with a method.")
            if "id" not in message:
                check_notification(request)
                return Answer(202)
            verified = self._verify(request, entry, principal, message)
            if request.is_shared:
                request.verified = verified
        server, owner, method = entry.name, verified.owner, message["method"]
        if (
            method != methods.TOOLS_CALL
            and owner.may_be_cached(method)
            and (self._drain.is_on or not self.switch.is_up(server))
        ):
            # A client whose discovery fails takes us for a legacy server.
            cached = owner.cached(message["id"], method, verified.caller)
            if cached is not None:
                return Answer(200, cached.encode(), JSON_ONLY)
        if self._drain.is_on:
            raise unavailable()
        trace = self._traces.begin(scope, request.first, server, message)
        call = Call(
            self.switch.new_channel(),
            message["id"],
            method,
            # Forward the parsed message, not the received text: both sides then agree on a duplicate key.
            orjson.dumps(message).decode(),
            self.pins.caller(server, verified.caller) if self.pins.records else verified.caller,
            trace,
            verified.name,
        )
        if method == methods.SUBSCRIPTIONS_LISTEN:
            wanted = SubscriptionFilter.of(message["params"])
            return Deferred(lambda exchange: self._listen(exchange, server, call, wanted), call.id)
        return self.switch.start(entry, call, owner)

    def _verify(
        self, request: RequestHeaders, entry: ServerEntry, principal: Principal, message: dict[str, Any]
    ) -> VerifiedEnvelope:
        """Check a request. Raises BadRequest."""
        meta = matching_meta(request, message)
        has_copied = PARENT_HEADER in request.first or mcp_headers.RAW_TABRELAY_ACP in request.first  # into the message
        is_reusable = meta is not None and not has_copied
        catalogue = entry.catalogue
        if meta is None:
            meta = check_request(request, message)
        if message["method"] == methods.TOOLS_CALL:
            params = message["params"]
            # Arguments that must be repeated in headers, from the cached catalogue; none for an unknown tool.
            wanted = self._param_headers.find(entry.name, catalogue, params["name"]) if catalogue is not None else ()
            if wanted:
                check(wanted, params.get("arguments"), request.all)
            is_reusable = is_reusable and not wanted
        return VerifiedEnvelope(
            name_of(message),
            {key: meta[key] for key in DESCRIPTION if key in meta},
            NOT_REUSABLE if not is_reusable else None if catalogue is None else catalogue.number,
            _caller(principal.id, meta),
            ModernOwner(self, entry.name),
        )

    async def _listen(self, exchange: Exchange, server: str, call: Call, wanted: SubscriptionFilter) -> None:
        is_held = not self.switch.is_up(server)
        if is_held:
            catalogue = self.switch.registry.cached_catalogue(server)
            with self.switch.holding(call):
                await self._subscriptions.hold(exchange, server, call, wanted, catalogue)
            if exchange.is_gone or self._subscriptions.is_closed:
                return
        pending = await self.switch.start(self.switch.registry.find(server), call).started()
        with self._subscriptions.listener(server, pending, wanted, is_acknowledged=is_held) as listener:
            await self.respond(
                exchange, server, pending, is_redundant=listener.is_redundant, closing_event=final_response(call.id)
            )

    async def respond(
        self,
        exchange: Exchange,
        server: str,
        pending: Pending,
        *,
        is_redundant: Callable[[Notice], bool] | None = None,
        closing_event: bytes | None = None,
    ) -> None:
        await send_response(
            exchange,
            pending,
            server,
            stream_after_s=STREAM_AFTER_S,
            keepalive_s=self._keepalive_s,
            status_of=status_of,
            on_gone=lambda: self.switch.abandon(server, pending, "the client closed the stream"),
            is_redundant=is_redundant,
            closing_event=closing_event,
        )


class ModernOwner:
    """The face as the owner of calls to one server."""

    __slots__ = ("_face", "server")

    def __init__(self, face: ModernFace, server: str) -> None:
        self._face = face
        self.server = server

    def may_be_cached(self, method: str) -> bool:
        return method in (methods.SERVER_DISCOVER, methods.SKILLS_LIST) or method in LISTS

    def cached_reply(self, call: Call) -> str | None:
        return self.cached(call.id, call.method, call.caller)

    def cached(self, id: jsonrpc.RequestId, method: str, caller: Caller) -> str | None:
        catalogue = self._face.switch.registry.cached_catalogue(self.server)
        result = cached_modern_result(method, self.server, catalogue, caller.capabilities)
        return None if result is None else orjson.dumps(jsonrpc.result_message(id, result)).decode()

    def sending(self, pending: Pending, peer: Peer) -> None: ...

    def pinned(self, call: Call, tab: str | None) -> None:
        self._face.pins.pin(self.server, call.caller, tab)

    def ended(self, pending: Pending) -> None: ...

    def response(self, pending: Pending, reply: Reply) -> Response:
        return 200 if reply.error_code is None else status_of(reply), JSON_ONLY, reply.encoded()

    @property
    def stream_headers(self) -> tuple[Header, ...]:
        return SSE_HEADERS

    async def respond(self, exchange: Exchange, pending: Pending) -> None:
        await self._face.respond(exchange, self.server, pending)


def _caller(principal: str, meta: dict[str, Any]) -> Caller:
    """A client sends the same description with every request: they share one value, serialized once."""
    about = orjson.dumps((meta[eras.META_VERSION], meta.get(eras.META_CLIENT), meta[eras.META_CAPABILITIES]))
    check_client_info(about)
    # As str: a small result of orjson.dumps keeps a buffer of 4 KiB, and this one is a key of the cache.
    # defence: memory: a known client takes no more memory than its description
    return (_known_caller if len(about) <= MAX_KNOWN else _new_caller)(principal, about.decode())


def _new_caller(principal: str, about: str) -> Caller:
    version, client, capabilities = orjson.loads(about)
    return Caller(
        era=Era.MODERN,
        version=version,
        principal=principal,
        client=client if isinstance(client, dict) else None,
        capabilities=capabilities,
    )


_known_caller = lru_cache(maxsize=MOST_CALLERS)(_new_caller)
