"""ASGI middleware for authentication and authorization of all HTTP requests and WebSockets; denies by default.

Order of checks: Host, Origin, public route, token, scope, rate. A route that is not listed needs a token, so a route
that is added later is closed until it is opened by name. WebSockets are refused before the 101, with an HTTP status.
The application never receives a token: headers and subprotocol entries that contain one are removed.

Does not decide about hosts, origins and scopes (`policy`) nor which route needs what (`routes`). `responses` writes the
refusals, `active_requests` ends requests of revoked tokens.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.admission.active_requests import ActiveRequests
from tabrelay.admission.policy import Policy, Refuse, allows, rate_limited, unauthorized
from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.admission.responses import ResponseWriter, is_preflight
from tabrelay.admission.routes import Route, route
from tabrelay.admission.tokens import Tokens
from tabrelay.calls.principal import CALL, METRICS, SERVE, Principal
from tabrelay.calls.started import STARTED_CALL
from tabrelay.http.headers import RequestHeaders
from tabserver.wire.frames import SUBPROTOCOL

if TYPE_CHECKING:
    from tabrelay.admission.oauth import TokenVerifier

UNLIMITED = RateLimiter(0, 0)
NULL = "null"  # the origin of files and sandboxed frames: any site can have it
UNAUTHENTICATED = Principal("anyone", frozenset({CALL, SERVE, METRICS}))  # style: ok (an id that is in call logs)


class Gate:
    """Wraps the whole application; ``scope["state"]["principal"]`` is set for requests with a token."""

    def __init__(
        self,
        app: ASGIApp,
        policy: Policy,
        tokens: Tokens,
        *,
        no_auth: bool = False,
        plain: frozenset[str] = frozenset(),
        rates: RateLimiter = UNLIMITED,
        resource: TokenVerifier | None = None,
        on_refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`plain`: servers whose pages may connect without a token; their Origin decides. `rates`: request rate of one
        principal. `resource`: also accepts tokens of an authorization server. `on_refused` is called with the reason
        of each refusal."""
        self._app = app
        self._policy = policy
        self._tokens = tokens
        self._no_auth = no_auth
        self._plain = plain
        self._rates = rates
        self._resource = resource
        self._on_refused = on_refused
        self._active_requests = ActiveRequests(self._is_still_admitted)

    def _is_still_admitted(self, principal: Principal) -> bool:
        if self._resource is not None and (principal.credential or "").startswith("oauth:"):
            return self._resource.is_valid(principal)
        return self._tokens.is_valid(principal)

    def end_revoked(self) -> None:
        """A token was revoked: end its requests and WebSockets now."""
        self._active_requests.end_revoked()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):  # lifespan
            await self._app(scope, receive, send)
            return
        asked = route(scope["type"], scope.get("method", "GET"), scope["path"])
        out = ResponseWriter(scope, asked, send)
        if (begun := scope.get(STARTED_CALL)) is not None:
            # `try_admit` has just admitted it, on the fast path.
            await self._run_app(scope, receive, out, asked, begun.principal)
            return
        origins = _values(scope, b"origin")
        # Several Origin headers are joined into a value that is in no list.
        # defence: two Origin headers
        origin = ", ".join(origins) if origins else None
        refusal = self._policy.check_host(_values(scope, b"host"))
        origin_check = self._check_origin(asked, origin)
        if refusal is None and isinstance(origin_check, Refuse):
            refusal = origin_check
        if refusal is not None:
            self._on_refused(refusal.reason)
            await out.refuse(refusal, receive)
            return
        # defence: CORS for admitted origins only
        if asked.has_cors and origin is not None:
            out.allow_origin(origin)
            if is_preflight(scope):
                await out.preflight()
                return
        token = _sent_token(scope)
        if self._resource is not None and not asked.is_public:
            await self._resource.prepare(token)
        admitted = None
        if not asked.is_public:
            is_plain = self._is_plain(asked, scope)
            admitted = self._admit(asked, token, origin, is_foreign_origin=origin_check is not None, is_plain=is_plain)
        # defence: the rate
        if isinstance(admitted, Principal) and (wait_s := self._rates.take(admitted.id, time.monotonic())):
            admitted = rate_limited(wait_s)
        if isinstance(admitted, Refuse):
            self._on_refused(admitted.reason)
            await out.refuse(self._challenge(asked, scope, admitted), receive)
            return
        await self._run_app(scope, receive, out, asked, admitted)

    def try_admit(self, path: str, heading: RequestHeaders) -> Principal | None:
        """The principal of a POST to a server, if it can be decided without awaiting. None: nothing was counted, and
        `__call__` decides and writes the refusal, if any.

        Only for programs, which send no Origin.
        """
        asked = route("http", "POST", path)
        # defence: a rebound Host on the fast path
        # defence: an Origin on the fast path
        if asked.is_public or b"origin" in heading or self._policy.check_host(heading.headers(b"host")) is not None:
            return None
        admitted = self._admit(asked, _token(heading.headers(b"authorization")), None)
        if not isinstance(admitted, Principal) or self._rates.take(admitted.id, time.monotonic()):
            return None
        return admitted

    def admit_again(self, principal: Principal) -> bool:
        """Is a request with the same header as an admitted one admitted too? False: nothing was counted."""
        if not (self._tokens.is_valid(principal) if self._resource is None else self._is_still_admitted(principal)):
            return False
        return not self._rates.is_limited or not self._rates.take(principal.id, time.monotonic())

    def undo_admit(self, principal: Principal) -> None:
        """`__call__` will check the request after all: refund its share of the rate."""
        self._rates.refund(principal.id)

    async def _run_app(
        self, scope: Scope, receive: Receive, out: ResponseWriter, asked: Route, admitted: Principal | None
    ) -> None:
        # defence: tokens behind the gate
        inner = _without_secrets(scope)
        inner.setdefault("state", {})["principal"] = admitted
        if scope["type"] == "websocket":
            inner["state"]["signature"] = self._tokens.socket_signature(_sent_token(scope) or "")
        if admitted is None:
            await self._app(inner, receive, out.send)
            return
        request = self._active_requests.open(admitted, scope["type"], receive)
        if STARTED_CALL in scope and not self._is_still_admitted(admitted):
            request.end()
        try:
            await self._app(inner, request.receive, out.send)
        finally:
            self._active_requests.close(request)
        if request.is_over:
            refusal = self._challenge(asked, scope, unauthorized(asked.needs, was_given=True))
            await out.end_revoked(refusal, receive)

    def _challenge(self, asked: Route, scope: Scope, refusal: Refuse) -> Refuse:
        """Add the address of the authorization server's metadata, for clients of a server that accepts its tokens."""
        if self._resource is None or refusal.status not in (401, 403) or asked.server is None:
            return refusal
        was_given = _sent_token(scope) is not None
        return self._resource.challenge(refusal, asked.needs, asked.server, was_given, asked.place)

    def _check_origin(self, asked: Route, origin: str | None) -> Refuse | bool | None:
        """None for a listed origin, or none. For another one: True if this route accepts it, else the refusal."""
        # defence: a stolen token in a page of another origin
        if asked.is_shared or (refusal := self._policy.check_origin(origin)) is None or origin is None:
            return None
        # defence: Origin null may ask
        if asked.is_for_any_origin and origin != NULL:
            return True
        return True if asked.is_for_paired and self._tokens.has_page(origin) else refusal

    def _admit(
        self,
        asked: Route,
        token: str | None,
        origin: str | None,
        *,
        is_foreign_origin: bool = False,
        is_plain: bool = False,
    ) -> Principal | Refuse:
        principal = self._tokens.identify(token, origin) if token else None
        if principal is None and token and self._resource is not None:
            found = self._resource.admit(token, asked.needs, asked.server)
            if isinstance(found, Refuse):
                return found
            principal = found
        # defence: a paired origin with another token
        if is_foreign_origin and (principal is None or principal.origin != origin):
            # A paired origin needs the token that was issued to it; no other token is accepted.
            return unauthorized(asked.needs, token is not None)
        if principal is None and token and self._tokens.identify(token, None) is not None:
            return Refuse(403, "forbidden", "This token belongs to another origin. Pair this page: tabrelay pair")
        if token is None and origin is not None and is_plain:
            # The origin is in the list. A request without an Origin, or with any token, does not get here.
            return Principal(f"origin:{origin}", frozenset({SERVE}), origin, frozenset({asked.server or ""}))
        if principal is None and self._no_auth:
            principal = UNAUTHENTICATED
        if principal is None:
            # defence: deny by default
            return unauthorized(asked.needs, token is not None)
        # defence: scope and server of a token
        return allows(principal, asked.needs, asked.server) or principal

    def _is_plain(self, asked: Route, scope: Scope) -> bool:
        """Is it a WebSocket at exactly the URL of a server that accepts pages without a link and a token?"""
        if scope["type"] != "websocket" or asked.server not in self._plain or scope["path"] != f"/{asked.server}":
            return False
        return SUBPROTOCOL not in scope.get("subprotocols", ())


def _values(scope: Scope, name: bytes) -> list[str]:
    """Every value of a header. httptools leaves trailing blanks on values, so they are taken off here."""
    return [value.strip(b" \t").decode("latin-1") for key, value in scope["headers"] if key == name]


def _sent_token(scope: Scope) -> str | None:
    return _token(_values(scope, b"authorization"), scope.get("subprotocols", ()))


def _token(authorizations: list[str], subprotocols: Iterable[str] = ()) -> str | None:
    """The one token of a request; "" (never valid) if what was sent is malformed or ambiguous."""
    found: list[str] = []
    for value in authorizations:
        scheme, _, rest = value.partition(" ")
        found.append(rest.strip() if scheme.lower() == "bearer" else "")
    for entry in _bearers(subprotocols):
        try:
            text = entry.removeprefix("bearer.")
            found.append(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii"))
        except (binascii.Error, UnicodeDecodeError, ValueError):
            found.append("")
    if not found:
        return None
    # defence: two tokens in one request
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
