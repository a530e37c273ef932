"""A relay behind TLS and a proxy, with tokens of a real authorization server, and the OAuth of the official client."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tabrelay.admission.oauth_keys import LIFE_S, PAUSE_S, JwksCache, JwksError
from tabrelay.admission.policy import Policy
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.http.addresses import PolicyError
from tests.support.authorization_server import USER, Issuer, elliptic_key, other_key, query, shared_key
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.tls_proxy import Terminator
from tests.support.waiting import BOUND_S

BACK = "http://127.0.0.1:1/callback"


@dataclass
class Host:
    """A hosted relay: proxy, authorization server and client."""

    relay: RunningRelay
    issuer: Issuer
    proxy: Terminator
    http: httpx2.AsyncClient

    def token(self, server: str = "notes", scope: str | None = None, **claims: Any) -> dict[str, str]:
        """Header with a token."""
        said = {"aud": f"{self.proxy.url}/{server}", "scope": scope or f"call:{server}", **claims}
        return {"Authorization": f"Bearer {self.issuer.sign(**said)}"}

    async def call(self, headers: dict[str, str], server: str = "notes") -> httpx2.Response:
        request = self.relay.modern("tools/call", {"name": "echo", "arguments": {}})
        return await self.http.post(
            f"{self.proxy.url}/{server}", json=request["json"], headers={**request["headers"], **headers}
        )


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(Issuer())
        proxy = await stack.enter_async_context(Terminator(tmp_path))
        relay = await stack.enter_async_context(
            RunningRelay(
                tmp_path / "home",
                servers=("notes", "other"),
                public_url=proxy.url,
                trusted_proxies=("127.0.0.1",),
                oauth_issuer=issuer.url,
                away_wait_s=0.1,
            )
        )
        proxy.target = relay.port
        accept = {"Accept": "application/json, text/event-stream"}
        http = httpx2.AsyncClient(verify=proxy.trust(), trust_env=False, timeout=30, headers=accept)
        yield Host(relay, issuer, proxy, await stack.enter_async_context(http))


class Memory:
    """Storage of the official client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def test_the_official_client_signs_in_by_itself_and_calls(host: Host) -> None:
    answered: dict[str, str] = {}

    async def visit(url: str) -> None:
        """The user's browser, and a user who consents."""
        asked = query(url)
        assert asked["resource"] == f"{host.proxy.url}/notes" and "call:notes" in asked["scope"].split()
        answered.update(query((await host.http.get(url)).headers["location"]))

    async def came_back() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=answered["code"], state=answered["state"])

    about = OAuthClientMetadata(
        redirect_uris=[BACK],  # type: ignore[list-item]
        client_name="test",
        token_endpoint_auth_method="none",
        grant_types=["authorization_code"],
        response_types=["code"],
    )
    memory = Memory()
    auth = OAuthClientProvider(f"{host.proxy.url}/notes", about, memory, visit, came_back)
    async with SyntheticWorker(host.relay.url, host.relay.token, "notes") as worker:
        await host.relay.has_read("notes")
        async with (
            httpx2.AsyncClient(verify=host.proxy.trust(), trust_env=False, timeout=30, auth=auth) as http,
            Client(streamable_http_client(f"{host.proxy.url}/notes", http_client=http)) as client,
        ):
            result = await client.call_tool("echo", {"a": 1})
            assert result.content[0].text == '{"a": 1}'  # type: ignore[union-attr]
        assert memory.tokens is not None and memory.tokens.access_token == host.issuer.given[-1]
        # Only the client has its token: neither the browser nor the log does.
        assert not any(memory.tokens.access_token in repr(event) for event in worker.seen)
    log = host.relay.settings.home / "log" / f"calls-{host.relay.port}.log"
    await _until_written(log)
    row = json.loads(log.read_text().splitlines()[-1])
    assert row["principal"] == f"oauth:{USER}" and memory.tokens.access_token not in log.read_text()


async def _until_written(path: Path) -> None:
    async with asyncio.timeout(BOUND_S):
        while not (path.is_file() and path.stat().st_size):  # noqa: ASYNC110, ASYNC240 - a file sends no event
            await asyncio.sleep(0.02)


