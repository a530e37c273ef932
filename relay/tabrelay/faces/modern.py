"""The 2026-07-28 face: every request carries its own envelope, there are no sessions, hanging up is cancelling.

Owns the validation ladder and the status map; what a method means is the server's business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import orjson

from tabrelay.calls import LISTS, Call, Pending, Reply
from tabrelay.config import Settings
from tabrelay.drain import Drain
from tabrelay.errors import BadRequest, Busy, RelayError, ServerOffline
from tabrelay.faces.diary import Diary
from tabrelay.faces.exchange import Exchange
from tabrelay.faces.listening import LISTEN, Listening, farewell
from tabrelay.faces.message import check_message, request_id
from tabrelay.faces.pins import Pins
from tabrelay.faces.recall import recall_modern
from tabrelay.faces.stream import answer
from tabrelay.mirrors import Mirror, check, decode, mirrors, mismatch
from tabrelay.policy import Principal
from tabrelay.shelf import Catalogue
from tabrelay.switch import Switch
from tabserver.wire import eras, jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

VERSION_HEADER: Final = b"mcp-protocol-version"
METHOD_HEADER: Final = b"mcp-method"
NAME_HEADER: Final = b"mcp-name"
# Where the value that `Mcp-Name` repeats stands in the params.
NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
REMOVED: Final = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    }
)
DISCOVER: Final = "server/discover"
PATIENCE_S: Final = 15.0
MAX_KNOWN: Final = 4096
STATUS: Final = {
    jsonrpc.METHOD_NOT_FOUND: 404,
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    jsonrpc.MISSING_CAPABILITY: 400,
    jsonrpc.UNSUPPORTED_VERSION: 400,
}


class Modern:
    """Answers modern POSTs."""

    def __init__(self, switch: Switch, settings: Settings, drain: Drain) -> None:
        self._switch = switch
        self._drain = drain
        self._keepalive_s = settings.keepalive_s
        self._listening = Listening(settings.keepalive_s)
        self._pins = Pins(Diary(settings.home / "pins.json"))
        self._mirrors: dict[str, tuple[Catalogue, dict[str, tuple[Mirror, ...]]]] = {}

    def came_up(self, server: str) -> None:
        self._listening.came_up(server)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        self._listening.lists_changed(server, lists)

    def close(self) -> None:
        self._listening.close()

    def flush(self) -> None:
        self._pins.flush()

    async def __call__(self, exchange: Exchange, server: str, principal: Principal, message: Any) -> None:
        id = request_id(message)
        try:
            check_message(message)
            if "method" not in message:
                raise BadRequest("The body must be one JSON-RPC request: an object with a method.")
            if "id" not in message:
                _check_notification(exchange)
                await exchange.reply(202)
                return
            meta = _check(exchange, message, lambda tool: self._mirrored(server, tool))
            is_there = self._switch.is_up(server) and not self._drain.is_on
            if not is_there and await self._recall(exchange, server, message):
                return
            self._drain.admit()
            try:
                await self._forward(exchange, server, principal, message, meta)
            except (Busy, ServerOffline):
                # A client that can't discover takes us for a server of the other era.
                if not await self._recall(exchange, server, message):
                    raise
        except RelayError as error:
            await exchange.error(error, id, server)

    async def _recall(self, exchange: Exchange, server: str, message: dict[str, Any]) -> bool:
        """Answer from memory what can be; False if this can't."""
        known = self._remembered(server, message["id"], message["method"])
        if known is not None:
            await exchange.json(200, known)
        return known is not None

    def _remembered(self, server: str, id: jsonrpc.RequestId, method: str) -> bytes | None:
        result = recall_modern(method, server, self._switch.registry.recall(server))
        return None if result is None else orjson.dumps(jsonrpc.result_message(id, result))

    def _rescue(self, server: str, call: Call) -> Callable[[], str | None] | None:
        """For discovery only: what a browser would have said, if it leaves before it says it."""
        if call.method != DISCOVER and call.method not in LISTS:
            return None

        def rescue() -> str | None:
            known = self._remembered(server, call.id, call.method)
            return None if known is None else known.decode()

        return rescue

    def _mirrored(self, server: str, tool: str) -> tuple[Mirror, ...]:
        """From the last known catalogue; a tool that is not in it has nothing to compare."""
        catalogue = self._switch.registry.find(server).catalogue
        if catalogue is None:
            return ()
        known = self._mirrors.get(server)
        if known is None or known[0] is not catalogue:
            rows = {tool.get("name"): mirrors(tool.get("inputSchema")) for tool in catalogue.tools}
            known = self._mirrors[server] = (catalogue, {str(name): row for name, row in rows.items() if row})
        return known[1].get(tool, ())

    async def _forward(
        self, exchange: Exchange, server: str, principal: Principal, message: dict[str, Any], meta: dict[str, Any]
    ) -> None:
        call = Call(
            channel=self._switch.new_channel(),
            id=message["id"],
            method=message["method"],
            # Forward what was understood, not what was written: both sides then see one meaning of a duplicate key.
            payload=orjson.dumps(message).decode(),
            caller=self._pins.caller(server, _caller(principal.id, meta)),
        )
        if call.method == LISTEN:
            await self._listen(exchange, server, call, message["params"])
            return
        pending = await self._switch.start(server, call, self._rescue(server, call))
        pending.on_pin = lambda tab: self._pins.pin(server, call.caller, tab)
        await self._answer(exchange, server, pending)

    async def _listen(self, exchange: Exchange, server: str, call: Call, params: dict[str, Any]) -> None:
        is_held = not self._switch.is_up(server)
        if is_held:
            catalogue = self._switch.registry.recall(server)
            await self._listening.hold(exchange, server, call, params, catalogue)
            if exchange.is_gone or self._listening.is_closed:
                return
        pending = await self._switch.start(server, call)
        with self._listening.listener(server, pending, params, is_acknowledged=is_held) as listener:
            await self._answer(exchange, server, pending, is_known=listener.is_known, last_words=farewell(call.id))

    async def _answer(self, exchange: Exchange, server: str, pending: Pending, **more: Any) -> None:
        await answer(
            exchange,
            pending,
            server,
            patience_s=PATIENCE_S,
            keepalive_s=self._keepalive_s,
            status_of=_status,
            on_gone=lambda: self._switch.abandon(server, pending, "the client closed the stream"),
            **more,
        )


