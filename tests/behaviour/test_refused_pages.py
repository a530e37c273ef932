"""Pages that a relay refuses: its status, log and commands list them; and what a browser receives at an MCP address."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from tabrelay.cli import doctor, status
from tests.support.link_worker import SyntheticWorker, bearer
from tests.support.running_relay import RunningRelay

APP = "http://localhost:5173"
INSPECTOR = "http://localhost:6274"
HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, plain=("plain",), servers=("notes",)) as relay:
        yield relay


async def refused(relay: RunningRelay) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await relay.http.get("/-/status")).json()["refused"]
    return rows


async def dial(relay: RunningRelay, server: str, origin: str, *offered: str) -> int:
    url = f"{relay.url.replace('http', 'ws', 1)}/{server}"
    with pytest.raises(InvalidStatus) as answer:
        await connect(url, origin=Origin(origin), subprotocols=[Subprotocol(one) for one in offered], proxy=None)
    return answer.value.response.status_code


async def test_a_refused_plain_page_is_in_the_status_the_log_and_what_the_commands_print(
    relay: RunningRelay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert await dial(relay, "plain", APP, "mcp") == 403
    [page] = await refused(relay)
    assert (page["origin"], page["server"], page["kind"]) == (APP, "plain", "origin")
    assert page["command"].endswith(f"serve notes --plain plain --allow-origin {APP} --port {relay.port}")
    assert any(APP in line and page["command"] in line for line in caplog.messages)
    shown = status.text((await relay.http.get("/-/status")).json())
    assert APP in shown and page["command"] in shown
    [finding] = list(doctor._refused(await refused(relay)))
    assert finding.state == "bad" and APP in finding.text and page["command"] in finding.advice


async def test_each_kind_of_refusal_is_named_and_an_admitted_page_leaves_the_list(relay: RunningRelay) -> None:
    stale = relay.tokens.issue_for_page(APP, "notes", ("serve",))
    relay.tokens.revoke_pages(APP)
    assert await dial(relay, "notes", APP, "tabrelay.v1", bearer(stale)) in (401, 403)
    own = relay.url
    token = relay.tokens.issue_for_page(own, "notes", ("serve",))
    assert await dial(relay, "notes", own, "other", bearer(token)) == 400
    kinds = {(page["origin"], page["kind"]) for page in await refused(relay)}
    assert (own, "protocol") in kinds and any(origin == APP for origin, _ in kinds)
    # A client in a page of another origin, such as a web inspector.
    answer = await relay.http.post("/notes", headers={"Origin": INSPECTOR}, json={})
    assert answer.status_code == 403
    [client] = [page for page in await refused(relay) if page["origin"] == INSPECTOR]
    assert f"--allow-origin {INSPECTOR}" in client["command"] and "--plain notes" not in client["command"]
    async with SyntheticWorker(relay.url, token, "notes", origin=own):
        assert own not in {page["origin"] for page in await refused(relay)}


async def test_a_program_without_an_origin_is_not_a_page(relay: RunningRelay) -> None:
    async with httpx2.AsyncClient(base_url=relay.url, trust_env=False) as stranger:
        assert (await stranger.post("/notes", json={})).status_code == 401
    assert await refused(relay) == []


@pytest.mark.parametrize("path", ["/notes", "/notes/mcp", "/unknown", "/notes/sse", "/notes/"])
async def test_a_browser_gets_a_page_at_an_mcp_address_which_is_the_same_for_every_name(
    relay: RunningRelay, path: str
) -> None:
    async with httpx2.AsyncClient(base_url=relay.url, trust_env=False) as browser:
        first = await browser.get("/notes", headers=HTML | {"Sec-Fetch-Mode": "navigate"})
        answer = await browser.get(path, headers=HTML)
        assert answer.status_code == 200 and answer.text == first.text
        assert answer.headers["content-type"].startswith("text/html")
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "Accept" in answer.headers["vary"] and answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "text/event-stream"}, 401),
        ({"Accept": "application/json, text/event-stream"}, 401),
        ({"Accept": "text/html, text/event-stream"}, 401),
        ({"Accept": "*/*"}, 401),
        (HTML | {"Sec-Fetch-Mode": "cors"}, 401),
        (HTML | {"Host": "evil.example"}, 421),
    ],
)
async def test_other_requests_without_a_token_are_refused_as_before(
    relay: RunningRelay, headers: dict[str, str], status: int
) -> None:
    async with httpx2.AsyncClient(base_url=relay.url, trust_env=False) as stranger:
        assert (await stranger.get("/notes", headers=headers)).status_code == status
        assert (await stranger.post("/notes", headers=HTML, json={})).status_code == 401
        assert (await stranger.get("/-/status", headers=HTML)).status_code == 401


async def test_the_stream_of_a_client_and_a_path_of_the_relay_are_what_they_were(relay: RunningRelay) -> None:
    answer = await relay.http.get("/notes", headers={"Accept": "text/event-stream"})
    assert answer.status_code in (400, 404, 405)  # a session is needed
    assert "text/html" not in answer.headers["content-type"]
    assert (await relay.http.get("/.well-known/nothing", headers=HTML)).status_code == 404
