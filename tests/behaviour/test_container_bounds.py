"""Tables that grow with callers, names and messages: each is filled past its bound."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest

from tabrelay.bus.envelope import MAX_MESSAGES, Assembly, BadEnvelope
from tabrelay.calls.calls import Call
from tabrelay.faces.mcp import modern
from tabrelay.faces.mcp.acp_sessions import MAX_CALLED, MAX_CONDUCTORS, MAX_CONNECTIONS, MAX_ROWS, AcpSessions
from tabrelay.observe import log_setup
from tabrelay.observe.call_metrics import MAX_KNOWN, CallMetrics
from tabrelay.payloads.list_checks import MAX_URI
from tabrelay.peers.upstreams.question_order import MAX_HISTORY, AskHistory
from tabrelay.translation.subscribers import MAX_SUBSCRIPTIONS, MAX_URIS, Subscribers
from tabserver.wire import eras, jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.link_worker import SyntheticWorker
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

CALLER = Caller(Era.MODERN, "2026-07-28", "token:me", {"name": "c", "version": "1"})


def test_subscriptions_of_a_caller_and_of_a_server_are_bounded() -> None:
    audience = Subscribers()

    def subscribe(channel: str, uri: str) -> str | None:
        refusal = audience.refusal(channel, uri)
        if refusal is None:
            audience.subscribe(channel, uri)
        return refusal

    assert "characters" in str(subscribe("a", "x" * (MAX_URI + 1)))
    refused = [subscribe("a", f"x:{number}") for number in range(MAX_SUBSCRIPTIONS + 1)]
    assert refused[:-1] == [None] * MAX_SUBSCRIPTIONS and "Unsubscribe from one first" in str(refused[-1])
    assert subscribe("a", "x:0") is None  # which it has already
    channels = [f"c{number}" for number in range(2 * MAX_URIS // MAX_SUBSCRIPTIONS)]
    for channel in channels:
        for number in range(MAX_SUBSCRIPTIONS):
            subscribe(channel, f"{channel}:{number}")
    assert len(audience.uris) == MAX_URIS
    assert "already" in str(subscribe("late", "x:late"))
    assert subscribe("late", "x:0") is None  # which the server was asked for already
    for channel in ("a", "late", *channels):
        audience.leave(channel)
    assert (len(audience.uris), len(audience._counts)) == (0, 0)


async def test_a_plain_page_is_asked_for_no_more_subscriptions_than_a_caller_may_have(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("notes",), rate_s=0) as relay,
        ScriptedPage(relay.url, "notes", subprotocol=None) as page,
    ):
        _, headers = await relay.initialize("notes")
        body = jsonrpc.request(1, "resources/subscribe", {"uri": "x" * 100_000})
        answer = (await relay.http.post("/notes", json=body, headers=headers)).json()
        assert answer["error"]["code"] == jsonrpc.INVALID_PARAMS
        assert not page.has("resources/subscribe")


async def test_of_browsers_that_are_gone_no_table_of_calls_is_kept(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, max_servers=5, grace_s=0) as relay:
        door = relay.app._app._app._browser_endpoint
        for number in range(20):
            async with SyntheticWorker(relay.url, relay.token, f"n{number}", inst=f"w{number}"):
                pass
        await until(lambda: not door._sessions)
        assert door._calls_by_name == {}


def test_what_conductors_report_is_bounded() -> None:
    editors = AcpSessions(clock=lambda: 0.0)
    server = {"server": "notes", "server_id": "s", "connections": [f"c{number}" for number in range(10_000)]}
    editors.report("one", {"agent": "a", "sessions": [{"session": "x", "servers": [server]}]})
    [row] = editors.describe(lambda name: True)
    assert len(row["connections"]) == MAX_CONNECTIONS
    with pytest.raises(ValueError, match="at most"):
        editors.report("one", {"agent": "a", "sessions": [{"servers": [server] * (MAX_ROWS + 1)}]})
    for number in range(MAX_CONDUCTORS - 1):
        editors.report(f"c{number}", {"sessions": []})
    with pytest.raises(ValueError, match="already"):
        editors.report("one more", {"sessions": []})
    for number in range(2 * MAX_CALLED):
        editors.add_acp_meta(f"id-{number}", {"id": 1, "method": "x", "params": {}})
    assert len(editors._called) == MAX_CALLED


def test_the_number_of_incomplete_messages_of_a_node_is_bounded() -> None:
    assembly = Assembly()

    def part(number: int) -> bytes:
        return orjson.dumps({"op": "part", "from": "n", "x": number, "q": 0, "n": 2}) + b"\nx"

    for number in range(MAX_MESSAGES):
        assembly.add(part(number))
    with pytest.raises(BadEnvelope):
        assembly.add(part(MAX_MESSAGES))
    assert assembly._unfinished["n"] == {}


def test_names_and_methods_that_calls_make_up_take_no_more_room() -> None:
    meter = CallMetrics(most_servers=3)
    for number in range(2 * MAX_KNOWN):
        call = Call("c", 1, f"made/up{number}", "{}", CALLER)
        meter.record(f"s{number}", call, 0.1, (None, ""))
    assert len(meter._known) <= MAX_KNOWN
    # At most `metrics_servers` servers have a label.
    assert (len(meter._servers), len(meter._series)) == (3, 4)


def test_remembered_tools_that_ask_are_bounded() -> None:
    history = AskHistory()
    for number in range(2 * MAX_HISTORY):
        history.record(f"tools/call t{number}", asks=False)
    assert len(history._asks) == MAX_HISTORY


def test_the_number_of_secrets_that_are_taken_out_of_logs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {}
    monkeypatch.setattr(log_setup, "_known", known)
    before = log_setup.secrets_version()
    for number in range(log_setup.MOST_KNOWN + 5):
        log_setup.add_secret(f"made-up-{number:06}")
    assert len(known) == log_setup.MOST_KNOWN
    assert log_setup.secrets_version() == before + log_setup.MOST_KNOWN + 5
    assert "made-up" not in log_setup.redact(f"the last one is made-up-{log_setup.MOST_KNOWN + 4:06}")


def test_known_clients_take_little_more_memory_than_their_descriptions() -> None:
    meta = {eras.META_VERSION: "2026-07-28", eras.META_CLIENT: {"name": "c"}, eras.META_CAPABILITIES: {}}
    modern._known_caller.cache_clear()
    tracemalloc.start()
    try:
        for number in range(10 * modern.MOST_CALLERS):
            modern._caller(f"token:{number}", meta)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        modern._known_caller.cache_clear()
    assert taken / modern.MOST_CALLERS < 2048
