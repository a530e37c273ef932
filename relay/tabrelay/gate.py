"""The gate: one ASGI wrapper around everything, HTTP and WebSocket alike, that denies by default.

Order: Host, Origin, is it a public route?, token, scope. A route that nobody listed needs a token, so a route added
later is closed until somebody opens it here by name. WebSockets are refused before the 101, with a real HTTP status.
Nothing behind the gate ever sees a token: headers and subprotocol entries that carry one are taken out on the way in.

It decides nothing about hosts, origins and scopes itself (policy does), and knows no MCP beyond the shape of an error.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabrelay.policy import ADMIN, CALL, SERVE, Policy, Principal, Refuse, allows, unauthorized
from tabrelay.tokens import Tokens
from tabserver.wire import jsonrpc
from tabserver.wire.frames import SUBPROTOCOL

ANYONE = Principal("anyone", frozenset({CALL, SERVE}))
CLOSE_CODES = {401: 4401, 403: 4403, 421: 4403}  # for servers that can't refuse a WebSocket with an HTTP status

# Shared with every origin, as any page that imports the worker needs them and they hold nothing of the user's.
_SHARED = re.compile(r"/-/(healthz|manifest\.json|assets/.+|[A-Za-z0-9_.-]+\.(m?js|d\.ts|map))")
_PUBLIC = re.compile(r"/|/-/demo|/-/(demo|page)/.*|/\.well-known/.*|/favicon\.ico")

_CORS_METHODS = b"GET, POST, DELETE"
_CORS_HEADERS = (
    "Content-Type, Accept, Authorization, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID"
)
_MCP_PARAM = re.compile(r"mcp-param-[a-z0-9!#$%&'*+.^_`|~-]+")

_DEFAULT_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True, slots=True)
class Route:
    """What the gate asks of a request. ``needs``: the scope; None with ``is_public`` False: any valid token."""

    is_public: bool = False
    is_shared: bool = False
    has_cors: bool = False
    needs: str | None = None
    server: str | None = None
    speaks_rpc: bool = False


@lru_cache(maxsize=256)  # calls go to few paths, again and again
def route(kind: str, method: str, path: str) -> Route:
    """The one table of who may go where; everything that is not named wants the token file's own token."""
    is_read = kind == "http" and method in ("GET", "HEAD")
    if is_read and _SHARED.fullmatch(path):
        return Route(is_public=True, is_shared=True)
    if is_read and _PUBLIC.fullmatch(path):
        return Route(is_public=True)
    if kind == "http" and path == "/-/pair":
        return Route(is_public=method == "POST", has_cors=True, needs=ADMIN)
    if kind == "http" and path == "/-/status":
        return Route(has_cors=True)
    first, _, rest = path.removeprefix("/").partition("/")
    if kind == "http" and path.startswith("/-/probe/"):
        return Route(has_cors=True, needs=SERVE, server=rest.partition("/")[2])
    if first and not first.startswith(("-", ".")):
        needs = SERVE if kind == "websocket" else CALL
        return Route(has_cors=True, needs=needs, server=first, speaks_rpc=kind == "http")
    return Route(needs=ADMIN)


class Gate:
    """Wraps the whole application; ``scope["state"]["principal"]`` is set for whoever was let in with a token."""

    def __init__(
        self,
        app: ASGIApp,
        policy: Policy,
        tokens: Tokens,
        *,
        no_auth: bool = False,
        plain: frozenset[str] = frozenset(),
    ) -> None:
        """`plain`: servers whose pages may dial without a token, on the strength of their Origin."""
        self._app = app
        self._policy = policy
        self._tokens = tokens
        self._no_auth = no_auth
        self._plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):  # lifespan
            await self._app(scope, receive, send)
            return
        asked = route(scope["type"], scope.get("method", "GET"), scope["path"])
        origins = _values(scope, b"origin")
        # Several Origin headers are joined into something that no list can hold.
        origin = ", ".join(origins) if origins else None
        refusal = self._policy.check_host(_values(scope, b"host"))
        if refusal is None and not asked.is_shared:
            refusal = self._policy.check_origin(origin)
        if refusal is not None:
            await _refuse(refusal, asked, scope, receive, send)
            return
        if asked.has_cors and origin is not None:
            send = _with_cors(send, origin)
            if _is_preflight(scope):
                await _preflight(scope, send)
                return
        admitted = None if asked.is_public else self._admit(asked, scope, origin)
        if isinstance(admitted, Refuse):
            await _refuse(admitted, asked, scope, receive, send)
            return
        inner = _without_secrets(scope)
        inner.setdefault("state", {})["principal"] = admitted
        await self._app(inner, receive, _with_defaults(send) if scope["type"] == "http" else send)

    def _admit(self, asked: Route, scope: Scope, origin: str | None) -> Principal | Refuse:
        token = _token(scope)
        principal = self._tokens.identify(token, origin) if token else None
        if principal is None and token and self._tokens.identify(token, None) is not None:
            return Refuse(403, "forbidden", "This token belongs to another origin. Pair this page: tabrelay pair")
        if token is None and origin is not None and self._is_plain(asked, scope):
            # The origin was compared with the list already. Whoever sends none, or anything for a token, is not meant.
            return Principal(f"origin:{origin}", frozenset({SERVE}), origin, asked.server)
        if principal is None and self._no_auth:
            principal = ANYONE
        if principal is None:
            return unauthorized(asked.needs, token is not None)
        return allows(principal, asked.needs, asked.server) or principal

    def _is_plain(self, asked: Route, scope: Scope) -> bool:
        """A WebSocket at exactly the URL of a server that is open to pages with no link and no token."""
        if scope["type"] != "websocket" or asked.server not in self._plain or scope["path"] != f"/{asked.server}":
            return False
        return SUBPROTOCOL not in scope.get("subprotocols", ())


