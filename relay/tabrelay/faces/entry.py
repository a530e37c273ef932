"""Where MCP over HTTP comes in: `/{server}`, every era at one URL. Decides the era, then hands over."""

from __future__ import annotations

from typing import Any, Final

from tabrelay.config import Settings
from tabrelay.drain import Drain
from tabrelay.errors import BadRequest, RelayError
from tabrelay.faces.editors import Editors
from tabrelay.faces.exchange import Exchange, Receive, Scope, Send
from tabrelay.faces.handshake import Handshake
from tabrelay.faces.mailbox import NOTHING, Mailbox
from tabrelay.faces.modern import Modern
from tabrelay.faces.negotiation import JSON, SSE, accepts
from tabrelay.faces.seal import Seal
from tabrelay.faces.sse import Sse
from tabrelay.policy import Principal
from tabrelay.switch import Switch
from tabserver.wire import eras

VERSION_HEADER: Final = b"mcp-protocol-version"


class Entry:
    """ASGI application for `/{server}` over HTTP. Plain ASGI: this is the hot path."""

    def __init__(self, switch: Switch, settings: Settings, drain: Drain, seal: Seal, editors: Editors) -> None:
        self._switch = switch
        self._exchanges = drain.exchanges
        self._mailbox = Mailbox(settings, editors)
        self._modern = Modern(switch, settings, drain)
        self._handshake = Handshake(switch, settings, drain, seal)
        self._sse = Sse(self._handshake, self._mailbox, settings, drain)

    def came_up(self, server: str) -> None:
        self._handshake.came_up(server)
        self._modern.came_up(server)

    def went(self, server: str, changes: frozenset[str]) -> None:
        """Of several browsers under this name one is gone; in the one that is in front now these lists are others."""
        self._handshake.went(server, changes)

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        """The lists are not those that clients know."""
        self._handshake.lists_changed(server, lists)
        self._modern.lists_changed(server, lists)

    def dismiss(self, principals: set[str]) -> None:
        """Their tokens were revoked: what they began ends."""
        self._handshake.dismiss(principals)

    def close(self) -> None:
        """The relay stops: what would not end by itself ends now."""
        self._handshake.close()
        self._modern.close()
        self._sse.close()

    def flush(self) -> None:
        self._handshake.flush()
        self._modern.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._exchanges:
            await self._answer(Exchange(scope, receive, send), scope)

    async def _answer(self, exchange: Exchange, scope: Scope) -> None:
        principal: Principal = scope["state"]["principal"]
        server, _, place = scope["path"].strip("/").partition("/")
        try:
            self._switch.registry.find(server)
            if place:
                await self._beside(exchange, server, principal, place)
            elif exchange.method == "POST":
                await self._post(exchange, server, principal)
            elif exchange.method not in ("GET", "DELETE"):
                raise _not_allowed("GET, POST, DELETE")
            elif _is_modern_version(exchange):
                raise _not_allowed("POST")
            elif exchange.method == "GET":
                _check_accept(exchange, SSE)
                await self._handshake.get(exchange, server, principal)
            else:
                await self._handshake.delete(exchange, server, principal)
        except RelayError as error:
            await exchange.error(error, None, server)

    async def _beside(self, exchange: Exchange, server: str, principal: Principal, place: str) -> None:
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
            await self._switch.meet(server)
            await self._sse.post(exchange, server, principal)

    async def _post(self, exchange: Exchange, server: str, principal: Principal) -> None:
        _check_content_type(exchange)
        _check_accept(exchange, JSON, SSE)
        message = await self._mailbox.read(exchange)
        if message is NOTHING:
            return
        await self._switch.meet(server)
        if _is_modern_version(exchange) or _has_envelope(message):
            await self._modern(exchange, server, principal, message)
        else:
            await self._handshake.post(exchange, server, principal, message)


def _is_modern_version(exchange: Exchange) -> bool:
    version = exchange.header(VERSION_HEADER)
    return version is not None and version not in eras.LEGACY_VERSIONS


def _has_envelope(message: Any) -> bool:
    """Body first: a modern request that lost its header must get the modern error, or clients take us for legacy."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and eras.META_VERSION in meta


def _check_content_type(exchange: Exchange) -> None:
    types = {value.partition(";")[0].strip().lower() for value in exchange.headers(b"content-type")}
    if types != {JSON}:  # of two that differ, nobody knows which one the client means
        raise BadRequest("Send the message as Content-Type: application/json.", status=415, reason="content_type")
    if exchange.header(b"content-encoding") not in (None, "", "identity"):
        # RFC 9110, 15.5.16: which ones would do is said in Accept-Encoding.
        plain = ((b"accept-encoding", b"identity"),)
        text = "Send the message as it is, without Content-Encoding."
        raise BadRequest(text, status=415, reason="content_encoding", headers=plain)


def _check_accept(exchange: Exchange, *wanted: str) -> None:
    if not accepts(exchange.accept, wanted):
        raise BadRequest(f"Send Accept: {', '.join(wanted)}.", status=406, reason="not_acceptable")


def _not_allowed(methods: str) -> BadRequest:
    return BadRequest(
        f"This method is not allowed here. Allowed: {methods}.",
        status=405,
        reason="method_not_allowed",
        headers=((b"allow", methods.encode()),),
    )
