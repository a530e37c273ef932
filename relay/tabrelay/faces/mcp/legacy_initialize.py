"""The `initialize` request: the client's description, and the server's answer or a cached one.

If no browser is connected, or it leaves before it answers, the answer is made from the cached catalogue, so that a
session can always be opened. Does not store sessions.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Call, Reply
from tabrelay.calls.principal import Principal
from tabrelay.calls.trace_context import Traces
from tabrelay.errors import BadAnswer, BadRequest, Busy, ServerOffline
from tabrelay.faces.mcp.jsonrpc import check_client_info
from tabrelay.faces.mcp.offline_answers import cached_legacy_result
from tabrelay.faces.mcp.session_ids import new_nonce
from tabrelay.http.exchange import Exchange
from tabrelay.payloads.list_checks import read_server_description
from tabrelay.routing.switch import Switch
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

MAX_ANSWER: Final = 1024 * 1024


class LegacyInitialize:
    """Answers `initialize`. One per relay."""

    def __init__(self, switch: Switch, traces: Traces) -> None:
        self._switch = switch
        self._traces = traces

    async def initialize(
        self, exchange: Exchange, server: str, channel: str, caller: Caller, message: dict[str, Any], *, is_there: bool
    ) -> tuple[bytes, bool]:
        """The server's answer if it is connected, else the cached one; and whether the server received the request."""
        is_sent = True

        def cached() -> str:
            nonlocal is_sent
            is_sent = False
            catalogue = self._switch.registry.cached_catalogue(server)
            result = cached_legacy_result(methods.INITIALIZE, {"protocolVersion": caller.version}, server, catalogue)
            return orjson.dumps(jsonrpc.result_message(message["id"], result)).decode()

        if is_there:
            trace = self._traces.begin(exchange.scope, exchange.header, server, message)
            call = Call(channel, message["id"], methods.INITIALIZE, orjson.dumps(message).decode(), caller, trace)
            message["params"] = (
                None  # it is forwarded as text; the parsed values must not stay in memory during the call
            )
            with suppress(Busy, ServerOffline):  # a session can be opened without the server
                reply = await self._switch.ask(server, call, cached)
                return _checked(reply, server, caller.version), is_sent
        return cached().encode(), False


def _checked(reply: Reply, server: str, version: str) -> bytes:
    """The server's InitializeResult, with defaults for required members that are missing or of another type.

    Raises BadAnswer if it is larger than MAX_ANSWER.
    """
    if reply.error_code is not None:
        return reply.payload.encode()
    if len(reply.raw) > MAX_ANSWER:
        raise BadAnswer(f"The server's answer to initialize has more than {MAX_ANSWER:,} characters.")
    message = orjson.loads(reply.payload)
    required = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": server, "version": "0"}}
    result = required | read_server_description(message["result"])
    return orjson.dumps(jsonrpc.result_message(message["id"], result))


def read_caller(principal: Principal, message: dict[str, Any]) -> Caller:
    """The caller that an `initialize` request describes. Raises BadRequest."""
    if "id" not in message:
        raise BadRequest("initialize must be a request: it has no id.")
    params = message.get("params")
    if not isinstance(params, dict):
        raise BadRequest("initialize needs params.", code=jsonrpc.INVALID_PARAMS, reason="invalid_params")
    client, capabilities = params.get("clientInfo"), params.get("capabilities")
    check_client_info(orjson.dumps((client, capabilities)))
    return Caller(
        era=Era.LEGACY,
        version=eras.negotiate(params.get("protocolVersion")),
        principal=principal.id,
        client=client if isinstance(client, dict) else None,
        capabilities=capabilities if isinstance(capabilities, dict) else {},
        session=new_nonce(),
    )
