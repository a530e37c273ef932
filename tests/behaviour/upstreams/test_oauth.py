"""Upstreams that require OAuth: tokens are obtained, kept, refreshed, and never sent to another server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tabrelay.cli.sign_in import for_relay
from tabrelay.config.specs import HttpSpec, OAuthSpec
from tests.peers.upstreams.transports.test_http import TEXT, TOOL, initialize
from tests.support.fake_upstream import result
from tests.support.oauth_protected_server import Authority
from tests.support.paths import ROOT
from tests.support.running_relay import RunningRelay

VISIT = ROOT / "tests" / "conformance" / "visit.py"
MACHINE = OAuthSpec("client_credentials", "relay", "client-secret")


@pytest.fixture
async def server() -> AsyncIterator[Authority]:
    on: dict[str, Any] = {"tools/list": result({"tools": [TOOL]}), "tools/call": result(TEXT), "initialize": initialize}
    async with Authority(**on) as server:
        yield server


def relay_for(home: Path, server: Authority, oauth: OAuthSpec | None = None, **more: Any) -> RunningRelay:
    spec = HttpSpec("far", server.url, era="legacy", oauth=oauth or OAuthSpec(), **more)
    relay = RunningRelay(home, specs=[spec], away_wait_s=2.0)
    relay._sign_in = for_relay(relay.settings, "tabrelay", f" --home {home}")
    return relay


def calls(server: Authority) -> int:
    return sum(seen.path == "/mcp" and seen.method == "tools/call" for seen in server.seen)


async def called(relay: RunningRelay) -> Any:
    answer = (await relay.call("far", "t")).json()
    return answer["result"]["content"] if "result" in answer else answer["error"]


async def test_a_client_with_a_secret_gets_its_tokens_by_itself(server: Authority, tmp_path: Path) -> None:
    async with relay_for(tmp_path, server, MACHINE) as relay:
        await relay.has_read("far")
        assert await called(relay) == TEXT["content"]
    assert server.asked["client_credentials"] == 1
    assert server.forms[0]["resource"] == server.url


async def test_a_token_that_is_refused_is_replaced_and_the_call_made_once_more(
    server: Authority, tmp_path: Path
) -> None:
    async with relay_for(tmp_path, server, MACHINE) as relay:
        await relay.has_read("far")
        server.revoke()
        assert await called(relay) == TEXT["content"]
        assert (calls(server), server.asked["client_credentials"]) == (2, 2)  # one was refused, one succeeded


async def test_tokens_may_be_bound_to_a_key_and_proofs_to_a_nonce(server: Authority, tmp_path: Path) -> None:
    server.has_dpop, server.nonces = True, {"/token": "t-1", "/mcp": "m-1"}
    async with relay_for(tmp_path, server, MACHINE) as relay:
        await relay.has_read("far")
        assert await called(relay) == TEXT["content"]
        before = calls(server)
        server.nonces["/mcp"] = "m-2"
        server.revoke()
        assert await called(relay) == TEXT["content"]
        assert calls(server) == before + 3, "refused for its token, then for its nonce, then accepted"


async def test_a_workload_signs_in_with_a_file_that_its_platform_renews(server: Authority, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    held = tmp_path / "jwt"
    held.write_text(jwt.encode({"sub": "job", "aud": server.base}, key, algorithm="ES256"))
    wanted = OAuthSpec("workload_identity", assertion_file=str(held))
    async with relay_for(tmp_path, server, wanted) as relay:
        await relay.has_read("far")
        held.write_text(jwt.encode({"sub": "job", "aud": server.base, "jti": "2"}, key, algorithm="ES256"))
        server.revoke()
        assert await called(relay) == TEXT["content"]
    assert server.forms[-1]["assertion"] == held.read_text() != server.forms[0]["assertion"]


async def test_calls_that_are_refused_together_share_the_next_token(server: Authority, tmp_path: Path) -> None:
    async with relay_for(tmp_path, server, MACHINE) as relay:
        await relay.has_read("far")
        server.revoke()
        assert await asyncio.gather(*(called(relay) for _ in range(5))) == [TEXT["content"]] * 5
        assert server.asked["client_credentials"] == 2


async def test_a_second_refusal_is_the_answer(server: Authority, tmp_path: Path) -> None:
    async with relay_for(tmp_path, server, MACHINE) as relay:
        await relay.has_read("far")
        server.revoke()
        server.is_fickle = True
        error = await called(relay)
        assert "HTTP 401" in error["message"]
        assert error["data"]["delivered"] == "no"
        assert calls(server) == 2


async def test_where_a_user_has_to_agree_the_status_explains_how(server: Authority, tmp_path: Path) -> None:
    async with relay_for(tmp_path, server) as relay:
        error = await called(relay)
        assert f"tabrelay login far --home {tmp_path}" in error["message"]
        [row] = (await relay.http.get("/-/status")).json()["servers"]
        assert "tabrelay login far" in row["problem"]
    assert server.asked["/register"] == server.asked["/authorize"] == 0


async def test_after_a_login_the_relay_connects_and_refreshes_by_itself(server: Authority, tmp_path: Path) -> None:
    file = tmp_path / "relay.json"
    file.write_text(json.dumps({"mcpServers": {"far": {"url": server.url}}}))
    home = tmp_path / "home"
    async with relay_for(home, server) as relay:
        assert "login" in (await called(relay))["message"]
        said = await login(file, home, server)
        assert f"Signed in at http://127.0.0.1:{server.port}/mcp." in said
        await relay.http.post("/-/upstreams/far/reconnect")
        await relay.has_read("far")
        server.revoke()
        assert await called(relay) == TEXT["content"]
    assert (server.asked["authorization_code"], server.asked["refresh_token"]) == (1, 1)


async def login(file: Path, home: Path, server: Authority) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tabrelay", "login", "far", "-c", str(file), "--home", str(home)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "BROWSER": f"{sys.executable} {VISIT} %s", "NO_PROXY": "*", "no_proxy": "*"},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_a_header_of_the_configuration_is_used_as_it_is(server: Authority, tmp_path: Path) -> None:
    async with relay_for(tmp_path, server, MACHINE, headers=(("Authorization", "Bearer mine-alone"),)) as relay:
        assert "HTTP 401" in (await called(relay))["message"]
    assert server.asked["client_credentials"] == 0
    assert {seen.headers.get("authorization") for seen in server.seen if seen.path == "/mcp"} == {"Bearer mine-alone"}
