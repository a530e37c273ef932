"""Assertions: JWTs that say who a program or its user is, and the tokens that an authorization server gives for them.

Three uses: a client that signs with its own key (`private_key_jwt`, RFC 7523), a workload with the JWT of its platform
(workload identity federation), and a user of a company, whose identity provider exchanges an ID token for a grant
(enterprise-managed authorization). An assertion is sent only to the authorization server that it is for. It does not
store tokens: `sdk_flow` does.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx2
import jwt
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls, issuers_match
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull, OAuthClientMetadata

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
LIFETIME_S: Final = 300
NO_CLIENT: Final = "-"  # the SDK needs an id; it is not sent

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]
# Gets the issuer of the authorization server and the address of the MCP server.
MakeAssertion = Callable[[str, str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """A company's identity provider, and this client's registration there."""

    issuer: str
    client_id: str
    client_secret: str | None = None


def signed_by(pem: str, client_id: str) -> Callable[[str], Awaitable[str]]:
    """Makes client assertions with the client's own key; the argument is the audience."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key: Any = load_pem_private_key(pem.encode(), None)
    algorithm = _algorithm(key)

    async def sign(audience: str) -> str:
        now = int(time.time())
        claims = {"iss": client_id, "sub": client_id, "aud": audience, "iat": now, "exp": now + LIFETIME_S}
        return jwt.encode({**claims, "jti": str(uuid4())}, key, algorithm=algorithm)

    return sign


def _algorithm(key: Any) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, ec.EllipticCurvePrivateKey):
        return {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}[key.curve.name]
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    raise ValueError("The client key is neither EC nor RSA nor Ed25519")


async def check_audience(assertion: str, issuer: str) -> None:
    """Raises OAuthFlowError for an assertion that is for another authorization server: the MCP server names the one
    that gets it."""
    try:
        audience = jwt.decode(assertion, options={"verify_signature": False}).get("aud")
    except jwt.InvalidTokenError as problem:
        raise OAuthFlowError(f"The assertion is not a JWT: {problem}") from None
    named = audience if isinstance(audience, list) else [audience]
    # defence: an assertion for another authorization server
    if not any(isinstance(one, str) and _is_at(one, issuer) for one in named):
        raise OAuthFlowError(f"The assertion is for {audience}, and the server's authorization server is {issuer}")


def _is_at(audience: str, issuer: str) -> bool:
    """The audience is the issuer, or an address at it, such as its token endpoint."""
    base = issuer.rstrip("/")
    return audience.rstrip("/") == base or audience.startswith(f"{base}/")


async def exchange(
    provider: IdentityProvider, id_token: str, audience: str, resource: str, scope: str | None, send: Send
) -> str:
    """Exchanges an ID token for a grant (ID-JAG) that the authorization server `audience` takes. Raises
    OAuthFlowError."""
    endpoint = await _token_endpoint(provider.issuer, send)
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "audience": audience,
        "resource": resource,
        "subject_token": id_token,
        "subject_token_type": ID_TOKEN,
        "client_id": provider.client_id,
        **({"client_secret": provider.client_secret} if provider.client_secret else {}),
        **({"scope": scope} if scope else {}),
    }
    response = await send(httpx2.Request("POST", endpoint, data=form))
    found = _object(response)
    if response.status_code != 200 or found.get("issued_token_type") != ID_JAG or not found.get("access_token"):
        why = found.get("error_description") or found.get("error") or "it gave no grant for this server"
        raise OAuthFlowError(f"The identity provider {provider.issuer} refused ({response.status_code}): {why}")
    return str(found["access_token"])


async def _token_endpoint(issuer: str, send: Send) -> str:
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
        found = _object(await send(httpx2.Request("GET", url)))
        if isinstance(found.get("token_endpoint"), str):
            # defence: metadata of another identity provider
            if not issuers_match(str(found.get("issuer")), issuer):
                raise OAuthFlowError(f"The metadata of {issuer} is that of {found.get('issuer')}")
            return str(found["token_endpoint"])
    raise OAuthFlowError(f"The identity provider {issuer} has no metadata")


def _object(response: httpx2.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class AssertionGrant(OAuthClientProvider):
    """The SDK's flow with an assertion in place of the user's agreement (RFC 7523)."""

    def __init__(
        self,
        server_url: str,
        storage: TokenStorage,
        client: OAuthClientInformationFull,
        make_assertion: MakeAssertion,
        scope: str | None,
        issuer: str | None,
    ) -> None:
        metadata = OAuthClientMetadata(redirect_uris=None, grant_types=[JWT_BEARER_GRANT_TYPE], scope=scope)
        super().__init__(server_url, metadata, storage, None, None)
        self._client = client
        self._make_assertion = make_assertion
        self._issuer = issuer

    async def _initialize(self) -> None:
        self.context.current_tokens = await self.context.storage.get_tokens()
        self.context.client_info = self._client
        self._initialized = True

    def _select_authorization_server(self, advertised: list[str]) -> str:
        wanted = self._issuer
        return next((one for one in advertised if wanted is not None and issuers_match(one, wanted)), advertised[0])

    async def _perform_authorization(self) -> httpx2.Request:
        found = self.context.oauth_metadata
        if found is None:
            raise OAuthFlowError("The authorization server has no metadata, so its issuer is not known")
        if self._issuer is not None and not issuers_match(str(found.issuer), self._issuer):
            raise OAuthFlowError(f"The server's authorization server is {found.issuer}, and not {self._issuer}")
        resource = self.context.get_resource_url()
        assertion = await self._make_assertion(str(found.issuer), resource)
        form = {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": assertion, "resource": resource}
        if self._client.client_id != NO_CLIENT:
            form["client_id"] = self._client.client_id
        if self.context.client_metadata.scope:
            form["scope"] = self.context.client_metadata.scope
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        form, headers = self.context.prepare_token_auth(form, headers)
        return httpx2.Request("POST", str(found.token_endpoint), data=form, headers=headers)
