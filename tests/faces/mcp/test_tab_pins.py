"""Pinned tabs: the relay stores them for its callers and sends them to every worker that connects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.faces.mcp.session_store import SessionStore
from tabrelay.faces.mcp.tab_pins import LIFE_S, TabPins
from tabserver.wire import jsonrpc
from tabserver.wire.control_messages import MAX_TAB_ID, PIN
from tabserver.wire.eras import Era
from tabserver.wire.events import Opened, Received
from tabserver.wire.frames import Caller, Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay

CALLER = Caller(Era.MODERN, "2026-07-28", "token:a", {"name": "claude", "version": "1"})


class PinningWorker(SyntheticWorker):
    """Pins the tab that a call's arguments name, whatever the tool, and answers with the tab that was pinned before."""

    def __init__(self, relay: RunningRelay, inst: str = "w1") -> None:
        super().__init__(relay.url, relay.token, "notes", inst=inst)
        self.on_call = PinningWorker.answer_call

    def answer_call(self: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        opened = [seen.caller for seen in self.seen if isinstance(seen, Opened) and seen.channel == event.channel]
        caller = event.caller or opened[-1]
        arguments = message["params"]["arguments"]
        if "tab" in arguments:
            self.send(event, Kind.NOTE, jsonrpc.notification(PIN, arguments))
        text = {"type": "text", "text": str(caller.tab)}
        self.answer(event, {"resultType": "complete", "content": [text]})


def said(response: httpx2.Response) -> str:
    """The text of a result that was sent as one JSON body: no client receives the control message."""
    result = response.json()["result"]
    return str(result["content"][0]["text"])


async def legacy_call(relay: RunningRelay, headers: dict[str, str], **arguments: Any) -> str:
    body = jsonrpc.request(5, "tools/call", {"name": "any", "arguments": arguments})
    return said(await relay.http.post("/notes", json=body, headers=headers))


@pytest.mark.requirement("pins")
async def test_a_sessions_pin_is_sent_to_the_next_worker_and_outlives_the_relay(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        _, headers = await relay.initialize("notes")
        _, others = await relay.initialize("notes")
        async with PinningWorker(relay):
            await legacy_call(relay, headers, tab="3f9a12bc")
        async with PinningWorker(relay, "w2"):
            assert await legacy_call(relay, headers) == "3f9a12bc"
            assert await legacy_call(relay, others) == "None"
    async with RunningRelay(tmp_path) as relay, PinningWorker(relay, "w3"):
        assert await legacy_call(relay, headers) == "3f9a12bc"
        await legacy_call(relay, headers, tab=None)
    async with RunningRelay(tmp_path) as relay, PinningWorker(relay, "w4"):
        assert await legacy_call(relay, headers) == "None"


@pytest.mark.requirement("pins")
async def test_a_modern_callers_pin_comes_with_its_next_request_also_after_a_restart(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, PinningWorker(relay):
        assert said(await relay.call("notes", "any", {"tab": "3f9a12bc"})) == "None"
        assert said(await relay.call("notes", "any")) == "3f9a12bc"
        meta = {"io.modelcontextprotocol/clientInfo": {"name": "another", "version": "1"}}
        assert said(await relay.call("notes", "any", _meta=meta)) == "None"
    async with RunningRelay(tmp_path) as relay, PinningWorker(relay, "w2"):
        assert said(await relay.call("notes", "any", {"tab": None})) == "3f9a12bc"
        assert said(await relay.call("notes", "any")) == "None"


@pytest.mark.parametrize("tab", [7, ["x"], {}, "x" * (MAX_TAB_ID + 1)])
async def test_a_pin_that_is_no_tab_is_dropped(tmp_path: Path, tab: Any) -> None:
    async with RunningRelay(tmp_path) as relay, PinningWorker(relay):
        await relay.call("notes", "any", {"tab": tab})
        assert said(await relay.call("notes", "any")) == "None"


def test_a_modern_pin_ends_when_it_was_not_used_for_a_while(tmp_path: Path) -> None:
    now = 1_000.0
    pins = TabPins(SessionStore(tmp_path / "pins.json"), wall=lambda: now)
    assert pins.caller("notes", CALLER) is CALLER
    pins.pin("notes", CALLER, "3f9a12bc")
    for _ in range(3):
        now += LIFE_S - 1
        assert pins.caller("notes", CALLER).tab == "3f9a12bc"
    now += LIFE_S + 1
    assert pins.caller("notes", CALLER) is CALLER


def test_a_modern_pin_is_of_one_server_principal_and_client(tmp_path: Path) -> None:
    pins = TabPins(SessionStore(tmp_path / "pins.json"))
    pins.pin("notes", CALLER, "3f9a12bc")
    newer = Caller(Era.MODERN, "2026-07-28", "token:a", {"name": "claude", "version": "2"}, {"roots": {}})
    assert pins.caller("notes", newer).tab == "3f9a12bc"
    others: list[tuple[str, str, dict[str, Any] | None]] = [
        ("other", "token:a", {"name": "claude"}),
        ("notes", "token:b", {"name": "claude"}),
        ("notes", "token:a", {"name": "cursor"}),
        ("notes", "token:a", {"name": 7}),
        ("notes", "token:a", None),
    ]
    for server, principal, client in others:
        assert pins.caller(server, Caller(Era.MODERN, "2026-07-28", principal, client)).tab is None


def test_a_relay_without_pins_writes_no_file(tmp_path: Path) -> None:
    TabPins(SessionStore(tmp_path / "pins.json")).flush()
    assert not list(tmp_path.iterdir())
