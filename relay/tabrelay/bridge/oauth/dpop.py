"""DPoP (RFC 9449): access tokens that are bound to a key, and the proofs that each request needs.

The key belongs to one stored sign-in and stays when the token is renewed. A token is requested with a proof if the MCP
server wants DPoP and the authorization server supports ES256; whether it is bound is what the token response says. It
sends nothing: `sdk_flow` requests tokens, `credentials` adds proofs to requests.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from tabrelay import mcp_headers

if TYPE_CHECKING:
    import httpx2

ALGORITHM: Final = "ES256"
NONCE: Final = "dpop-nonce"
SCHEME: Final = "DPoP"


class DpopKey:
    """A key pair, and proofs of its possession."""

    def __init__(self, pem: str) -> None:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        self._key: Any = load_pem_private_key(pem.encode(), None)

    @classmethod
    def generate(cls) -> str:
        """A new private key as PEM."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        made = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return made.decode()

    def proof(self, method: str, url: str, *, token: str | None = None, nonce: str | None = None) -> str:
        """The header's value for one request. `token`: the access token that the request carries."""
        import jwt

        claims = {"jti": secrets.token_urlsafe(), "htm": method, "htu": _without_query(url), "iat": int(time.time())}
        if token is not None:
            digest = hashlib.sha256(token.encode("ascii")).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if nonce is not None:
            claims["nonce"] = nonce
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"typ": "dpop+jwt", "jwk": self._public()})

    def _public(self) -> dict[str, Any]:
        from jwt.algorithms import ECAlgorithm

        made = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {name: made[name] for name in ("kty", "crv", "x", "y")}


@functools.lru_cache(maxsize=8)
def loaded(pem: str) -> DpopKey:
    """The key of a stored sign-in. Loading takes longer than a proof."""
    return DpopKey(pem)


class TokenBinding:
    """Decides for one run of the flow whether tokens are requested with proofs, and reads whether they are bound."""

    def __init__(self, stored: dict[str, Any], challenge: str | None) -> None:
        """`stored`: the state of the last run. `challenge`: the server's WWW-Authenticate."""
        self._pem: str | None = stored.get("key")
        self._is_bound = bool(stored.get("is_bound"))
        self._is_wanted = self._is_bound or _has_scheme(challenge)
        self._is_supported = self._is_bound
        self._nonce: str | None = None

    @property
    def state(self) -> dict[str, Any]:
        return {"key": self._pem, "is_bound": self._is_bound} if self._pem is not None else {}

    def read_metadata(self, response: httpx2.Response) -> None:
        """Reads what the metadata of the server or of its authorization server says of DPoP."""
        found = _json(response)
        algorithms = found.get("dpop_signing_alg_values_supported")
        supports = isinstance(algorithms, list) and ALGORITHM in algorithms
        if "token_endpoint" in found:
            self._is_supported = supports
        elif "authorization_servers" in found:
            self._is_wanted |= supports or found.get("dpop_bound_access_tokens_required") is True

    def prove(self, request: httpx2.Request) -> bool:
        """Adds a proof to a token request, with the nonce of the last answer. False: no proof is wanted."""
        is_token_request = request.method == "POST" and b"grant_type=" in request.content
        if not (is_token_request and self._is_wanted and self._is_supported):
            return False
        if self._pem is None:
            self._pem = DpopKey.generate()
        request.headers[SCHEME] = loaded(self._pem).proof(request.method, str(request.url), nonce=self._nonce)
        return True

    def needs_nonce(self, response: httpx2.Response) -> bool:
        """The authorization server wants the request again, with the nonce of this answer."""
        before, self._nonce = self._nonce, response.headers.get(NONCE, self._nonce)
        is_refused = response.status_code in (400, 401) and _json(response).get("error") == mcp_headers.WANTS_NONCE
        return is_refused and self._nonce != before

    def read_token(self, response: httpx2.Response) -> httpx2.Response:
        """Reads whether the new token is bound. The SDK knows bearer tokens only, and gets it as one."""
        import httpx2

        found = _json(response)
        if not response.is_success or "access_token" not in found:
            return response
        self._is_bound = str(found.get("token_type")).lower() == SCHEME.lower()
        if not self._is_bound:
            return response
        content = json.dumps({**found, "token_type": "Bearer"}).encode()
        return httpx2.Response(response.status_code, content=content, request=response.request)


def _has_scheme(challenge: str | None) -> bool:
    return any(part.strip().lower().startswith("dpop") for part in (challenge or "").split(","))


def _without_query(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def _json(response: httpx2.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