async def test_a_refusal_names_where_a_client_gets_a_token(host: Host) -> None:
    refused = await host.call({})
    assert refused.status_code == 401
    where = f"{host.proxy.url}/.well-known/oauth-protected-resource/notes"
    assert refused.headers["www-authenticate"] == f'Bearer scope="call:notes", resource_metadata="{where}"'
    about = (await host.http.get(where)).json()
    assert about["resource"] == f"{host.proxy.url}/notes"
    assert about["authorization_servers"] == [host.issuer.url] and about["scopes_supported"] == ["call:notes"]
    # RFC 9728 §3.3: the resource must be the address that the client used.
    request = host.relay.modern("tools/list")
    other = await host.http.post(f"{host.proxy.url}/notes/mcp", json=request["json"], headers=request["headers"])
    assert f'resource_metadata="{where}/mcp"' in other.headers["www-authenticate"]
    about = (await host.http.get(f"{where}/mcp")).json()
    assert (about["resource"], about["scopes_supported"]) == (f"{host.proxy.url}/notes/mcp", ["call:notes"])
    assert (await host.http.get(f"{where}/sse")).status_code == 404
    root = (await host.http.get(f"{host.proxy.url}/.well-known/oauth-protected-resource")).json()
    assert root["resource"] == host.proxy.url
    # It does not disclose which servers exist, and accepts only valid names.
    assert (await host.http.get(f"{host.proxy.url}/.well-known/oauth-protected-resource/unknown")).status_code == 200
    assert (await host.http.get(f"{host.proxy.url}/.well-known/oauth-protected-resource/-x")).status_code == 404
    old = await host.http.get(f"{host.proxy.url}/.well-known/oauth-authorization-server")
    assert old.headers["location"] == f"{host.issuer.url}/.well-known/oauth-authorization-server"
    # Clients in pages of any origin read it, with MCP's headers.
    headers = {"Origin": "https://client.example", "Access-Control-Request-Method": "GET"}
    headers["Access-Control-Request-Headers"] = "mcp-protocol-version"
    preflight = await host.http.options(where, headers=headers)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "https://client.example"
    with_origin = await host.http.get(where, headers={"Origin": "https://client.example"})
    assert with_origin.headers["access-control-allow-origin"] == "https://client.example"


async def test_a_token_that_is_not_for_this_server_is_no_token(host: Host) -> None:
    base, issuer = host.proxy.url, host.issuer
    now = int(time.time())
    async with SyntheticWorker(host.relay.url, host.relay.token, "notes"):
        await host.relay.has_read("notes")
        assert (await host.call(host.token())).status_code == 200
        assert (await host.call(host.token(scope="call"))).status_code == 200
        assert (await host.call(host.token(), "notes/mcp")).status_code == 200
        assert (await host.call(host.token(aud=f"{base}/notes/mcp"), "notes/mcp")).status_code == 200
        assert (await host.call(host.token(aud=[base, "https://else.example"]))).status_code == 200
        # Valid except for its signature.
        claims = host.token()["Authorization"].split(".")[1]
        heads = [_part({"alg": alg, "kid": issuer.key.kid}) for alg in ("none", "None", "RS256")]
        unsigned = [f"{head}.{claims}.{mark}" for head in heads for mark in ("", "AAAA")]
        bad = {
            "another server's": host.token(aud=f"{base}/other"),
            "another relay's": host.token(aud="https://relay.example/notes"),
            "another server's other address": host.token(aud=f"{base}/other/mcp"),
            "a longer address": host.token(aud=f"{base}/notes/x"),
            "without an audience": host.token(aud=None),
            "another issuer's": host.token(iss="https://evil.example"),
            "over": host.token(exp=now),
            "not yet": host.token(nbf=now + 600),
            "not yet signed": host.token(iat=now + 600),
            "for a number": host.token(aud=7),
            "with a number for a scope": host.token(scope=7),  # type: ignore[arg-type]
            "without an end": host.token(exp=None),
            "without a subject": host.token(sub=None),
            "signed with another key": host.token(key=other_key()),
            "signed with a secret": host.token(key=shared_key("first"), alg="HS256"),
            "signed with what is public": {"Authorization": f"Bearer {_confusing(issuer, claims)}"},
            **{f"not signed {number}": {"Authorization": f"Bearer {each}"} for number, each in enumerate(unsigned)},
            "cut": {"Authorization": host.token()["Authorization"][:-5]},
            "no token": {"Authorization": "Bearer a.b.c"},
            "far too long": {"Authorization": f"Bearer {'a' * 20_000}.b.c"},
        }
        for what, headers in bad.items():
            answer = await host.call(headers)
            assert answer.status_code == 401, what
            assert 'error="invalid_token"' in answer.headers["www-authenticate"], what
        for scope in ("", "serve:notes", "call:other", "call:note", "admin", "call:notes2"):
            answer = await host.call(host.token(scope=scope or " "))
            assert answer.status_code == 403, scope
            assert 'error="insufficient_scope", scope="call:notes"' in answer.headers["www-authenticate"]
        # Whatever its claims are, the relay does not accept it as a token.
        for path in ("/-/codes", "/-/pairs"):
            answer = await host.http.post(
                f"{base}{path}", headers=host.token(scope="call serve manage admin", aud=base)
            )
            assert answer.status_code == 403
        status = (await host.http.get(f"{base}/-/status", headers=host.token())).json()
        assert [row["name"] for row in status["servers"]] == ["notes"]
        assert status["servers"][0]["mcp_url"] == f"{base}/notes"


