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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.admission.active_requests import ActiveRequests
from tabrelay.admission.policy import Policy, Refuse, allows, rate_limited, unauthorized
from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.admission.responses import ResponseWriter
from tabrelay.admission.routes import PAGE, Route, is_page_request, route
from tabrelay.admission.tokens import Tokens
from tabrelay.calls.principal import CALL, METRICS, SERVE, Principal
from tabrelay.http.headers import RequestHeaders
from tabrelay.system.program import NAME
from tabserver.wire.frames import SUBPROTOCOL

if TYPE_CHECKING:
    from tabrelay.admission.oauth import TokenVerifier

UNLIMITED = RateLimiter(0, 0)
NULL = "null"  # the origin of files and sandboxed frames: any site can have it
UNAUTHENTICATED = Principal("anyone", frozenset({CALL, SERVE, METRICS}))  # style: ok (an id that is in call logs)

OnRefused = Callable[[Refuse, Route, str, RequestHeaders], None]

# Key of the admission in the ASGI scope of a request that was decided before. Clients can't set it.
ADMISSION: Final = "tabrelay.admission"


@dataclass(frozen=True, slots=True)
class Admission:
    """Decision about a request. `principal`: who sends it; None if it is refused, or if no token is needed.

    `origin`: the origin of the page that may read the response. `waits_for_keys_of`: a token that can't be checked
    before keys of its issuer were fetched.
    """

    route: Route
    path: str
    principal: Principal | None = None
    refusal: Refuse | None = None
    origin: str | None = None
    is_preflight: bool = False
    waits_for_keys_of: str | None = field(default=None, repr=False)


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
        on_refused: OnRefused = lambda refusal, asked, kind, request: None,
        command: str = NAME,
    ) -> None:
        """`plain`: servers whose pages may connect without a token; their Origin decides. `rates`: request rate of one
        principal. `resource`: also accepts tokens of an authorization server. `on_refused` is called with
        each refusal, the route, `http` or `websocket`, and the request's headers. `command`: what starts this program,
        for programs and for the relay's own pages."""
        self._app = app
        self._policy = policy
        self._tokens = tokens
        self._no_auth = no_auth
        self._plain = plain
        self._rates = rates
        self._resource = resource
        self._on_refused = on_refused
        self._command = command
        # Without an authorization server only the token store decides. This runs once per call.
        self._is_valid = tokens.is_valid if resource is None else self._is_still_admitted
        self._active_requests = ActiveRequests(self._is_valid)

    def _is_still_admitted(self, principal: Principal) -> bool:
        if self._resource is not None and (principal.credential or "").startswith("oauth:"):
            return self._resource.is_valid(principal)
        return self._tokens.is_valid(principal)

    def end_revoked(self) -> None:
        """A token was revoked: end its requests and WebSockets now."""
        self._active_requests.end_revoked()

    def admit(
        self,
        kind: str,
        method: str,
        path: str,
        request: RequestHeaders,
        subprotocols: Sequence[str] = (),
        has_keys: bool = False,
    ) -> Admission:
        """Decide about a request, and count it. A request with the header block of an admitted one is identified by
        that; the validity of its token and its rate are checked each time.

        `has_keys`: an earlier admission was waiting for keys, which have been fetched as far as possible.
        """
        admission: Admission | None = request.admission
        is_valid = self._is_valid  # a name is called sooner than an attribute that is no method
        if (
            admission is None
            or (principal := admission.principal) is None
            or admission.path != path
            or not is_valid(principal)
        ):
            request.verified = None
            request.admission = admission = self._identify(kind, method, path, request, subprotocols, has_keys)
            principal = admission.principal
        # defence: the rate
        is_limited = self._rates.is_limited
        if is_limited and principal is not None and (wait_s := self._rates.take(principal.id, time.monotonic())):
            admission = replace(admission, principal=None, refusal=rate_limited(wait_s))
        if admission.refusal is not None:
            self._on_refused(admission.refusal, admission.route, kind, request)
        return admission

    def _identify(
        self,
        kind: str,
        method: str,
        path: str,
        request: RequestHeaders,
        subprotocols: Sequence[str],
        has_keys: bool,
    ) -> Admission:
        asked, origins = route(kind, method, path), request.all.get(b"origin")
        # Several Origin headers are joined into a value that is in no list.
        # defence: two Origin headers
        origin = ", ".join(origins) if origins else None
        refusal = self._policy.check_host(request.all.get(b"host", []))
        origin_check = None if refusal is not None else self._check_origin(asked, origin)
        if isinstance(origin_check, Refuse):
            refusal = origin_check
        if refusal is not None:
            return Admission(asked, path, refusal=refusal)
        # defence: a page at the address of each server, whether there is one or not
        if asked.is_jsonrpc and method == "GET" and is_page_request(request):
            return Admission(PAGE, path)
        # defence: CORS for admitted origins only
        cors = origin if asked.has_cors else None
        if cors is not None and method == "OPTIONS" and b"access-control-request-method" in request.first:
            return Admission(asked, path, origin=cors, is_preflight=True)
        if asked.is_public:
            return Admission(asked, path, origin=cors)
        token = _token(request.all.get(b"authorization", []), subprotocols)
        if self._resource is not None and not has_keys and self._resource.is_unverified(token):
            return Admission(asked, path, origin=cors, waits_for_keys_of=token)
        is_plain = kind == "websocket" and path == f"/{asked.server}" and asked.server in self._plain
        admitted = self._check_token(
            asked,
            token,
            origin,
            is_foreign_origin=origin_check is not None,
            is_plain=is_plain and SUBPROTOCOL not in subprotocols,
        )
        if isinstance(admitted, Refuse):
            return Admission(asked, path, origin=cors, refusal=self._challenge(asked, admitted, token is not None))
        return Admission(asked, path, admitted, origin=cors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind not in ("http", "websocket"):  # lifespan
            await self._app(scope, receive, send)
            return
        admission: Admission | None = scope.get(ADMISSION)  # if it was decided where the request was received
        if admission is None or admission.waits_for_keys_of is not None:
            about = kind, scope.get("method", "GET"), scope["path"], RequestHeaders(scope["headers"])
            subprotocols = scope.get("subprotocols", ())
            admission = admission or self.admit(*about, subprotocols)
            if admission.waits_for_keys_of is not None and self._resource is not None:
                await self._resource.prepare(admission.waits_for_keys_of)
                admission = self.admit(*about, subprotocols, has_keys=True)
        out = ResponseWriter(scope, admission.route, send)
        if admission.origin is not None:
            out.allow_origin(admission.origin)
        if admission.is_preflight:
            await out.preflight()
        elif admission.refusal is not None:
            await out.refuse(admission.refusal, receive)
        else:
            await self._run_app(scope, receive, out, admission)

    async def _run_app(self, scope: Scope, receive: Receive, out: ResponseWriter, admission: Admission) -> None:
        # defence: tokens behind the gate
        inner = _without_secrets(scope)
        principal = admission.principal
        inner.setdefault("state", {})["principal"] = principal
        inner["state"]["is_page"] = admission.route is PAGE
        if scope["type"] == "websocket":
            inner["state"]["signature"] = self._tokens.socket_signature(_sent_token(scope) or "")
        if principal is None:
            await self._app(inner, receive, out.send)
            return
        request = self._active_requests.open(principal, scope["type"], receive)
        if ADMISSION in scope and not self._is_valid(principal):
            request.end()
        try:
            await self._app(inner, request.receive, out.send)
        finally:
            self._active_requests.close(request)
        if request.is_over:
            asked = admission.route
            refused = unauthorized(asked.needs, True, self._command_for(admission.origin))
            refusal = self._challenge(asked, refused, _sent_token(scope) is not None)
            await out.end_revoked(refusal, receive)

    def _challenge(self, asked: Route, refusal: Refuse, was_given: bool) -> Refuse:
        """Add the address of the authorization server's metadata, for clients of a server that accepts its tokens."""
        if self._resource is None or refusal.status not in (401, 403) or asked.server is None:
            return refusal
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

    def _check_token(
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
            return unauthorized(asked.needs, token is not None, self._command_for(origin))
        if principal is None and token and self._tokens.identify(token, None) is not None:
            fix = f"Pair this page: {self._command_for(origin)} pair"
            return Refuse(403, "forbidden", f"This token belongs to another origin. {fix}")
        if token is None and origin is not None and is_plain:
            # The origin is in the list. A request without an Origin, or with any token, does not get here.
            return Principal(f"origin:{origin}", frozenset({SERVE}), origin, frozenset({asked.server or ""}))
        if principal is None and self._no_auth:
            principal = UNAUTHENTICATED
        if principal is None:
            # defence: deny by default
            return unauthorized(asked.needs, token is not None, self._command_for(origin))
        # defence: scope and server of a token
        return allows(principal, asked.needs, asked.server) or principal

    def _command_for(self, origin: str | None) -> str:
        """The command in a message for this origin: the path of the installation may name the user."""
        # defence: the path of the installation in answers to other origins
        return self._command if origin is None or self._policy.is_own_origin(origin) else NAME


def _sent_token(scope: Scope) -> str | None:
    return _token(RequestHeaders(scope["headers"]).all.get(b"authorization", []), scope.get("subprotocols", ()))


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
