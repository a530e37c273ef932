"""MCP over HTTP for protocol version 2026-07-28: one POST per request, no sessions.

Every request describes its client in `_meta`. Closing the connection cancels the call. While no browser is connected,
discovery is answered from the cached catalogue and `subscriptions/listen` is held open. The checks of a request are in
`modern_checks`, the response is written by `modern_response`; what a method means is decided by the server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import orjson

from tabrelay.calls.calls import LISTS, Call, Notice, Pending
from tabrelay.calls.principal import Principal
from tabrelay.calls.started import RepeatCall, StartedCall
from tabrelay.calls.trace_context import Trace, Traces
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, Busy, RelayError, ServerOffline
from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.mcp.jsonrpc import check_client_info, check_message, name_of, request_id
from tabrelay.faces.mcp.modern_checks import (
    VerifiedEnvelope,
    check_notification,
    check_request,
    matching_meta,
    status_of,
)
from tabrelay.faces.mcp.modern_response import send_response
from tabrelay.faces.mcp.offline_answers import cached_modern_result
from tabrelay.faces.mcp.param_header_cache import ParamHeaderCache
from tabrelay.faces.mcp.session_store import SessionStore
from tabrelay.faces.mcp.subscriptions import SubscriptionFilter, Subscriptions, final_response
from tabrelay.faces.mcp.tab_pins import TabPins
from tabrelay.http.exchange import JSON_TYPE, Exchange
from tabrelay.http.headers import RequestHeaders
from tabrelay.http.param_headers import ParamHeader
from tabrelay.routing.drain import Drain
from tabrelay.routing.switch import Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

STREAM_AFTER_S: Final = 15.0
JSON_ONLY: Final = (JSON_TYPE,)
MAX_KNOWN: Final = 4096
MOST_CALLERS: Final = 64  # needed for the first call of a connection only, which then keeps its caller


class ModernFace:
    """Handles modern POST requests. One per relay."""

    def __init__(self, switch: Switch, settings: Settings, drain: Drain, traces: Traces) -> None:
        self._switch = switch
        self._traces = traces
        self._drain = drain
        self._keepalive_s = settings.keepalive_s
        self._subscriptions = Subscriptions(settings.keepalive_s)
        self._pins = TabPins(SessionStore(settings.home / "pins.json", max_records=settings.kept_sessions))
        self._param_headers = ParamHeaderCache()

    def came_up(self, server: str) -> None:
        self._subscriptions.came_up(server)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        self._subscriptions.lists_changed(server, lists)

    def close(self) -> None:
        self._subscriptions.close()

    def share(self, bus_sync: BusSync) -> None:
        self._pins.share(bus_sync)

    def flush(self) -> None:
        self._pins.flush()

    async def __call__(self, exchange: Exchange, server: str, principal: Principal, message: Any) -> None:
        id = request_id(message)
        try:
            check_message(message)
            if "method" not in message:
                raise BadRequest("The body must be one JSON-RPC request: an object with a method.")
            if "id" not in message:
                check_notification(exchange)
                await exchange.reply(202)
                return
            meta = check_request(exchange, message, lambda tool: self._param_headers_of(server, tool))
            is_there = self._switch.is_up(server) and not self._drain.is_on
            if not is_there and await self._answer_offline(exchange, server, message):
                return
            self._drain.admit()
            try:
                await self._forward(exchange, server, principal, message, meta)
            except (Busy, ServerOffline):
                # A client whose discovery fails takes us for a legacy server.
                if not await self._answer_offline(exchange, server, message):
                    raise
        except RelayError as error:
            await exchange.error(error, id, server)

    async def _answer_offline(self, exchange: Exchange, server: str, message: dict[str, Any]) -> bool:
        """Send the cached answer; False if there is none for this request."""
        known = self._cached_answer(server, message["id"], message["method"])
        if known is not None:
            await exchange.json(200, known)
        return known is not None

    def _cached_answer(self, server: str, id: jsonrpc.RequestId, method: str) -> bytes | None:
        result = cached_modern_result(method, server, self._switch.registry.cached_catalogue(server))
        return None if result is None else orjson.dumps(jsonrpc.result_message(id, result))

    def _fallback(self, server: str, call: Call) -> Callable[[], str | None] | None:
        """Cached answer for discovery requests, used if the browser disconnects before it answers."""
        if call.method != methods.SERVER_DISCOVER and call.method not in LISTS:
            return None

        def fallback() -> str | None:
            known = self._cached_answer(server, call.id, call.method)
            return None if known is None else known.decode()

        return fallback

    def _param_headers_of(self, server: str, tool: str) -> tuple[ParamHeader, ...]:
        """Arguments of a tool that must be repeated in headers, from the cached catalogue; none for an unknown tool."""
        catalogue = self._switch.registry.find(server).catalogue
        if catalogue is None:
            return ()
        return self._param_headers.find(server, catalogue, tool)

    def _catalogue_number(self, server: str) -> int | None:
        catalogue = self._switch.registry.find(server).catalogue
        return None if catalogue is None else catalogue.number

    def begin(
        self, request: RequestHeaders, server: str, principal: Principal, message: dict[str, Any], *, is_plain: bool
    ) -> StartedCall | None:
        """Start a request that needs no wait; None, with no side effect, if it needs one. Raises RelayError.

        `is_plain`: no header has to be copied into the message.
        """
        check_message(message)
        meta = check_request(request, message, lambda tool: self._param_headers_of(server, tool))
        trace = self._traces.begin({}, request.header, server, message)
        call = self._call(server, principal, message, meta, trace)
        envelope = (
            self._verified_envelope(server, call, meta)
            if is_plain and matching_meta(request, message) is not None
            else None
        )
        again = None if envelope is None else partial(self._begin_again, envelope)
        return self._begin(server, principal, call, again)

    def _begin_again(
        self, envelope: VerifiedEnvelope, server: str, principal: Principal, message: Any
    ) -> StartedCall | None:
        if not envelope.holds_for(message) or self._catalogue_number(server) != envelope.catalogue:
            return None
        caller = self._pins.caller(server, envelope.caller)
        payload = orjson.dumps(message).decode()
        call = Call(self._switch.new_channel(), message["id"], methods.TOOLS_CALL, payload, caller, None, envelope.name)
        return self._begin(server, principal, call)

    def _verified_envelope(self, server: str, call: Call, meta: dict[str, Any]) -> VerifiedEnvelope | None:
        if call.name is None or self._param_headers_of(server, call.name):
            return None
        about = meta[eras.META_VERSION], meta.get(eras.META_CLIENT), meta[eras.META_CAPABILITIES]
        return VerifiedEnvelope(call.name, *about, self._catalogue_number(server), _caller(call.caller.principal, meta))

    def _begin(
        self, server: str, principal: Principal, call: Call, again: RepeatCall | None = None
    ) -> StartedCall | None:
        pending = self._switch.start_now(server, call)
        if pending is None:
            return None
        if not pending.is_done:
            pending.on_pin = lambda tab: self._pins.pin(server, call.caller, tab)
        return StartedCall(
            pending,
            principal,
            headers=JSON_ONLY,
            status_of=status_of,
            resume=lambda exchange: self._answer(exchange, server, pending),
            repeat=again,
        )

    def _call(
        self, server: str, principal: Principal, message: dict[str, Any], meta: dict[str, Any], trace: Trace | None
    ) -> Call:
        return Call(
            channel=self._switch.new_channel(),
            id=message["id"],
            method=message["method"],
            # Forward the parsed message, not the received text: both sides then agree on a duplicate key.
            payload=orjson.dumps(message).decode(),
            caller=self._pins.caller(server, _caller(principal.id, meta)),
            trace=trace,
            name=name_of(message),
        )

    async def _forward(
        self, exchange: Exchange, server: str, principal: Principal, message: dict[str, Any], meta: dict[str, Any]
    ) -> None:
        trace = self._traces.begin(exchange.scope, exchange.header, server, message)
        call = self._call(server, principal, message, meta, trace)
        wanted = SubscriptionFilter.of(message["params"]) if call.method == methods.SUBSCRIPTIONS_LISTEN else None
        # It is forwarded as text; the parsed values must not stay in memory during the call.
        message["params"] = None
        meta.clear()
        if wanted is not None:
            await self._listen(exchange, server, call, wanted)
            return
        pending = await self._switch.start(server, call, self._fallback(server, call))
        if not pending.is_done:
            pending.on_pin = lambda tab: self._pins.pin(server, call.caller, tab)
        await self._answer(exchange, server, pending)

    async def _listen(self, exchange: Exchange, server: str, call: Call, wanted: SubscriptionFilter) -> None:
        is_held = not self._switch.is_up(server)
        if is_held:
            catalogue = self._switch.registry.cached_catalogue(server)
            with self._switch.holding(call):
                await self._subscriptions.hold(exchange, server, call, wanted, catalogue)
            if exchange.is_gone or self._subscriptions.is_closed:
                return
        pending = await self._switch.start(server, call)
        with self._subscriptions.listener(server, pending, wanted, is_acknowledged=is_held) as listener:
            await self._answer(
                exchange, server, pending, is_redundant=listener.is_redundant, closing_event=final_response(call.id)
            )

    async def _answer(
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
            on_gone=lambda: self._switch.abandon(server, pending, "the client closed the stream"),
            is_redundant=is_redundant,
            closing_event=closing_event,
        )


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