AUDIENCES = [(["/other"], ["other"]), (["/notes/mcp"], ["notes"]), (["/notes", "/x"], ["notes"]), (["/x"], [])]


@pytest.mark.parametrize(("paths", "names"), AUDIENCES)
async def test_the_status_shows_only_servers_of_the_tokens_audience(
    host: Host, paths: list[str], names: list[str]
) -> None:
    """Its scope is for every server; the narrower audience decides."""
    audience = [f"{host.proxy.url}{path}" for path in paths]
    for scope in ("call", "serve", "call serve"):
        headers = host.token(scope=scope, aud=audience)
        status = (await host.http.get(f"{host.proxy.url}/-/status", headers=headers)).json()
        assert [row["name"] for row in status["servers"]] == names
    whole = host.token(scope="call", aud=host.proxy.url)
    status = (await host.http.get(f"{host.proxy.url}/-/status", headers=whole)).json()
    assert "notes" in [row["name"] for row in status["servers"]]


def _confusing(issuer: Issuer, claims: str) -> str:
    """The secret is the public key, in the form that a careless verifier would pass to HMAC."""
    said = f"{_part({'alg': 'HS256', 'kid': issuer.key.kid})}.{claims}"
    mark = hmac.digest(issuer.key.as_pem(private=False), said.encode(), "sha256")
    return f"{said}.{base64.urlsafe_b64encode(mark).decode().rstrip('=')}"


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


async def test_what_is_open_ends_with_its_token(host: Host) -> None:
    """A WebSocket ends with 4401, an event stream with its connection; a session continues with the next token."""
    soon = int(time.time() + 6)
    serving = host.token(scope="serve:notes", exp=soon)["Authorization"].removeprefix("Bearer ")
    calling = host.token(exp=soon)
    worker = SyntheticWorker(host.relay.url, serving, "notes")
    async with worker:
        await host.relay.has_read("notes")
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        opened = await host.http.post(f"{host.proxy.url}/notes", json=hello, headers=calling)
        assert opened.status_code == 200, opened.text
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        async with host.http.stream("GET", f"{host.proxy.url}/notes", headers={**calling, **session}) as stream:
            assert stream.status_code == 200
            async with asyncio.timeout(20):
                async for _line in stream.aiter_lines():
                    pass
        assert time.time() >= soon - 1
        await worker.until(lambda: worker.close_code is not None, 20)
        assert worker.close_code == 4401
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        late = await host.http.post(f"{host.proxy.url}/notes", json=ping, headers={**calling, **session})
        assert late.status_code == 401
        # The same subject continues with a new token; another one does not.
        for headers, status in ((host.token(), 200), (host.token(sub="eve"), 404)):
            answer = await host.http.post(f"{host.proxy.url}/notes", json=ping, headers={**headers, **session})
            assert answer.status_code == status


async def test_forwarded_headers_of_untrusted_proxies_are_ignored(tmp_path: Path) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "X-Forwarded-For": "1.2.3.4"}
    forwarded |= {"Forwarded": "for=1.2.3.4;host=evil.example;proto=https", "X-Forwarded-Port": "1"}
    forwarded |= {"X-Original-URL": "/-/healthz", "X-Rewrite-URL": "/-/healthz", "X-HTTP-Method-Override": "GET"}
    for proxies, scheme in ((("127.0.0.1",), "https"), (("192.0.2.1",), "http"), ((), "http")):
        async with RunningRelay(tmp_path / scheme / str(len(proxies)), trusted_proxies=proxies) as relay:
            answer = (await relay.http.post("/-/codes", headers=forwarded)).json()
            assert answer["url"].startswith(f"{scheme}://127.0.0.1:{relay.port}/#pair=")


async def test_behind_a_public_url_links_lead_there(host: Host) -> None:
    bearer = {"Authorization": f"Bearer {host.relay.token}"}
    answer = (await host.http.post(f"{host.proxy.url}/-/codes", headers=bearer)).json()
    assert answer["url"].startswith(f"{host.proxy.url}/#pair=")
    code = answer["url"].partition("=")[2]
    # The page at the public address is one of the relay's own.
    pair = await host.http.post(f"{host.proxy.url}/-/pair", json={"code": code}, headers={"Origin": host.proxy.url})
    assert pair.status_code == 200