def _caller(principal: str, meta: dict[str, Any]) -> Caller:
    """A client says the same of itself with every request: one value for all of them, whose text is made once."""
    about = orjson.dumps((meta[eras.META_VERSION], meta.get(eras.META_CLIENT), meta[eras.META_CAPABILITIES]))
    return (_known_caller if len(about) <= MAX_KNOWN else _new_caller)(principal, about)


def _new_caller(principal: str, about: bytes) -> Caller:
    version, client, capabilities = orjson.loads(about)
    return Caller(
        era=Era.MODERN,
        version=version,
        principal=principal,
        client=client if isinstance(client, dict) else None,
        capabilities=capabilities,
    )


_known_caller = lru_cache(maxsize=256)(_new_caller)


def _status(reply: Reply) -> int:
    return STATUS.get(reply.error_code, 200) if reply.error_code is not None else 200


def _check_notification(exchange: Exchange) -> None:
    version = exchange.header(VERSION_HEADER)
    if version is not None and version not in eras.MODERN_VERSIONS:
        raise _unsupported(version)


def _check(
    exchange: Exchange, message: dict[str, Any], mirrored: Callable[[str], tuple[Mirror, ...]]
) -> dict[str, Any]:
    """The ladder: first failure wins, and the order is part of the contract. Gives back the envelope."""
    for header in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER):
        if exchange.is_repeated(header):
            raise mismatch(f"The header {header.decode()} is there more than once.")
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict):
        said = exchange.header(VERSION_HEADER)
        strange = "" if said is None or said in eras.MODERN_VERSIONS else f", and {said!r} is no version spoken here"
        raise _incomplete(f"params._meta is missing{strange}")
    version = meta.get(eras.META_VERSION)
    if not isinstance(version, str):
        raise _incomplete(f"params._meta has no {eras.META_VERSION}")
    if not isinstance(meta.get(eras.META_CAPABILITIES), dict):
        raise _incomplete(f"params._meta has no {eras.META_CAPABILITIES}")
    _compare(exchange, VERSION_HEADER, version)
    _compare(exchange, METHOD_HEADER, message["method"])
    assert isinstance(params, dict)
    named_by = NAMED_BY.get(message["method"])
    if named_by is not None:
        name = params.get(named_by)
        if not isinstance(name, str):
            raise _incomplete(f"params.{named_by} is missing")
        _compare(exchange, NAME_HEADER, name, encoded=True)
    if version not in eras.MODERN_VERSIONS:
        raise _unsupported(version)
    if message["method"] == "tools/call":
        check(mirrored(params["name"]), params.get("arguments"), exchange.headers)
    if message["method"] in REMOVED:
        raise BadRequest(
            f'"{message["method"]}" is not a method of {version}.',
            status=404,
            code=jsonrpc.METHOD_NOT_FOUND,
            reason="method_not_found",
        )
    return meta


def _compare(exchange: Exchange, header: bytes, expected: str, encoded: bool = False) -> None:
    value = exchange.header(header)
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
