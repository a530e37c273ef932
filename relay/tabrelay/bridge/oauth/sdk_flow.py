"""OAuth flow with the official SDK. The only module that imports the SDK: importing it takes longer than all others.

The SDK is designed to wrap every request (`httpx2.Auth`) and holds a lock until the answer arrives, so a slow call
would block all others. Instead, it gets the refusal that a request of the bridge got; its own requests are sent for it;
and when it would repeat the bridge's request, the token is there. Storage is in `token_store`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import httpx2
import pydantic
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider, PrivateKeyJWTOAuthProvider
from mcp.client.auth.utils import (
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    credentials_match_issuer,
    extract_resource_metadata_from_www_auth,
    handle_protected_resource_response,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from tabrelay import __version__, mcp_headers
from tabrelay.bridge.clock import Clock
from tabrelay.bridge.credentials import CredentialsError
from tabrelay.bridge.oauth import assertions
from tabrelay.bridge.oauth.callback import Callback, CallbackError
from tabrelay.bridge.oauth.dpop import TokenBinding
from tabrelay.bridge.oauth.token_store import StoredSignIn
from tabrelay.bridge.target import TargetError, parse_url
from tabrelay.observe.log_setup import add_secret, redact

MAX_BODY: Final = 1 << 20
TIMEOUT_S: Final = 30.0
LONG_AGO: Final = 1.0

# The SDK would log a traceback for each user who refuses. The reason is in the error, which goes to the client.
if not logging.getLogger("tabrelay").isEnabledFor(logging.DEBUG):
    logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """The kind of token to request, from the user's flags or configuration."""

    server_url: str
    grant: str = "authorization_code"
    client_id: str | None = None
    client_secret: str | None = None
    client_auth: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    scope: str | None = None
    issuer: str | None = None
    metadata_url: str | None = None
    allows_plain: bool = False
    client_key: str | None = field(default=None, repr=False)
    """A private key as PEM, with which the client signs in."""

    read_assertion: Callable[[], Awaitable[str]] | None = None
    """Returns the workload's JWT, or the user's ID token, that is valid now."""

    identity_provider: assertions.IdentityProvider | None = None

    @property
    def asks_user(self) -> bool:
        return self.grant == "authorization_code"


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """The refusal that a request got: 401, or 403 for insufficient scope. `is_real` is False when no request was
    sent."""

    status: int = 401
    challenge: str | None = None
    version: str | None = None
    is_real: bool = False


class SdkStorage:
    """The SDK's storage interface, on a record."""

    def __init__(self, record: StoredSignIn, clock: Clock) -> None:
        self.record = record
        self.is_new = False
        self._clock = clock

    async def get_tokens(self) -> OAuthToken | None:
        return OAuthToken.model_validate(self.record.token) if self.record.token else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        add_secret(tokens.access_token)
        if tokens.refresh_token:
            add_secret(tokens.refresh_token)
        expires_at = None if tokens.expires_in is None else self._clock.now() + tokens.expires_in
        token = tokens.model_dump(mode="json", exclude_none=True)
        self.record = replace(self.record, access_token=tokens.access_token, expires_at=expires_at, token=token)
        self.is_new = True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return OAuthClientInformationFull.model_validate(self.record.client) if self.record.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.record = replace(self.record, client=client_info.model_dump(mode="json", exclude_none=True))


