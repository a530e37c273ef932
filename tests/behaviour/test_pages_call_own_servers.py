"""The call key of a page calls servers that pages of its origin offer at the moment; it opens nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tabrelay.calls.principal import CALL, MANAGE, SERVE
from tabrelay.calls.proof import ROUTE, Challenge, call_key, key_id, key_of
from tests.support.child_specs import child
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay, modern
from tests.support.waiting import BOUND_S, until


@pytest.fixture(scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningRelay]:
    """With a child process, and grace and waits as the tests need them."""
    home = tmp_path_factory.mktemp("relay")
    async with RunningRelay(home, specs=[child("files")], grace_s=0.2, away_wait_s=BOUND_S, rate_s=0) as relay:
        yield relay


def page_token(relay: RunningRelay, origin: str | None = None) -> str:
    return relay.tokens.issue_for_page(origin or relay.url, None, (SERVE, MANAGE))


async def call_headers(relay: RunningRelay, token: str) -> dict[str, str]:
    """As a page of the relay sends them."""
    challenge = Challenge(call_key(key_of(token)), f"127.0.0.1:{relay.port}")
    answer = await relay.http.post(ROUTE, content=challenge.body(), headers={"Authorization": ""})
    shown = challenge.verify(answer.status_code, answer.content).text()
    return {"Authorization": f"Bearer {shown}", "Origin": relay.url}


def tool_call(headers: dict[str, str], tool: str = "echo") -> dict[str, Any]:
    request = modern("tools/call", {"name": tool, "arguments": {}})
    return {**request, "headers": {**request["headers"], **headers}}


async def test_a_page_calls_the_server_that_its_origin_offers(relay: RunningRelay) -> None:
    token = page_token(relay)
    async with SyntheticWorker(relay.url, token, "board", origin=relay.url):
        answer = await relay.http.post("/board", **tool_call(await call_headers(relay, token)))
        assert answer.status_code == 200 and "result" in answer.json()
        # Another pairing of the same origin is the same page.
        answer = await relay.http.post("/board", **tool_call(await call_headers(relay, page_token(relay))))
        assert answer.status_code == 200 and "result" in answer.json()


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
async def test_a_page_reaches_no_server_of_another_principal(relay: RunningRelay, method: str) -> None:
    headers = await call_headers(relay, page_token(relay))
    await relay.has_read("files")
    async with SyntheticWorker(relay.url, relay.token, "notes"):
        for server in ("notes", "files"):
            params = {"name": "echo", "arguments": {}} if method == "tools/call" else {}
            request = modern(method, params)
            answer = await relay.http.post(f"/{server}", **{**request, "headers": {**request["headers"], **headers}})
            assert answer.status_code == 403, server
            assert answer.json()["error"]["data"]["reason"] == "forbidden"
            assert "of its own origin" in answer.json()["error"]["message"]
            # The handshake era: no session either, and no event stream.
            answer, _ = await relay.initialize(server, headers=headers)
            assert answer.status_code == 403
            answer = await relay.http.get(f"/{server}", headers={**headers, "Accept": "text/event-stream"})
            assert answer.status_code == 403


async def test_a_page_does_not_call_a_server_that_is_offline(relay: RunningRelay) -> None:
    token = page_token(relay)
    headers = await call_headers(relay, token)
    async with SyntheticWorker(relay.url, token, "shelf", origin=relay.url):
        await relay.has_read("shelf")

    async def is_refused() -> bool:
        """Lists are answered from the cache during the grace."""
        request = modern("tools/list")
        answer = await relay.http.post("/shelf", **{**request, "headers": {**request["headers"], **headers}})
        return answer.status_code == 403

    await until(is_refused)
    assert (await relay.http.post("/shelf", **tool_call(headers))).status_code == 403


async def test_a_call_that_waits_does_not_reach_the_origin_that_takes_the_name(relay: RunningRelay) -> None:
    token = page_token(relay)
    headers = await call_headers(relay, token)
    worker = SyntheticWorker(relay.url, token, "desk", origin=relay.url)
    async with worker:
        await worker.cut()
        waiting = asyncio.create_task(relay.http.post("/desk", **tool_call(headers)))
        other = SyntheticWorker(relay.url, relay.token, "desk")

        async def has_taken_the_name() -> bool:
            try:
                await other.dial()
                await other.until(lambda: other.link.is_up)
            except InvalidStatus:
                return False
            return True

        await until(has_taken_the_name)
        answer = await waiting
        assert "of its own origin" in answer.json()["error"]["message"]
        assert other.calls == []
        await other.hang_up()


async def test_a_call_key_opens_no_other_route(relay: RunningRelay) -> None:
    token = page_token(relay)
    headers = await call_headers(relay, token)
    for path in ("/-/pairs", "/-/calls", "/-/drift", "/-/metrics"):
        assert (await relay.http.get(path, headers=headers)).status_code == 403, path
    for path in ("/-/pairs", "/-/codes", "/-/drift", "/-/forget", "/-/upstreams/files"):
        assert (await relay.http.post(path, json={}, headers=headers)).status_code == 403, path
    shown = headers["Authorization"].removeprefix("Bearer ")
    with pytest.raises(InvalidStatus) as refused:
        await SyntheticWorker(relay.url, shown, "board", origin=relay.url).dial()
    assert refused.value.response.status_code == 403


async def test_only_tokens_of_pages_have_a_call_key(relay: RunningRelay) -> None:
    named = relay.tokens.issue_named("laptop", [CALL, SERVE])
    monitor = relay.tokens.issue_for_page(relay.url, None, [MANAGE])
    for token in (relay.token, named, monitor):
        assert relay.tokens.prove(key_id(call_key(key_of(token))), f"127.0.0.1:{relay.port}", "A" * 22) is None


async def test_pages_of_other_origins_send_no_calls(relay: RunningRelay) -> None:
    app = "http://localhost:5173"
    token = page_token(relay, app)
    async with SyntheticWorker(relay.url, token, "app", origin=app):
        headers = {**await call_headers(relay, token), "Origin": app}
        assert (await relay.http.post("/app", **tool_call(headers))).status_code == 403


async def test_the_key_ends_with_the_pairing(relay: RunningRelay) -> None:
    token = page_token(relay, "http://localhost:" + str(relay.port))
    headers = await call_headers(relay, token) | {"Origin": "http://localhost:" + str(relay.port)}
    relay.tokens.revoke_pages("http://localhost:" + str(relay.port))
    assert (await relay.http.post("/board", **tool_call(headers))).status_code == 401
