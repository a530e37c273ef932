"""How a session of the handshake eras begins: who the client says it is, and what it is told of the server.

Where the session is kept, and what is said in it, is not known here.
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
    """One per relay."""

    def __init__(self, switch: Switch, traces: Traces) -> None:
        self._switch = switch
        self._traces = traces

    async def initialize(
        self, exchange: Exchange, server: str, channel: str, caller: Caller, message: dict[str, Any], *, is_there: bool
    ) -> tuple[bytes, bool]:
        """The server's own answer if it is there, else what we remember; and did the server hear of the client?"""
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
            message["params"] = None  # it goes on as text: a great many values must not wait for the answer too
            with suppress(Busy, ServerOffline):  # that is no reason not to begin
                reply = await self._switch.ask(server, call, cached)
                return _checked(reply, server, caller.version), is_sent
        return cached().encode(), False


def _checked(reply: Reply, server: str, version: str) -> bytes:
    """The server's answer to `initialize`, with what MCP requires in place of what is missing or of another type.

    Raises BadAnswer for one that is longer than any server's description of itself.
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
    """Who begins a session, as `initialize` says."""
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
