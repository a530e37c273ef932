"""A real authorization server: authlib's, with PKCE, dynamic registration and JWT access tokens, on its own port.

Its user consents to every request. Keys can be rotated, and tokens can be signed that a correct server would never
issue.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import uvicorn
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, JsonPayload, JsonRequest, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tabrelay.server.runner import bind
from tests import canary
from tests.support.waiting import BOUND_S

USER = "ada@example.org"


class Client(ClientMixin):
    """A public client, as it has registered."""

    def __init__(self, id: str, about: dict[str, Any]) -> None:
        self.id = id
        self.client_info = {"client_id": id}
        self.client_metadata = about

    def get_client_id(self) -> str:
        return self.id

    def get_default_redirect_uri(self) -> str:
        return str(self.client_metadata["redirect_uris"][0])

    def get_allowed_scope(self, scope: str) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.client_metadata["redirect_uris"]

    def check_client_secret(self, client_secret: str) -> bool:
        return False

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "none"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


class Code:
    """An issued authorization code."""

    def __init__(self, code: str, request: Any, resource: str) -> None:
        data = request.payload.data
        self.code, self.resource = code, resource
        self.client_id, self.redirect_uri, self.scope = data["client_id"], data["redirect_uri"], request.scope
        self.code_challenge = data.get("code_challenge")
        self.code_challenge_method = data.get("code_challenge_method")

    def get_redirect_uri(self) -> str:
        return str(self.redirect_uri)

    def get_scope(self) -> str:
        return self.scope or ""


class User:
    def get_user_id(self) -> str:
        return USER


class Asked(OAuth2Request):
    def __init__(self, request: Request, form: dict[str, str]) -> None:
        super().__init__(request.method, str(request.url), headers=request.headers)
        self.payload = BasicOAuth2Payload({**dict(request.query_params), **form})
        self._form = form
        self._query = dict(request.query_params)

    @property
    def args(self) -> dict[str, str]:
        return self._query

    @property
    def form(self) -> dict[str, str]:
        return self._form


class Registration(ClientRegistrationEndpoint):
    software_statement_alg_values_supported = None

    def authenticate_token(self, request: Any) -> Any:
        return True  # any client may register

    def get_server_metadata(self) -> dict[str, Any]:
        return self.server.issuer.metadata()

    def save_client(self, client_info: Any, client_metadata: Any, request: Any) -> Client:
        client = Client(client_info["client_id"], dict(client_metadata))
        self.server.issuer.clients[client.id] = client
        return client


class Grant(AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]  # noqa: RUF012

    def save_authorization_code(self, code: str, request: Any) -> None:
        self.server.issuer.codes[code] = Code(code, request, request.payload.data.get("resource", ""))

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        found: Code | None = self.server.issuer.codes.get(code)
        return found if found is not None and found.client_id == client.id else None

    def delete_authorization_code(self, code: Code) -> None:
        del self.server.issuer.codes[code.code]

    def authenticate_user(self, code: Code) -> User:
        # RFC 8707: the token is for the resource that the code was asked for.
        self.server.issuer.resource = code.resource
        return User()


class Generator(JWTBearerTokenGenerator):
    def __init__(self, issuer: Issuer) -> None:
        super().__init__(issuer.url, expires_generator=lambda client, grant: issuer.life_s)
        self._issuer = issuer

    def get_jwks(self) -> Any:
        return KeySet([self._issuer.key])

    def get_audiences(self, client: Any, user: Any, scope: Any) -> str:
        return self._issuer.resource


class _Server(AuthorizationServer):
    def __init__(self, issuer: Issuer) -> None:
        super().__init__()
        self.issuer = issuer

    def query_client(self, client_id: str) -> Client | None:
        return self.issuer.clients.get(client_id)

    def save_token(self, token: Any, request: Any) -> None:
        self.issuer.given.append(token["access_token"])
        for secret in (token["access_token"], token.get("refresh_token")):
            if secret:
                canary.register(secret)

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass

    def create_oauth2_request(self, request: Any) -> Any:
        return request

    def create_json_request(self, request: Any) -> Any:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        text = json.dumps(body) if isinstance(body, dict) else str(body)
        return Response(text, status, dict(headers))


class Issuer:
    """Start it with `async with`."""

    def __init__(self) -> None:
        self._socket = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.clients: dict[str, Client] = {}
        self.codes: dict[str, Code] = {}
        self.given: list[str] = []
        self.resource = ""
        self.life_s = 3600
        self.asked: list[str] = []
        self.rotate("first")
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._oauth = _Server(self)
        self._oauth.register_grant(Grant, [CodeChallenge(required=True)])
        self._oauth.register_endpoint(Registration)
        self._oauth.register_token_generator("default", Generator(self))

    def rotate(self, kid: str) -> None:
        """Sign with a new key from now on; the previous one is no longer published."""
        self.key = RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})

    def sign(self, key: Any = None, alg: str = "RS256", **claims: Any) -> str:
        """A token with any claims."""
        said = {"iss": self.url, "sub": USER, "exp": int(time.time()) + 3600, "iat": int(time.time()), **claims}
        said = {name: value for name, value in said.items() if value is not None}
        key = key or self.key
        token: str = jwt.encode({"alg": alg, "kid": key.kid}, said, key, algorithms=[alg])
        canary.register(token)
        return token

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }

    async def __aenter__(self) -> Issuer:
        routes = [
            Route("/.well-known/oauth-authorization-server", self._metadata),
            Route("/jwks", self._jwks),
            Route("/register", self._register, methods=["POST"]),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), log_config=None, access_log=False)
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server._serve([self._socket]))
        async with asyncio.timeout(BOUND_S):
            while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.02)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None and self._task is not None
        self._server.should_exit = True
        await self._task
        self._socket.close()

    async def _metadata(self, request: Request) -> Response:
        self.asked.append("metadata")
        return JSONResponse(self.metadata())

    async def _jwks(self, request: Request) -> Response:
        self.asked.append("jwks")
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def _register(self, request: Request) -> Response:
        asked = JsonRequest(request.method, str(request.url), request.headers)
        asked.payload = _Json(await request.json())
        return self._oauth.create_endpoint_response("client_registration", asked)

    async def _authorize(self, request: Request) -> Response:
        asked = Asked(request, {})
        grant = self._oauth.get_consent_grant(asked, end_user=User())
        return self._oauth.create_authorization_response(asked, grant_user=User(), grant=grant)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        return self._oauth.create_token_response(Asked(request, form))


class _Json(JsonPayload):
    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body

    @property
    def data(self) -> dict[str, Any]:
        return self._body


def other_key(kid: str = "first") -> RSAKey:
    """A key of another issuer, under the same key id."""
    return RSAKey.generate_key(2048, {"kid": kid})


def elliptic_key(kid: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": kid, "use": "sig", "alg": "ES256"})


def shared_key(kid: str) -> OctKey:
    return OctKey.generate_key(256, {"kid": kid})


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