def _values(scope: Scope, name: bytes) -> list[str]:
    """Every value of a header. httptools leaves trailing blanks on values, so they are taken off here."""
    return [value.strip(b" \t").decode("latin-1") for key, value in scope["headers"] if key == name]


def _token(scope: Scope) -> str | None:
    """The one token of a request; "" (never valid) if what was sent is malformed or ambiguous."""
    found: list[str] = []
    for value in _values(scope, b"authorization"):
        scheme, _, rest = value.partition(" ")
        found.append(rest.strip() if scheme.lower() == "bearer" else "")
    for entry in _bearers(scope.get("subprotocols", ())):
        try:
            text = entry.removeprefix("bearer.")
            found.append(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii"))
        except (binascii.Error, UnicodeDecodeError, ValueError):
            found.append("")
    if not found:
        return None
    return found[0] if len(found) == 1 else ""


def _bearers(subprotocols: Iterable[str]) -> list[str]:
    return [entry for entry in subprotocols if entry.startswith("bearer.")]


def _without_secrets(scope: Scope) -> Scope:
    hidden = (b"authorization", b"sec-websocket-protocol")
    inner = {**scope, "headers": [(key, value) for key, value in scope["headers"] if key not in hidden]}
    if "subprotocols" in scope:
        secret = _bearers(scope["subprotocols"])
        inner["subprotocols"] = [entry for entry in scope["subprotocols"] if entry not in secret]
        if inner["subprotocols"]:
            inner["headers"].append((b"sec-websocket-protocol", ", ".join(inner["subprotocols"]).encode("latin-1")))
    return inner


def _with_defaults(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = dict(message.get("headers", ()))  # ASGI: names are in lower case
            missing = [pair for pair in _DEFAULT_HEADERS if pair[0] not in present]
            message = {**message, "headers": [*message.get("headers", ()), *missing]}
        await send(message)

    return sender


def _with_cors(send: Send, origin: str) -> Send:
    """Only for origins that were admitted, so never `*`; refusals get it too, or the page could not read the reason."""
    extra = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate"),
        (b"vary", b"Origin"),
    ]

    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return sender


def _is_preflight(scope: Scope) -> bool:
    is_options = scope["type"] == "http" and scope["method"] == "OPTIONS"
    return is_options and bool(_values(scope, b"access-control-request-method"))


async def _preflight(scope: Scope, send: Send) -> None:
    wanted = ",".join(_values(scope, b"access-control-request-headers")).lower().split(",")
    params = [name.strip() for name in wanted if _MCP_PARAM.fullmatch(name.strip())]
    headers = [
        (b"access-control-allow-methods", _CORS_METHODS),
        (b"access-control-allow-headers", ", ".join([_CORS_HEADERS, *params]).encode("latin-1")),
        (b"access-control-max-age", b"600"),
        (b"vary", b"Access-Control-Request-Headers"),
    ]
    await _with_defaults(send)({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(refusal: Refuse, asked: Route, scope: Scope, receive: Receive, send: Send) -> None:
    body: dict[str, object] = {"error": refusal.reason, "message": refusal.message}
    if asked.speaks_rpc:
        data = {"reason": refusal.reason, "delivered": "no", "retryable": False, "server": asked.server}
        body = jsonrpc.error_message(None, jsonrpc.INVALID_REQUEST, refusal.message, data)
    text = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refusal.headers]
    prefix = "http"
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": CLOSE_CODES[refusal.status], "reason": refusal.reason})
            return
        prefix = "websocket.http"
        headers += _DEFAULT_HEADERS
    else:
        send = _with_defaults(send)
    await send({"type": f"{prefix}.response.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": text})
