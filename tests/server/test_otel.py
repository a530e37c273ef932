"""Traces: the context is read and forwarded, one trace covers the HTTP request and the server, and spans contain no
secret."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.calls.trace_context import PassThroughTraces, context_of, headers_for, write_context
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.server import app as app_module
from tabserver.wire.trace_context import TraceContext
from tests.support.link_worker import SyntheticWorker
from tests.support.otel_collector import Collector, Span
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        yield collector


def message(meta: object = None, **params: Any) -> dict[str, Any]:
    if meta is not None:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def headers(**values: str) -> Any:
    return {name.encode(): value for name, value in values.items()}


class ReceivedContext:
    """Answers every call, and keeps the context that it received."""

    def __init__(self, worker: SyntheticWorker) -> None:
        self.messages: list[dict[str, Any]] = []
        worker.on_call = self._answer

    def _answer(self, worker: SyntheticWorker, event: Any, said: dict[str, Any]) -> None:
        self.messages.append(said)
        worker.answer(event, {"content": [], "isError": said["params"]["name"] == "broken"})

    @property
    def context(self) -> TraceContext | None:
        return TraceContext.read(self.messages[-1]["params"].get("_meta"))


def request(relay: RunningRelay, tool: str = "echo", meta: dict[str, str] | None = None, **more: str) -> dict[str, Any]:
    made = relay.modern("tools/call", {"name": tool, "arguments": {"secret": "what was asked"}})
    made["json"]["params"]["_meta"] |= meta or {}
    return {**made, "headers": {**made["headers"], **more}}


def by_kind(spans: list[Span]) -> dict[str, Span]:
    found = {span.kind: span for span in spans if span.name in ("switch", "tools/call echo")}
    assert set(found) == {"server", "internal", "client"}
    return found


# -- the context as a value -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00-1",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{PARENT}-more",  # version 00 has four fields
        f"{PARENT}\n",
        7,
        None,
        [PARENT],
    ],
)
def test_a_context_that_breaks_the_rules_is_none(parent: object) -> None:
    assert TraceContext.read({"traceparent": parent}) is None
    made = message({"traceparent": parent})
    PassThroughTraces().begin({}, headers(), "notes", made)
    assert made == message({"traceparent": parent})  # unchanged: without tracing


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    context = TraceContext.read({"traceparent": f"01-{TRACE}-{SPAN}-00-what.comes"})
    assert context is not None
    assert (context.trace_id, context.span_id, context.is_sampled) == (TRACE, SPAN, False)


def test_what_is_too_long_or_no_text_in_a_state_is_left_out() -> None:
    for bad in ("x" * 600, "a=1\r\nX-Evil: 1", 7, {"a": 1}):
        assert TraceContext.read({"traceparent": PARENT, "tracestate": bad, "baggage": "k=v"}) == TraceContext(
            PARENT, "", "k=v"
        )


def test_meta_takes_precedence_over_headers() -> None:
    found = context_of(headers(traceparent=OTHER), message({"traceparent": PARENT}))
    assert found is not None and found.trace_id == TRACE
    assert context_of(headers(traceparent=OTHER), message({"traceparent": "broken"})) == TraceContext(OTHER)


@pytest.mark.parametrize("made", [message({"progressToken": 1}), message(), {"id": 1, "method": "ping"}])
def test_headers_are_written_into_the_requests_meta(made: dict[str, Any]) -> None:
    before = json.loads(json.dumps(made))
    PassThroughTraces().begin({}, headers(traceparent=PARENT, tracestate="a=1", baggage="user=alice"), "notes", made)
    meta = made["params"]["_meta"]
    assert (meta.pop("traceparent"), meta.pop("tracestate")) == (PARENT, "a=1")
    assert meta == before.get("params", {}).get("_meta", {})  # and the client's baggage is not forwarded to the server


@pytest.mark.parametrize("params", [[1, 2], None, "x", {"_meta": 7}])
def test_a_message_that_has_no_room_for_it_is_left_as_it_is(params: Any) -> None:
    made = {"id": 1, "method": "ping", "params": params}
    write_context(made, TraceContext(PARENT))
    assert made["params"] == params


def test_only_the_context_goes_into_headers() -> None:
    meta = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "user=alice", "other": "x"}
    assert headers_for({"_meta": meta}) == {"traceparent": PARENT, "tracestate": "a=1"}
    assert headers_for({"_meta": {"traceparent": "x\r\ny: z"}}) == headers_for(None) == headers_for({}) == {}


# -- forwarded while tracing is off ---------------------------------------------------------------------------------


async def test_without_traces_the_context_reaches_the_server_unchanged(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        await relay.has_read("notes")
        received = ReceivedContext(worker)
        await relay.http.post("/notes", **request(relay, traceparent=PARENT, tracestate="a=1"))
        assert received.context == TraceContext(PARENT, "a=1")
        await relay.http.post("/notes", **request(relay, meta={"traceparent": OTHER}, traceparent=PARENT))
        assert received.context == TraceContext(OTHER)
        await relay.http.post("/notes", **request(relay))
        assert received.context is None


def test_without_traces_what_makes_and_sends_spans_is_not_loaded() -> None:
    wanted = ("opentelemetry.sdk", "opentelemetry.exporter", "google.protobuf", "requests", "prometheus_client")
    code = f"import sys, tabrelay.server.app; print([name for name in {wanted} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_relay_without_the_library_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tabrelay.server.otel", None)
    with pytest.raises(ConfigError, match=r"pip install \"tabrelay\[otel\]\""):
        app_module._make_tracing(Settings(home=tmp_path, traces=True), "http://127.0.0.1:1")


# -- spans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["headers", "meta"])
async def test_one_trace_goes_from_the_request_to_the_server(where: str, tmp_path: Path, collector: Collector) -> None:
    async with RunningRelay(tmp_path, traces=True) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await relay.has_read("notes")
            received = ReceivedContext(worker)
            said = {"traceparent": PARENT, "tracestate": "a=1"}
            asked = request(relay, meta=said)
            if where == "headers":
                asked = request(relay, traceparent=PARENT, tracestate="a=1")
            assert (await relay.http.post("/notes", **asked)).json()["result"]["isError"] is False
        spans = by_kind(await collector.until("tools/call echo"))
    face, switch, link = spans["server"], spans["internal"], spans["client"]
    assert {span.trace for span in spans.values()} == {TRACE}
    assert (face.parent, switch.parent, link.parent) == (SPAN, face.id, switch.id)
    context = received.context
    assert context is not None and (context.trace_id, context.span_id) == (TRACE, link.id)
    assert context.tracestate == "a=1" and context.is_sampled
    assert face.began_ns <= switch.began_ns <= link.began_ns <= link.ended_ns <= switch.ended_ns <= face.ended_ns
    assert face.attributes["mcp.method.name"] == "tools/call"
    assert face.attributes["gen_ai.tool.name"] == "echo"
    assert face.attributes["tabrelay.server"] == "notes"
    assert face.attributes["http.response.status_code"] == 200
    assert link.attributes["tabrelay.peer"] == "browser"
    assert not any(span.is_error for span in spans.values())
    assert face.service == "tabrelay"


async def test_nothing_secret_gets_into_a_span(tmp_path: Path, collector: Collector) -> None:
    async with RunningRelay(tmp_path, traces=True, servers=("notes",)) as relay:
        secret = relay.tokens.issue_named("ci", ["call"])
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await relay.has_read("notes")
            ReceivedContext(worker)
            relay.http.headers["Authorization"] = f"Bearer {secret}"
            await relay.http.post("/notes?key=in-the-query", **request(relay, traceparent=PARENT))
            await relay.http.post("/notes", **request(relay, tool=f"named {secret}"))
            await relay.http.post("/notes", content=b"{ what was asked", headers={"Content-Type": "application/json"})
            reading = relay.modern("resources/read", {"uri": "https://example/?key=in-the-query"})
            await relay.http.post("/notes", **reading)
            await relay.http.get("/notes", headers={"Authorization": "Bearer tr_wrong_wrong_wrong"})
            session = await relay.http.post("/notes", json=INITIALIZE)
        names = ("tools/call echo", "POST /{server}", "GET /{server}", "resources/read", "initialize")
        await collector.until(*names)
    raw = collector.raw.decode("latin-1")
    own = [secret, relay.token, session.headers["mcp-session-id"]]
    hidden = ["what was asked", "in-the-query", "tr_wrong", "token:", *own]
    assert [text for text in hidden if text in raw] == []
    assert any(span.name.startswith("tools/call named") for span in collector.spans)


async def test_errors_are_recorded_by_their_kind(tmp_path: Path, collector: Collector) -> None:
    async with RunningRelay(tmp_path, traces=True, away_wait_s=0.1, servers=("away",)) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await relay.has_read("notes")
            ReceivedContext(worker)
            await relay.http.post("/notes", **request(relay, tool="broken"))
            await relay.http.post("/away", **request(relay, tool="absent"))
            await relay.http.post("/notes", **request(relay, tool="late"), params={})
            relay.http.headers["Authorization"] = "Bearer wrong"
            await relay.http.post("/notes", **request(relay))
        spans = await collector.until("tools/call broken", "tools/call absent", "POST /{server}")
    told = {(span.name, span.kind): span for span in spans}
    assert told["tools/call broken", "server"].attributes["error.type"] == "tool_error"
    assert told["tools/call absent", "server"].attributes["error.type"] == "server_offline"
    assert told["tools/call absent", "server"].is_error
    assert ("tools/call absent", "client") not in told  # it was never sent
    assert told["POST /{server}", "server"].attributes["http.response.status_code"] == 401


async def test_sessions_of_every_age_are_traced(tmp_path: Path, collector: Collector) -> None:
    async with RunningRelay(tmp_path, traces=True) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await relay.has_read("notes")
            received = ReceivedContext(worker)
            began = await relay.http.post("/notes", json=INITIALIZE)
            id = {"Mcp-Session-Id": began.headers["mcp-session-id"], "traceparent": PARENT}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {}}}
            assert "result" in (await relay.http.post("/notes", json=call, headers=id)).json()
        spans = by_kind(await collector.until("tools/call echo"))
    assert {span.trace for span in spans.values() if span.name == "tools/call echo"} == {TRACE}
    assert received.context is not None and received.context.span_id == spans["client"].id


async def test_a_trace_that_is_not_recorded_is_forwarded_and_not_exported(tmp_path: Path, collector: Collector) -> None:
    async with RunningRelay(tmp_path, traces=True) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await relay.has_read("notes")
            received = ReceivedContext(worker)
            await relay.http.post("/notes", **request(relay, traceparent=f"00-{TRACE}-{SPAN}-00"))
            assert received.context is not None and received.context.trace_id == TRACE
            assert not received.context.is_sampled
            await relay.http.post("/notes", **request(relay, tool="after"))
        spans = await collector.until("tools/call after")
    assert TRACE not in {span.trace for span in spans}


async def test_the_http_requests_own_trace_is_linked_where_meta_names_another(
    tmp_path: Path, collector: Collector
) -> None:
    async with RunningRelay(tmp_path, traces=True) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await relay.has_read("notes")
            ReceivedContext(worker)
            await relay.http.post("/notes", **request(relay, meta={"traceparent": PARENT}, traceparent=OTHER))
        spans = by_kind(await collector.until("tools/call echo"))
    assert spans["server"].trace == TRACE and spans["server"].links == (OTHER[3:35],)


async def test_a_collector_that_is_away_costs_calls_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as gone:
        for name, value in gone.environment.items():
            monkeypatch.setenv(name, value)
    async with (
        asyncio.timeout(30),
        RunningRelay(tmp_path, traces=True) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        await relay.has_read("notes")
        ReceivedContext(worker)
        for _ in range(3):
            assert "result" in (await relay.http.post("/notes", **request(relay))).json()
    # No thread retries after the relay has ended.
    await until(lambda: not [one for one in threading.enumerate() if one.name.startswith(("Otel", "traces"))], 30)


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
