"""An MCP server that requires a token, with its authorization server, on one port.

It counts requests, so that a test can check how often the user had to act.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt

from tests import canary
from tests.support.fake_upstream import Reply, Upstream


class Authority(Upstream):
    """`good` are the accepted access tokens; `lifetime_s` is the declared lifetime of new ones."""

    def __init__(self, **on: Any) -> None:
        super().__init__(on)
        self.good: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.lifetime_s: int | None = 3600
        self.gives_refresh = True
        self.refuses_refresh = False
        self.denies = False
        self.is_fickle = False  # accepts no token, not even its own
        self.metadata: dict[str, Any] = {}
        self.forms: list[dict[str, str]] = []
        self.has_dpop = False  # tokens are bound to the key of a proof
        self.nonces: dict[str, str] = {}  # by path: the nonce that a proof must have
        self.proofs: set[str] = set()  # the ids of all proofs
        self._number = 0

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def revoke(self) -> None:
        self.good.clear()

    async def _handle(self, reply: Reply) -> None:
        path = urlsplit(reply.seen.path).path
        if path == "/mcp":
            scheme = "DPoP" if self.has_dpop else "Bearer"
            token = reply.seen.headers.get("authorization", "").removeprefix(f"{scheme} ")
            if token not in self.good or self.is_fickle:
                where = f"{self.base}/.well-known/oauth-protected-resource/mcp"
                await reply.body(b"", 401, WWW_Authenticate=f'{scheme} resource_metadata="{where}"')
                return
            if self.has_dpop and not self._is_proven(reply, token):
                nonce = {"DPoP_Nonce": self.nonces["/mcp"]}
                await reply.body(b"", 401, WWW_Authenticate='DPoP error="use_dpop_nonce"', **nonce)
                return
            await super()._handle(reply)
            return
        self.asked[path] += 1
        known = {
            "/.well-known/oauth-protected-resource/mcp": self._resource,
            "/.well-known/oauth-authorization-server": self._describe,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
        }
        handler = known.get(path)
        await (handler(reply) if handler is not None else reply.body(b"", 404))

    def _is_proven(self, reply: Reply, token: str | None) -> bool:
        """False: only the nonce is not the present one. Any other fault fails the test."""
        proof, path = reply.seen.headers["dpop"], urlsplit(reply.seen.path).path
        head = jwt.get_unverified_header(proof)
        assert head["typ"] == "dpop+jwt" and "d" not in head["jwk"]
        claims = jwt.decode(proof, jwt.PyJWK(head["jwk"]).key, algorithms=["ES256"])
        assert claims["htu"] == self.base + path and claims["htm"] == reply.seen.verb
        assert claims["jti"] not in self.proofs
        self.proofs.add(claims["jti"])
        if token is not None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
            assert claims["ath"] == digest
        return claims.get("nonce") == self.nonces.get(path)

    async def _resource(self, reply: Reply) -> None:
        await reply.json({"resource": self.url, "authorization_servers": [self.base]})

    async def _describe(self, reply: Reply) -> None:
        found = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        }
        dpop = {"dpop_signing_alg_values_supported": ["ES256"]} if self.has_dpop else {}
        await reply.json({**found, **dpop, **self.metadata})

    async def _register(self, reply: Reply) -> None:
        wanted = json.loads(reply.seen.body)
        await reply.json({**wanted, "client_id": f"client-{self.asked['/register']}"}, 201)

    async def _authorize(self, reply: Reply) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(reply.seen.path).query).items()}
        assert query["code_challenge_method"] == "S256"
        answer = {"error": "access_denied", "error_description": "not <you>"} if self.denies else {"code": "code-1"}
        back = query["redirect_uri"] + "?" + urlencode({**answer, "state": query["state"]})
        await reply.body(b"", 302, Location=back)

    async def _token(self, reply: Reply) -> None:
        form = {name: values[0] for name, values in parse_qs(reply.seen.body.decode()).items()}
        if self.has_dpop and not self._is_proven(reply, None):
            await reply.json({"error": "use_dpop_nonce"}, 400, DPoP_Nonce=self.nonces["/token"])
            return
        self.forms.append(form)
        self.asked[form["grant_type"]] += 1
        if form["grant_type"] == "refresh_token" and self.refuses_refresh:
            await reply.json({"error": "invalid_grant"}, 400)
            return
        self._number += 1
        token = {"access_token": f"secret-access-{self._number}", "token_type": "DPoP" if self.has_dpop else "bearer"}
        if self.lifetime_s is not None:
            token |= {"expires_in": self.lifetime_s}  # type: ignore[dict-item]
        if self.gives_refresh and form["grant_type"] != "client_credentials":
            token |= {"refresh_token": f"secret-refresh-{self._number}"}
        self.good.add(token["access_token"])
        for secret in (token["access_token"], token.get("refresh_token")):
            if secret:
                canary.register(secret)
        await reply.json(token)
