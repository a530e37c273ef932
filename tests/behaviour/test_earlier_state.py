"""State of an earlier version still loads: tokens, pairings, sessions, pins, catalogues, drift, sign-ins, call log.

`earlier_state` was written by the version before the modules were moved into packages (commit 55670bd), with a clock at
2100-01-01, so that nothing in it expires. All secrets in it are `not-a-secret-…`. `expected.json` has what was stored.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.bridge.oauth.token_store import OAuthStore
from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tests.faces.mcp.test_tab_pins import PinningWorker, legacy_call, said
from tests.support.running_relay import RunningRelay

EARLIER = Path(__file__).parent / "earlier_state"
EXPECTED: dict[str, Any] = json.loads((EARLIER / "expected.json").read_text())


class RecordingWorker(PinningWorker):
    """Accepts log levels and subscriptions, and keeps its requests."""

    def __init__(self, relay: RunningRelay) -> None:
        super().__init__(relay)
        self.asked: list[tuple[str, Any]] = []

    def _received(self, event: Received[str]) -> None:
        message = json.loads(event.payload)
        if message.get("method") in ("logging/setLevel", "resources/subscribe"):
            self.asked.append((message["method"], message["params"]))
            self.answer(event, {})
        else:
            super()._received(event)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    home = tmp_path / "home"
    shutil.copytree(EARLIER, home)
    for path in (home, *home.rglob("*")):  # git stores no modes
        path.chmod(0o700 if path.is_dir() else 0o600)
    settings: Any = {"static_tools": ("lists",), "instances": ("shared",), "away_wait_s": 0.1}
    call_log = str(home / "log" / "calls-4747.log")
    async with RunningRelay(home, servers=("notes",), call_log=call_log, **settings) as relay:
        yield relay


async def status(relay: RunningRelay, token: str) -> httpx2.Response:
    return await relay.http.get("/-/status", headers={"Authorization": f"Bearer {token}"})


async def test_tokens(relay: RunningRelay) -> None:
    assert relay.token == EXPECTED["token"]
    assert (await status(relay, EXPECTED["revoked"])).status_code == 401
    tokens = relay.tokens
    named = tokens.identify(EXPECTED["named"], None)
    assert named is not None and named.scopes == {"call"} and named.servers == frozenset({"notes"})
    issued = {row.name: row for row in tokens.issued()}
    assert set(issued) == {"reader", None} and issued["reader"].expires is not None


async def test_pairings(relay: RunningRelay) -> None:
    tokens = relay.tokens
    page = tokens.identify(EXPECTED["page"], "https://app.example")
    assert page is not None and page.scopes == {"serve"} and page.servers == frozenset({"notes"})
    assert tokens.identify(EXPECTED["page"], "https://other.example") is None
    assert tokens.has_page("https://other.example") and not tokens.has_page("https://third.example")


async def test_sessions_and_pinned_tabs(relay: RunningRelay) -> None:
    body = jsonrpc.request(1, "ping")
    assert (await relay.http.post("/notes", json=body, headers=EXPECTED["ended"])).status_code == 404
    async with RecordingWorker(relay) as worker:
        assert await legacy_call(relay, EXPECTED["session"]) == "3f9a12bc"
        assert said(await relay.call("notes", "any")) == EXPECTED["modern_pin"]
        await worker.until(lambda: len(worker.asked) == 2)
        assert ("logging/setLevel", {"level": "warning"}) in worker.asked
        assert ("resources/subscribe", {"uri": "notes:1"}) in worker.asked


async def test_catalogues_and_drift(relay: RunningRelay) -> None:
    rows = {row["name"]: row for row in (await relay.http.get("/-/status")).json()["servers"]}
    assert {"notes", "shared", "lists"} <= set(rows)
    assert [tool["name"] for tool in rows["notes"]["tools"]] == ["echo", "other"]
    assert rows["notes"]["drift"] == EXPECTED["drift"]
    answer, _ = await relay.initialize("notes")
    assert answer.json()["result"]["instructions"] == "Be kind."
    listed = (await relay.http.post("/shared", **relay.modern("tools/list"))).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["echo"]


async def test_the_call_log(relay: RunningRelay) -> None:
    calls = (await relay.http.get("/-/calls")).json()["calls"]
    assert [(row["server"], row["name"], row["outcome"]) for row in calls] == [("notes", "any", "ok")] * 2


def test_sign_ins() -> None:
    record = OAuthStore(EARLIER / "oauth", "https://mcp.example/mcp", "authorization_code", "", "", "").load()
    assert record.is_valid(now=4_102_444_800, margin_s=60)
    assert record.token["refresh_token"] == "not-a-secret-refresh"
    assert (record.client["client_id"], record.metadata["issuer"]) == ("c", "https://mcp.example")