# -- keys --------------------------------------------------------------------------------------------------------------


class Remote:
    """Source of keys."""

    def __init__(self, *keys: Any) -> None:
        self.keys = list(keys)
        self.fetched: list[str] = []
        self.fails = False
        self.issuer = "https://issuer.example"

    async def fetch(self, url: str) -> Any:
        self.fetched.append(url)
        if self.fails:
            raise JwksError("no")
        if url.endswith("/jwks"):
            return {"keys": [key.as_dict(private=False) if hasattr(key, "as_dict") else key for key in self.keys]}
        return {"issuer": self.issuer, "jwks_uri": "https://issuer.example/jwks"}


class Now:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


async def test_keys_are_fetched_once_then_again_when_a_new_one_is_named_and_never_too_often() -> None:
    remote, now = Remote(elliptic_key("a")), Now()
    keys = JwksCache("https://issuer.example", fetch=remote.fetch, clock=now)
    await asyncio.gather(*(keys.prepare("a") for _ in range(20)))
    assert keys.find("a") is not None and len(remote.fetched) == 2  # metadata, keys
    remote.keys = [elliptic_key("b")]
    await keys.prepare("b")
    assert keys.find("b") is None  # fetched a moment ago: forged key names cause no new fetch
    now.time += PAUSE_S
    await keys.prepare("b")
    assert keys.find("b") is not None and keys.find("a") is None
    for name in range(100):
        await keys.prepare(f"made up {name}")
    assert len(remote.fetched) == 4


async def test_keys_that_cannot_be_renewed_count_for_an_hour_and_then_no_longer() -> None:
    remote, now = Remote(elliptic_key("a")), Now()
    keys = JwksCache("https://issuer.example", "https://issuer.example/jwks", fetch=remote.fetch, clock=now)
    await keys.prepare("a")
    remote.fails = True
    now.time += LIFE_S - 1
    await keys.prepare("a")
    assert keys.find("a") is not None
    now.time += 2
    await keys.prepare("a")
    assert keys.find("a") is None


async def test_metadata_of_another_issuer_and_keys_that_are_not_public_are_refused() -> None:
    remote = Remote(elliptic_key("a"))
    remote.issuer = "https://evil.example"
    keys = JwksCache("https://issuer.example", fetch=remote.fetch)
    await keys.prepare("a")
    assert keys.find("a") is None
    odd = [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}, {"kty": "RSA"}, 7, {"kty": "EC", "crv": "P-521", "kid": "x"}]
    remote = Remote(*odd, elliptic_key("b"))
    keys = JwksCache("https://issuer.example", fetch=remote.fetch)
    await keys.prepare("a")
    assert keys.find("a") is None and keys.find("b") is not None


async def test_a_key_that_is_gone_takes_its_tokens_along(host: Host) -> None:
    async with SyntheticWorker(host.relay.url, host.relay.token, "notes"):
        await host.relay.has_read("notes")
        before = host.token()
        assert (await host.call(before)).status_code == 200
        host.issuer.rotate("second")
        gate = host.relay.app._app
        gate._resource._keys._tried -= PAUSE_S  # the pause is over
        assert (await host.call(host.token())).status_code == 200
        assert (await host.call(before)).status_code == 401


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"oauth_issuer": "https://a.example"}, "public_url"),
        ({"oauth_issuer": "http://a.example", "public_url": "https://r.example"}, "https"),
        ({"public_url": "https://r.example", "no_auth": True}, "no_auth"),
        ({"public_url": "https://r.example", "plain": ("notes",)}, "plain"),
        ({"public_url": "https://r.example", "faults": True}, "faults"),
    ],
)
def test_what_would_open_a_public_relay_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Settings(**settings)


def test_a_public_address_is_an_origin_with_encryption() -> None:
    policy = Policy.for_address("127.0.0.1", 4747, public_url="https://Relay.example")
    assert policy.check_host(["relay.example"]) is None and policy.is_own_origin("https://relay.example")
    assert policy.check_host(["relay.example:4747"]) is not None
    assert not policy.is_own_origin("http://relay.example")
    for wrong in ("http://relay.example", "relay.example", "https://relay.example/path", "ftp://relay.example"):
        with pytest.raises(PolicyError, match="--public-url"):
            Policy.for_address("127.0.0.1", 4747, public_url=wrong)
