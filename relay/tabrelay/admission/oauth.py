"""OAuth resource server: verification of JWT access tokens (RFC 9068) of one issuer.

A token is accepted only if its audience is a server's address, `https://relay.example/notes` (or `…/notes/mcp`), or the
relay's address. Its scopes are `call` and `serve`, or `call:notes` and `serve:notes` for one server.

Does no HTTP: `oauth_keys` fetches the keys, the gate reads requests.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jwt

from tabrelay.admission.oauth_keys import ALGORITHMS, JwksCache
from tabrelay.admission.policy import Refuse
from tabrelay.admission.routes import MCP, WELL_KNOWN
from tabrelay.calls.principal import CALL, SERVE, Principal
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_server_name

LEEWAY_S: Final = 30.0  # the issuer's clock may be ahead: applies to `nbf` and `iat`, not to `exp`
MAX_TOKEN: Final = 16 * 1024
MAX_VERIFIED: Final = 1024
_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_PLAIN: Final = re.compile(r"[\w.@|:+-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of a verified token."""

    subject: str
    scopes: frozenset[str]
    audiences: frozenset[str]
    expires: float
    digest: str


class TokenVerifier:
    def __init__(self, issuer: str, base: str, keys: JwksCache, wall: Callable[[], float] = time.time) -> None:
        """`base`: the address under which clients reach this relay."""
        self.issuer = issuer
        self._base = base.rstrip("/")
        self._keys = keys
        self._wall = wall
        # Verifying a signature takes longer than the rest of a call: verified tokens are cached by their digest.
        self._cached: dict[str, Claims] = {}
        self._cached_for = keys.keys

    def is_unverified(self, token: str | None) -> bool:
        """Could it be a token of the issuer that was not verified yet? Its key may have to be fetched (`prepare`)."""
        if token is None or not is_jwt(token) or _digest(token) in self._verified:
            return False
        try:
            return jwt.get_unverified_header(token).get("alg") in ALGORITHMS
        except jwt.PyJWTError:
            return False

    async def prepare(self, token: str) -> None:
        """Before `admit`: fetch the key of an unverified token."""
        kid = jwt.get_unverified_header(token).get("kid")
        await self._keys.prepare(kid if isinstance(kid, str) else None)

    def admit(self, token: str, needs: str | None, server: str | None) -> Principal | Refuse | None:
        """The principal of a token; None if it is no token of this issuer for this relay (and server)."""
        claims = self._claims(token)
        if claims is None or not self._is_audience(claims, server):
            return None
        # `needs` None: any valid token is accepted.
        scopes = frozenset(scope for scope in (CALL, SERVE) if _servers(claims, scope) != frozenset())
        servers = _servers(claims, needs) if needs in (CALL, SERVE) else _any_servers(claims)
        principal = Principal(
            _principal_id(claims.subject),
            scopes,
            # defence: the status of an audience
            servers=_intersection(servers, self._audience(claims)),
            credential=f"oauth:{claims.digest}",
            expires=claims.expires,
        )
        if needs is not None and (needs not in scopes or (server is not None and not principal.may_see(server))):
            return Refuse(403, "forbidden", f'This token lacks the scope "{self.scope(needs, server)}".')
        return principal

    def is_valid(self, principal: Principal) -> bool:
        """Is its token still accepted? When a key is no longer published, its tokens are not."""
        digest = (principal.credential or "").removeprefix("oauth:")
        # defence: the end of an open WebSocket's token
        return digest in self._verified and principal.expires is not None and self._wall() < principal.expires

    @property
    def _verified(self) -> dict[str, Claims]:
        """By digest. A change of the keys empties it."""
        # defence: a key that is gone
        if self._keys.keys is not self._cached_for:
            self._cached.clear()
            self._cached_for = self._keys.keys
        return self._cached

    def _claims(self, token: str) -> Claims | None:
        if not is_jwt(token):
            return None
        digest = _digest(token)
        known = self._verified.get(digest)
        if known is None:
            known = self._verify(token, digest)
        if known is None or self._wall() >= known.expires:
            self._verified.pop(digest, None)
            return None
        return known

    def _verify(self, token: str, digest: str) -> Claims | None:
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = self._keys.find(kid if isinstance(kid, str) else None)
            if key is None or key.algorithm_name not in ALGORITHMS:
                return None
            # defence: access tokens that say they need no signature
            # defence: access tokens whose secret is the public key
            # The audience depends on the requested server: `_is_audience` checks it.
            payload: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                # defence: the issuer of an access token
                issuer=self.issuer,
                leeway=LEEWAY_S,
                # defence: the signature of an access token
                options={"require": ["exp", "iss", "aud", "sub"], "verify_aud": False},
            )
            return self._read(payload, digest)
        except (jwt.PyJWTError, ValueError, TypeError):  # TypeError: claims of a wrong type
            return None

    def _read(self, payload: dict[str, Any], digest: str) -> Claims:
        subject, audience = payload["sub"], payload["aud"]
        audiences = frozenset([audience] if isinstance(audience, str) else [str(each) for each in audience])
        scope = payload.get("scope", payload.get("scp", ""))
        scopes = scope.split() if isinstance(scope, str) else [str(each) for each in scope]
        claims = Claims(str(subject), frozenset(scopes), audiences, float(payload["exp"]), digest)
        while len(self._verified) >= MAX_VERIFIED:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = claims
        return claims

    def _is_audience(self, claims: Claims, server: str | None) -> bool:
        """RFC 8707: a token for one server is not accepted for another one, whatever its scopes are."""
        meant = {self._base, f"{self._base}/"}
        if server is not None:
            meant |= {self._address(server), self._address(server, MCP)}
        if server is None:  # the status, which shows only the servers of the token
            return any(each in meant or each.startswith(f"{self._base}/") for each in claims.audiences)
        # defence: the audience of an access token
        return bool(claims.audiences & meant)

    def _audience(self, claims: Claims) -> frozenset[str] | None:
        """The servers in its audience; None: the relay itself, and so all of them."""
        if claims.audiences & {self._base, f"{self._base}/"}:
            return None
        paths = [each.removeprefix(f"{self._base}/") for each in claims.audiences if each.startswith(f"{self._base}/")]
        return frozenset(path.removesuffix(f"/{MCP}") for path in paths)

    # -- challenges and metadata --------------------------------------------------------------------------------------

    def scope(self, needs: str, server: str | None) -> str:
        return f"{needs}:{server}" if server else needs

    def challenge(
        self, refusal: Refuse, needs: str | None, server: str | None, was_given: bool, place: str = ""
    ) -> Refuse:
        """RFC 9728 §5.1 and RFC 6750 §3.1: where to get a token that is accepted."""
        error = "insufficient_scope" if refusal.status == 403 else "invalid_token" if was_given else None
        parts = [f'error="{error}"'] if error else []
        parts += [f'scope="{self.scope(needs, server)}"'] if needs else []
        parts.append(f'resource_metadata="{self.metadata_url(server, place)}"')
        headers = tuple(pair for pair in refusal.headers if pair[0].lower() != "www-authenticate")
        challenge = ("WWW-Authenticate", f"Bearer {', '.join(parts)}")
        return Refuse(refusal.status, refusal.reason, refusal.message, (*headers, challenge), refusal.retry_after_ms)

    def _address(self, *parts: str | None) -> str:
        return "/".join([self._base, *filter(None, parts)])

    def metadata_url(self, server: str | None, place: str = "") -> str:
        return self._address(WELL_KNOWN.strip("/"), server, place)

    def metadata(self, server: str | None, place: str = "") -> dict[str, Any] | None:
        """RFC 9728 §2. The same for every valid name: it does not disclose which servers exist.

        §3.3: the resource must equal the address that the client used, so each address of a server is a resource."""
        if server is not None:
            try:
                check_server_name(server)
            except ServerNameError:
                return None
        return {
            "resource": self._address(server, place),
            "authorization_servers": [self.issuer],
            "scopes_supported": [self.scope(CALL, server)],
            "bearer_methods_supported": ["header"],
            "resource_name": f"Tabrelay: {server}" if server else "Tabrelay",
        }


def is_jwt(token: str) -> bool:
    return len(token) <= MAX_TOKEN and _JWT.fullmatch(token) is not None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _servers(claims: Claims, needs: str | None) -> frozenset[str] | None:
    """The servers for which the token has this scope; None: all of them."""
    # defence: the scopes of an access token
    if needs in claims.scopes:
        return None
    prefix = f"{needs}:"
    return frozenset(scope.removeprefix(prefix) for scope in claims.scopes if scope.startswith(prefix))


def _any_servers(claims: Claims) -> frozenset[str] | None:
    found = [_servers(claims, CALL), _servers(claims, SERVE)]
    return None if None in found else frozenset().union(*(names for names in found if names is not None))


def _intersection(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The servers that are in both; None means all of them."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _principal_id(subject: str) -> str:
    """The same id for all tokens of a subject, so that its sessions survive a token refresh."""
    is_plain = _PLAIN.fullmatch(subject) is not None
    return f"oauth:{subject if is_plain else hashlib.sha256(subject.encode()).hexdigest()[:32]}"
