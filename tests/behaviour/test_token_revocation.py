"""Revocation of a token: its connections end at once, and only those."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import Message
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tabrelay.admission.active_requests import CHECK_INTERVAL_S, ActiveRequest, ActiveRequests
from tabrelay.admission.tokens import Tokens
from tabrelay.calls.principal import Principal
from tabserver.wire import jsonrpc
from tabserver.wire.events import ByeReceived, Closed, Received
from tabserver.wire.frames import BEARER_PREFIX, Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import ACCEPT, RunningRelay

SOON_S = 5.0 + CHECK_INTERVAL_S  # the connection must end by itself long before any other deadline of the relay


@asynccontextmanager
async def client(relay: RunningRelay, token: str) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {token}", "Accept": ACCEPT}
    async with httpx2.AsyncClient(base_url=relay.url, trust_env=False, timeout=30, headers=headers) as http:
        yield http


def bearer(token: str) -> str:
    return BEARER_PREFIX + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def revoke(relay: RunningRelay, name: str) -> None:
    """Revokes as the command line does, which has no connection to the running relay."""
    assert Tokens(relay.settings.home).revoke(lambda grant: grant.name == name)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, plain=("plain",)) as relay:
        yield relay


async def request_of(kind: str, relay: RunningRelay, http: httpx2.AsyncClient) -> dict[str, Any]:
    """A request that opens a long-lived stream, as arguments of `http.stream`."""
    more: dict[str, Any]
    if kind == "call":
        more = relay.modern("tools/call", {"name": "slow", "arguments": {}, "_meta": {"progressToken": 1}})
        return {"method": "POST", "url": "/notes", **more}
    if kind == "listen":
        more = relay.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        return {"method": "POST", "url": "/notes", **more}
    if kind == "sse":
        return {"method": "GET", "url": "/notes/sse"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    session = (await http.post("/notes", json=jsonrpc.request(0, "initialize", params))).headers["mcp-session-id"]
    headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    if kind == "legacy GET":
        return {"method": "GET", "url": "/notes", "headers": headers}
    body = jsonrpc.request(1, "tools/call", {"name": "slow", "arguments": {}})
    return {"method": "POST", "url": "/notes", "headers": headers, "json": body}


@pytest.mark.parametrize("kind", ["call", "listen", "legacy GET", "legacy call", "sse"])
async def test_a_stream_ends_when_its_token_is_revoked(relay: RunningRelay, kind: str) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        began: list[Received[str]] = []

        def begin(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
            """Send a notification at once, so that the answer is a stream; and never finish."""
            began.append(event)
            note = jsonrpc.notification("notifications/progress", {"progressToken": 1, "progress": 1})
            worker.send(event, Kind.NOTE, note)

        worker.on_call = begin
        worker.on_listen = lambda event: begin(worker, event, {})
        token = relay.tokens.issue_named("laptop", ["call"], ["notes"])
        async with client(relay, token) as http, asyncio.timeout(SOON_S):
            async with http.stream(**await request_of(kind, relay, http)) as stream:
                assert stream.status_code == 200
                chunks = stream.aiter_bytes()
                assert await anext(chunks)
                revoke(relay, "laptop")
                async for _ in chunks:
                    pass
            if began:  # no caller waits for the tool any more
                channel = began[0].channel
                await worker.until(lambda: any(isinstance(e, Closed) and e.channel == channel for e in worker.seen))
            assert (await http.post("/notes", **relay.modern("tools/list"))).status_code == 401
        # Other connections were not disturbed.
        assert (await relay.http.post("/notes", **relay.modern("tools/list"))).status_code == 200


async def test_a_call_that_has_not_begun_to_be_answered_is_refused(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = lambda worker, event, message: None
        token = relay.tokens.issue_named("laptop", ["call"])
        async with client(relay, token) as http, asyncio.timeout(SOON_S):
            call = relay.modern("tools/call", {"name": "slow", "arguments": {}})
            asking = asyncio.create_task(http.post("/notes", **call))
            await worker.until(lambda: len(worker.calls) == 1)
            revoke(relay, "laptop")
            response = await asking
            assert response.status_code == 401
            assert response.json()["error"]["data"]["reason"] == "unauthorized"


async def test_a_browser_is_disconnected_and_its_callers_get_an_error_at_once(relay: RunningRelay) -> None:
    token = relay.tokens.issue_named("page", ["serve"], ["notes"])
    async with SyntheticWorker(relay.url, token, "notes") as worker, asyncio.timeout(SOON_S):
        worker.on_call = lambda worker, event, message: None
        asking = asyncio.create_task(relay.call("notes", "slow"))
        await worker.until(lambda: len(worker.calls) == 1)
        revoke(relay, "page")
        await worker.dropped()
        assert worker.close_code == 4401
        assert [event.code for event in worker.seen if isinstance(event, ByeReceived)] == [4401]
        assert (await asking).json()["error"]["data"]["reason"] == "browser_gone"
    with pytest.raises(Exception, match="401"):
        await worker.dial()


async def test_a_plain_page_with_a_token_is_sent_away_too(relay: RunningRelay) -> None:
    token = relay.tokens.issue_named("page", ["serve"])
    entries = [Subprotocol("mcp"), Subprotocol(bearer(token))]
    async with connect(f"{relay.url.replace('http', 'ws')}/plain", subprotocols=entries, proxy=None) as socket:
        revoke(relay, "page")
        async with asyncio.timeout(SOON_S):
            with pytest.raises(ConnectionClosed):
                while True:
                    await socket.recv()
    assert socket.close_code == 4401


async def test_the_relays_own_token_is_replaced_while_it_runs(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker, asyncio.timeout(SOON_S):
        new = Tokens(relay.settings.home).renew_master()
        await worker.dropped()
        assert worker.close_code == 4401
        assert (await relay.http.get("/-/status")).status_code == 401
        assert (await relay.http.get("/-/status", headers={"Authorization": f"Bearer {new}"})).status_code == 200


async def test_a_token_that_ends_by_itself_ends_its_streams(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        token = relay.tokens.issue_named("guest", ["serve"], life_s=0.3)
        async with SyntheticWorker(relay.url, token, "notes") as worker, asyncio.timeout(SOON_S):
            await worker.dropped()
            assert worker.close_code == 4401


# -- a visit in isolation


class Client:
    """Stands in for a server's `receive`: returns the next message when the test adds one."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()

    async def receive(self) -> Message:
        return await self.messages.get()


async def test_a_cancellation_from_outside_is_not_swallowed() -> None:
    visit = ActiveRequest(Principal("me", frozenset()), "http", Client().receive)
    task = asyncio.create_task(visit.receive())
    await asyncio.sleep(0)
    visit.end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_was_over_before_it_was_asked_stays_over() -> None:
    visit = ActiveRequest(Principal("me", frozenset()), "websocket", Client().receive)
    visit.end()
    assert (await visit.receive())["code"] == 4401
    assert (await visit.receive())["code"] == 4401


async def test_a_request_that_is_allowed_receives_what_its_client_sends() -> None:
    welcome, guests = {"me": True, "you": True}, Client()
    visits = ActiveRequests(lambda principal: welcome[principal.id])
    mine, yours = (visits.open(Principal(id, frozenset(), credential=id), "http", guests.receive) for id in welcome)
    hearing = asyncio.create_task(mine.receive())
    await asyncio.sleep(0)
    welcome["you"] = False
    visits.end_revoked()
    assert (mine.is_over, yours.is_over) == (False, True)
    guests.messages.put_nowait({"type": "http.request"})
    assert await hearing == {"type": "http.request"}
    for visit in (mine, yours):
        visits.close(visit)
