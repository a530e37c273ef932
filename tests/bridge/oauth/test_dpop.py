"""Tokens that are bound to a key: every request has a fresh proof, and the nonces of both servers are used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx2

from tabrelay.bridge.oauth.dpop import DpopKey, TokenBinding, loaded
from tests.bridge.oauth.test_credentials import AdvancedClock, Asked, bridge
from tests.support.oauth_protected_server import Authority


async def test_each_request_has_a_fresh_proof_and_the_key_stays_with_the_token(tmp_path: Path) -> None:
    clock, ask = AdvancedClock(), Asked()
    async with Authority() as server:
        server.has_dpop = True
        async with bridge(server, tmp_path, clock, ask) as here:
            assert (await here.ask("ping"))["result"] == {}
            assert (await here.ask("ping"))["result"] == {}
        assert server.seen[-1].headers["authorization"] == "DPoP secret-access-1"
        proofs = len(server.proofs)
        assert proofs == 3, "one for the token request, and one for each message"
        [kept] = (tmp_path / "oauth").glob("*.json")
        assert "PRIVATE KEY" in kept.read_text() and kept.stat().st_mode & 0o77 == 0
        clock.time += 4000
        async with bridge(server, tmp_path, clock, ask) as here:
            assert (await here.ask("ping"))["result"] == {}
        assert (server.asked["refresh_token"], len(ask.urls)) == (1, 1)


async def test_the_nonces_of_both_servers_are_used_also_when_they_change(tmp_path: Path) -> None:
    async with Authority() as server:
        server.has_dpop = True
        server.nonces = {"/token": "t-1", "/mcp": "m-1"}
        async with bridge(server, tmp_path) as here:
            assert (await here.ask("ping"))["result"] == {}
            before = len(server.seen)
            assert (await here.ask("ping"))["result"] == {}
            assert len(server.seen) == before + 1, "the nonce is kept"
            server.nonces["/mcp"] = "m-2"
            assert (await here.ask("ping"))["result"] == {}


async def test_a_server_that_asks_for_another_nonce_each_time_is_an_error(tmp_path: Path) -> None:
    async with Authority() as server:
        server.has_dpop = True
        async with bridge(server, tmp_path) as here:
            assert (await here.ask("ping"))["result"] == {}
            server._is_proven = lambda *_: False  # type: ignore[method-assign]
            server.nonces = {"/mcp": "never-right"}
            before = len(server.seen)
            assert (await here.ask("ping"))["error"]["data"]["status"] == 401
            assert len(server.seen) == before + 2


async def test_an_authorization_server_without_dpop_gives_a_plain_token(tmp_path: Path) -> None:
    async with Authority() as server, bridge(server, tmp_path) as here:
        assert (await here.ask("ping"))["result"] == {}
        assert server.seen[-1].headers["authorization"] == "Bearer secret-access-1"
        assert "dpop" not in server.seen[-1].headers


def answer(found: Mapping[str, object], status: int = 200) -> httpx2.Response:
    return httpx2.Response(status, json=found, request=httpx2.Request("GET", "http://x/"))


def test_a_proof_is_sent_with_token_requests_only_and_only_where_both_servers_have_dpop() -> None:
    request = httpx2.Request("POST", "http://x/token", data={"grant_type": "refresh_token"})
    both = {"token_endpoint": "http://x/token", "dpop_signing_alg_values_supported": ["ES256"]}
    for challenge, metadata, wanted in (
        ('DPoP resource_metadata="y"', both, True),
        ('Bearer realm="a", DPoP algs="ES256"', both, True),
        ('Bearer scope="a"', both, False),
        ("DPoP", {"token_endpoint": "http://x/token"}, False),
    ):
        binding = TokenBinding({}, challenge)
        binding.read_metadata(answer(metadata))
        assert binding.prove(request) is wanted, (challenge, metadata)
        assert not binding.prove(httpx2.Request("POST", "http://x/register", json={}))
        assert bool(binding.state) is wanted
    binding = TokenBinding({}, "Bearer")
    binding.read_metadata(answer({"authorization_servers": ["http://x"], "dpop_bound_access_tokens_required": True}))
    binding.read_metadata(answer(both))
    assert binding.prove(request)
    # The SDK gets a bound token as a bearer token.
    assert binding.read_token(answer({"access_token": "a", "token_type": "DPoP"})).json()["token_type"] == "Bearer"
    assert binding.state["is_bound"]
    assert binding.read_token(answer({"access_token": "a", "token_type": "bearer"})).json()["token_type"] == "bearer"
    assert not binding.state["is_bound"]


def test_a_proof_names_the_address_without_its_query() -> None:
    import jwt

    proof = loaded(DpopKey.generate()).proof("GET", "https://x:1/mcp?a=b#c", token="t")
    claims = jwt.decode(proof, options={"verify_signature": False})
    assert claims["htu"] == "https://x:1/mcp" and claims["htm"] == "GET"