class SignInFlow:
    """One run of the flow: from the stored record to a new one."""

    def __init__(
        self, options: TokenOptions, record: StoredSignIn, clock: Clock, show_url: Callable[[str], Awaitable[None]]
    ) -> None:
        """`show_url` shows a URL to the user."""
        self._options = options
        self._storage = SdkStorage(record, clock)
        self._show_url = show_url

    @property
    def record(self) -> StoredSignIn:
        return self._storage.record

    async def refresh(self, refusal: RefusedRequest) -> bool:
        """Refreshes the token without the user. False: that is not possible. Raises CredentialsError."""
        is_possible = self._options.read_assertion is None and self.record.token.get("refresh_token")
        if not is_possible or refusal.status != 401:
            return False
        binding = TokenBinding(self.record.dpop, refusal.challenge)
        async with self._sending(binding) as (send, fetch):
            provider = self._provider(None, fetch)
            # Whatever expiry the token has: it was refused, or expires soon.
            provider.context.token_expiry_time = LONG_AGO
            ours, refused = self._request(refusal)
            if refusal.is_real and not await self._is_same_issuer(refused, send):
                return False
            async with contextlib.aclosing(provider.async_auth_flow(ours)) as flow:
                outgoing = await flow.__anext__()
                while outgoing is not ours:
                    outgoing = await flow.asend(await send(outgoing))
        self._storage.record = replace(self.record, dpop=binding.state)
        return self._storage.is_new

    async def run(self, refusal: RefusedRequest, callback: Callback | None) -> None:
        """`callback`: the redirect endpoint, if the user has to agree. Raises CredentialsError."""
        # The granted scopes are kept; the refresh token is not.
        token = {name: value for name, value in self.record.token.items() if name != "refresh_token"}
        self._storage.record = replace(self.record, token=token)
        binding = TokenBinding(self.record.dpop, refusal.challenge)
        async with self._sending(binding) as (send, fetch):
            provider = self._provider(callback, fetch)
            ours, refused = self._request(refusal)
            async with contextlib.aclosing(provider.async_auth_flow(ours)) as flow:
                await flow.__anext__()
                outgoing = await flow.asend(refused)
                while outgoing is not ours:
                    outgoing = await flow.asend(await send(outgoing))
        self._store_metadata(provider)
        self._storage.record = replace(self.record, dpop=binding.state)

    def _request(self, refusal: RefusedRequest) -> tuple[httpx2.Request, httpx2.Response]:
        """A copy of the bridge's request, and the answer that it got."""
        headers = {} if refusal.version is None else {mcp_headers.PROTOCOL_VERSION: refusal.version}
        ours = httpx2.Request("POST", self._options.server_url, headers=headers)
        challenge = refusal.challenge
        if self._options.scope is not None and refusal.status == 401:
            # The SDK requests the scope that the server names; the user may want another.
            asked = httpx2.Response(401, headers={"www-authenticate": challenge or ""}, request=ours)
            found = extract_resource_metadata_from_www_auth(asked)
            where = "" if found is None else f', resource_metadata="{found}"'
            challenge = f'Bearer scope="{self._options.scope}"{where}'
        kept = {} if challenge is None else {"www-authenticate": challenge}
        return ours, httpx2.Response(refusal.status, headers=kept, request=ours)

    def _provider(self, callback: Callback | None, fetch: Send) -> OAuthClientProvider:
        options = self._options
        if options.grant == "client_credentials":
            return self._client_credentials()
        if options.read_assertion is not None:
            return self._assertion_grant(options.read_assertion, fetch)
        uri = callback.uri if callback is not None else "http://127.0.0.1/callback"
        self._choose_client(uri, is_moving=callback is not None)
        metadata = OAuthClientMetadata.model_validate(
            {
                "client_name": "Tabrelay",
                "software_id": "tabrelay",
                "software_version": __version__,
                "redirect_uris": [uri],
                "scope": options.scope,
            }
        )

        async def redirect(url: str) -> None:
            assert callback is not None
            self._check(url)
            callback.expect(url)
            await self._show_url(url)

        async def returned() -> AuthorizationCodeResult:
            assert callback is not None
            found = await callback.returned()
            return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.issuer)

        provider = OAuthClientProvider(
            options.server_url, metadata, self._storage, redirect, returned, client_metadata_url=options.metadata_url
        )
        self._restore_metadata(provider)
        return provider

    def _client_credentials(self) -> OAuthClientProvider:
        options = self._options
        url, storage, scope, issuer = options.server_url, self._storage, options.scope, options.issuer
        assert options.client_id is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that an issuer should be given: see --issuer
            if options.client_key is not None:
                sign = assertions.signed_by(options.client_key, options.client_id)
                return PrivateKeyJWTOAuthProvider(url, storage, options.client_id, sign, scope=scope, issuer=issuer)
            assert options.client_secret is not None
            return ClientCredentialsOAuthProvider(
                url, storage, options.client_id, options.client_secret, options.client_auth, scope=scope, issuer=issuer
            )

    def _assertion_grant(self, read: Callable[[], Awaitable[str]], fetch: Send) -> OAuthClientProvider:
        options, idp = self._options, self._options.identity_provider

        async def make(issuer: str, resource: str) -> str:
            held = await read()
            add_secret(held)
            if idp is not None:
                held = await assertions.exchange(idp, held, issuer, resource, options.scope, fetch)
                add_secret(held)
            await assertions.check_audience(held, issuer)
            return held

        method = options.client_auth if options.client_secret else "none"
        client = OAuthClientInformationFull(
            client_id=options.client_id or assertions.NO_CLIENT,
            client_secret=options.client_secret,
            token_endpoint_auth_method=method,
            issuer=options.issuer,
        )
        return assertions.AssertionGrant(options.server_url, self._storage, client, make, options.scope, options.issuer)

    def _choose_client(self, uri: str, is_moving: bool) -> None:
        """Uses the client that the user registered, or the stored one, unless its redirect URI differs."""
        wish, known = self._options, self._storage.record.client
        if wish.client_id is not None:
            client = {"client_id": wish.client_id, "redirect_uris": [uri], "issuer": wish.issuer}
            if wish.client_secret is not None:
                client |= {"client_secret": wish.client_secret, "token_endpoint_auth_method": wish.client_auth}
            self._storage.record = replace(self._storage.record, client={**known, **client})
        elif known and is_moving and uri not in known.get("redirect_uris", []):
            self._storage.record = replace(self._storage.record, client={})

    def _restore_metadata(self, provider: OAuthClientProvider) -> None:
        """Restores the discovered metadata: without it the SDK would guess the token endpoint."""
        context, record = provider.context, self.record
        if record.metadata:
            context.oauth_metadata = OAuthMetadata.model_validate(record.metadata)
        if record.resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(record.resource)
            context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])

    def _store_metadata(self, provider: OAuthClientProvider) -> None:
        metadata, resource = provider.context.oauth_metadata, provider.context.protected_resource_metadata
        self._storage.record = replace(
            self.record,
            metadata={} if metadata is None else metadata.model_dump(mode="json", exclude_none=True),
            resource={} if resource is None else resource.model_dump(mode="json", exclude_none=True),
        )

    async def _is_same_issuer(self, refused: httpx2.Response, send: Send) -> bool:
        """Whether the server still uses the same authorization server: a new one must not get the old one's token."""
        client = await self._storage.get_client_info()
        if client is None:
            return False
        hint = extract_resource_metadata_from_www_auth(refused)
        for url in build_protected_resource_metadata_discovery_urls(hint, self._options.server_url):
            found = await handle_protected_resource_response(await send(create_oauth_metadata_request(url)))
            if found is not None:
                return credentials_match_issuer(client, str(found.authorization_servers[0]), self._options.metadata_url)
        return True

    @contextlib.asynccontextmanager
    async def _sending(self, binding: TokenBinding) -> AsyncIterator[tuple[Send, Send]]:
        """What sends the flow's requests, with proofs where tokens are bound, and what sends others."""
        address = parse_url(self._options.server_url, allows_plain=True)
        try:
            async with httpx2.AsyncClient(trust_env=not address.is_loopback, timeout=TIMEOUT_S) as client:
                yield functools.partial(self._send, client, binding), functools.partial(self._fetch, client)
        except CallbackError as problem:
            raise CredentialsError(str(problem)) from None
        except (OAuthFlowError, OAuthRegistrationError, OAuthTokenError) as problem:
            raise CredentialsError(f"No token could be obtained: {redact(str(problem))}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, pydantic.ValidationError, ValueError) as problem:
            raise CredentialsError(
                f"No token could be obtained: {type(problem).__name__}: {redact(str(problem))}"
            ) from None

    async def _send(
        self, client: httpx2.AsyncClient, binding: TokenBinding, request: httpx2.Request
    ) -> httpx2.Response:
        is_proven = binding.prove(request)
        response = await self._fetch(client, request)
        if not is_proven:
            binding.read_metadata(response)
            return response
        if binding.needs_nonce(response):
            binding.prove(request)
            response = await self._fetch(client, request)
        return binding.read_token(response)

    async def _fetch(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """The complete answer, if it is not too large."""
        self._check(str(request.url))
        response = await client.send(request, stream=True)
        try:
            parts, size = [], 0
            async for chunk in response.aiter_bytes():
                parts.append(chunk)
                size += len(chunk)
                if size > MAX_BODY:
                    raise OAuthFlowError(f"{request.url.host} answered with more than {MAX_BODY >> 20} MiB")
        finally:
            await response.aclose()
        kept = [(name, value) for name, value in response.headers.items() if name != "content-encoding"]
        whole = httpx2.Response(response.status_code, headers=kept, content=b"".join(parts), request=request)
        whole.next_request = response.next_request
        return whole

    def _check(self, url: str) -> None:
        """Refuses URLs that are not https (or permitted http): they come from the server."""
        try:
            parse_url(url, self._options.allows_plain)
        except TargetError as problem:
            raise OAuthFlowError(f"The server names an address that can't be used. {problem}") from None
