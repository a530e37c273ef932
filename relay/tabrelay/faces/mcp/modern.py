"""The 2026-07-28 face: every request carries its own envelope, there are no sessions, hanging up is cancelling.

Owns the validation ladder and the status map; what a method means is the server's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import orjson

from tabrelay import mcp_headers
from tabrelay.calls.calls import LISTS, Call, Notice, Pending, Reply
from tabrelay.calls.principal import Principal
from tabrelay.calls.started import Again, StartedCall
from tabrelay.calls.trace_context import Trace, Traces
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, Busy, RelayError, ServerOffline
from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.mcp.jsonrpc import NAMED_BY, check_client_info, check_message, name_of, request_id
from tabrelay.faces.mcp.modern_response import send_response
from tabrelay.faces.mcp.offline_answers import cached_modern_result
from tabrelay.faces.mcp.param_header_cache import ParamHeaderCache
from tabrelay.faces.mcp.session_store import SessionStore
from tabrelay.faces.mcp.subscriptions import SubscriptionFilter, Subscriptions, final_response
from tabrelay.faces.mcp.tab_pins import TabPins
from tabrelay.http.exchange import JSON_TYPE, Exchange
from tabrelay.http.headers import RequestHeaders
from tabrelay.http.param_headers import ParamHeader, check, decode, mismatch
from tabrelay.routing.drain import Drain
from tabrelay.routing.switch import Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import META_ACP, Caller

REMOVED: Final = frozenset(
    {
        methods.INITIALIZE,
        methods.PING,
        methods.LOGGING_SET_LEVEL,
        methods.RESOURCES_SUBSCRIBE,
        methods.RESOURCES_UNSUBSCRIBE,
        methods.TASKS_LIST,
        methods.TASKS_RESULT,
    }
)
STREAM_AFTER_S: Final = 15.0
JSON_ONLY: Final = (JSON_TYPE,)
MAX_KNOWN: Final = 4096
MOST_CALLERS: Final = 64  # asked for with the first call of a connection, which then keeps its own
STATUS: Final = {
    jsonrpc.METHOD_NOT_FOUND: 404,
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    jsonrpc.MISSING_CAPABILITY: 400,
    jsonrpc.UNSUPPORTED_VERSION: 400,
}


@dataclass(frozen=True, slots=True)
class VerifiedEnvelope:
    """A tool call whose body says what its header says. With the same header, another whose body says this too agrees
    with it as well: no step of the ladder could refuse it, and its caller is the same."""

    name: str
    version: Any
    client: Any
    capabilities: Any
    catalogue: int | None  # by its number: with this one, the tool wants no argument repeated in a header
    caller: Caller

    def holds_for(self, message: Any) -> bool:
        if type(message) is not dict or message.get("method") != methods.TOOLS_CALL or message.get("jsonrpc") != "2.0":
            return False
        params = message.get("params")
        # defence: a call like the one before it: another tool
        if type(params) is not dict or params.get("name") != self.name:
            return False
        meta, id = params.get("_meta"), message.get("id")
        return (
            type(meta) is dict
            and meta.get(eras.META_VERSION) == self.version
            # defence: a call like the one before it: another client
            and meta.get(eras.META_CLIENT) == self.client
            and meta.get(eras.META_CAPABILITIES) == self.capabilities
            # defence: a call like the one before it: a forged session
            and META_ACP not in meta  # which only the relay may say
            # defence: the length of an id, with the header of the call before
            and (type(id) is int or (type(id) is str and len(id) <= jsonrpc.MAX_ID))
            and ((token := meta.get("progressToken")) is None or jsonrpc.is_request_id(token))
        )


class ModernFace:
    """Answers modern POSTs."""

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
                # A client that can't discover takes us for a server of the other era.
                if not await self._answer_offline(exchange, server, message):
                    raise
        except RelayError as error:
            await exchange.error(error, id, server)

    async def _answer_offline(self, exchange: Exchange, server: str, message: dict[str, Any]) -> bool:
        """Answer from memory what can be; False if this can't."""
        known = self._cached_answer(server, message["id"], message["method"])
        if known is not None:
            await exchange.json(200, known)
        return known is not None

    def _cached_answer(self, server: str, id: jsonrpc.RequestId, method: str) -> bytes | None:
        result = cached_modern_result(method, server, self._switch.registry.recall(server))
        return None if result is None else orjson.dumps(jsonrpc.result_message(id, result))

    def _fallback(self, server: str, call: Call) -> Callable[[], str | None] | None:
        """For discovery only: what a browser would have said, if it leaves before it says it."""
        if call.method != methods.SERVER_DISCOVER and call.method not in LISTS:
            return None

        def fallback() -> str | None:
            known = self._cached_answer(server, call.id, call.method)
            return None if known is None else known.decode()

        return fallback

    def _param_headers_of(self, server: str, tool: str) -> tuple[ParamHeader, ...]:
        """From the last known catalogue; a tool that is not in it has nothing to compare."""
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
        """Start a request that needs no wait; None, and nothing was done, if it needs one. Raises what is wrong.

        `is_plain`: its header says nothing that its message has to be told.
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

    def _begin(self, server: str, principal: Principal, call: Call, again: Again | None = None) -> StartedCall | None:
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
            carry_on=lambda exchange: self._answer(exchange, server, pending),
            again=again,
        )

    def _call(
        self, server: str, principal: Principal, message: dict[str, Any], meta: dict[str, Any], trace: Trace | None
    ) -> Call:
        return Call(
            channel=self._switch.new_channel(),
            id=message["id"],
            method=message["method"],
            # Forward what was understood, not what was written: both sides then see one meaning of a duplicate key.
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
        # It goes on as text: a great many values must not wait for the answer too.
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
            catalogue = self._switch.registry.recall(server)
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
    """A client says the same of itself with every request: one value for all of them, whose text is made once."""
    about = orjson.dumps((meta[eras.META_VERSION], meta.get(eras.META_CLIENT), meta[eras.META_CAPABILITIES]))
    check_client_info(about)
    # As text: a small result of orjson.dumps keeps a buffer of 4 KiB, and this one is a key of the cache.
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


def status_of(reply: Reply) -> int:
    return STATUS.get(reply.error_code, 200) if reply.error_code is not None else 200


def check_notification(exchange: Exchange) -> None:
    version = exchange.header(mcp_headers.RAW_PROTOCOL_VERSION)
    if version is not None and version not in eras.MODERN_VERSIONS:
        raise _unsupported(version)


def check_request(
    request: RequestHeaders, message: dict[str, Any], param_headers_of: Callable[[str], tuple[ParamHeader, ...]]
) -> dict[str, Any]:
    """The ladder: first failure wins, and the order is part of the contract. Gives back the envelope."""
    if (meta := matching_meta(request, message)) is not None:
        check(param_headers_of(message["params"]["name"]), message["params"].get("arguments"), request.headers)
        return meta
    for header in (mcp_headers.RAW_PROTOCOL_VERSION, mcp_headers.RAW_METHOD, mcp_headers.RAW_NAME):
        if request.is_repeated(header):
            raise mismatch(f"The header {header.decode()} is there more than once.")
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict):
        named = request.header(mcp_headers.RAW_PROTOCOL_VERSION)
        strange = "" if named is None or named in eras.MODERN_VERSIONS else f", and {named!r} is no version spoken here"
        raise _incomplete(f"params._meta is missing{strange}")
    version = meta.get(eras.META_VERSION)
    if not isinstance(version, str):
        raise _incomplete(f"params._meta has no {eras.META_VERSION}")
    if not isinstance(meta.get(eras.META_CAPABILITIES), dict):
        raise _incomplete(f"params._meta has no {eras.META_CAPABILITIES}")
    _compare(request, mcp_headers.RAW_PROTOCOL_VERSION, version)
    _compare(request, mcp_headers.RAW_METHOD, message["method"])
    assert isinstance(params, dict)
    named_by = NAMED_BY.get(message["method"])
    if named_by is not None:
        name = params.get(named_by)
        if not isinstance(name, str):
            raise _incomplete(f"params.{named_by} is missing")
        _compare(request, mcp_headers.RAW_NAME, name, encoded=True)
    if version not in eras.MODERN_VERSIONS:
        raise _unsupported(version)
    if message["method"] == methods.TOOLS_CALL:
        check(param_headers_of(params["name"]), params.get("arguments"), request.headers)
    if message["method"] in REMOVED:
        raise BadRequest(
            f'"{message["method"]}" is not a method of {version}.',
            status=404,
            code=jsonrpc.METHOD_NOT_FOUND,
            reason="method_not_found",
        )
    return meta


def matching_meta(request: RequestHeaders, message: dict[str, Any]) -> dict[str, Any] | None:
    """The envelope of a tool call whose headers say just what its body says: no step of the ladder but the last could
    refuse it. None for all others."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict) or message["method"] != methods.TOOLS_CALL or request.has_repeated:
        return None
    assert isinstance(params, dict)
    version, name = meta.get(eras.META_VERSION), params.get("name")
    is_so = (
        version in eras.MODERN_VERSIONS
        and request.header(mcp_headers.RAW_PROTOCOL_VERSION) == version
        and request.header(mcp_headers.RAW_METHOD) == methods.TOOLS_CALL
        and isinstance(name, str)
        and request.header(mcp_headers.RAW_NAME) == name
        and name.isascii()
        and name.isprintable()
        and not name.startswith("=?")  # which may stand for another name
        and isinstance(meta.get(eras.META_CAPABILITIES), dict)
    )
    return meta if is_so else None


def _compare(request: RequestHeaders, header: bytes, expected: str, encoded: bool = False) -> None:
    value = request.header(header)
    if value is None:
        raise mismatch(f"The header {header.decode()} is missing.")
    if encoded:
        value = decode(header.decode(), value)
    if value != expected:
        raise mismatch(f"The header {header.decode()} does not say what the body says.")


def _incomplete(text: str) -> BadRequest:
    return BadRequest(f"The request is incomplete: {text}.", code=jsonrpc.INVALID_PARAMS, reason="invalid_params")


def _unsupported(version: str) -> BadRequest:
    return BadRequest(
        f"Protocol version {version!r} is not supported here.",
        code=jsonrpc.UNSUPPORTED_VERSION,
        reason="unsupported_version",
        extra={"supported": list(eras.MODERN_VERSIONS), "requested": version},
    )
