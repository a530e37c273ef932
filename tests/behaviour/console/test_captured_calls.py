"""Captured calls: what the console's stream, rows and details contain of calls by official clients over a real link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tabrelay.observe.capture.call_capture import MAX_STREAMS
from tabserver.handlers.context import Context
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.console import open_console
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

ERAS = pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def offer(box: Toolbox) -> None:
    @tool(toolbox=box)
    def echo(text: str, password: str = "") -> str:
        return f"{text} {password}".strip()

    @tool(toolbox=box)
    def broken() -> str:
        raise ValueError("it is broken")

    @tool(toolbox=box)
    async def counting(ctx: Context) -> str:
        ctx.progress(1, 2, "half")
        ctx.log("info", "counted")
        return "done"

    @tool(toolbox=box)
    async def waiting() -> str:
        await asyncio.Event().wait()
        return "never"


@asynccontextmanager
async def served(home: Path, **settings: Any) -> AsyncIterator[RunningRelay]:
    box = Toolbox()
    offer(box)
    async with RunningRelay(home, **settings) as relay, CPythonWorker(relay.url, relay.token, "notes", box):
        await relay.has_read("notes")
        yield relay


@asynccontextmanager
async def client_of(relay: RunningRelay, mode: str = "auto", **more: Any) -> AsyncIterator[Client]:
    async def log(params: types.LoggingMessageNotificationParams) -> None: ...

    headers = {"Authorization": f"Bearer {relay.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        Client(
            streamable_http_client(f"{relay.url}/notes", http_client=http),
            mode=mode,
            logging_callback=log,
            client_info=types.Implementation(name="tester", version="1.2"),
            **more,
        ) as client,
    ):
        yield client


@ERAS
async def test_a_call_is_a_row_within_300_ms_and_its_detail_has_request_and_result(
    tmp_path: Path, mode: str, version: str
) -> None:
    async with served(tmp_path) as relay, open_console(relay) as console, client_of(relay, mode) as client:
        assert console.hello["relay"]["url"] == relay.url and console.hello["limits"]["rows"] == 5000
        began = time.time()
        await client.call_tool("echo", {"text": "hello"})
        row = await console.row(method="tools/call", state="done")
        assert row["name"] == "echo" and row["server"] == "notes" and row["kind"] == "call" and row["by"] == "client"
        assert row["client"] == {"name": "tester", "version": "1.2"} and row["era"] == version
        assert row["peer"] == "browser" and row["relay"] == relay.url and row["group"] == row["id"]
        assert began * 1000 - 1000 < row["started"] < time.time() * 1000 and 0 < row["ms"] < 30_000
        assert console.arrived[row["id"]] - row["started"] / 1000 - row["ms"] / 1000 < 5 * 0.3  # a busy machine
        detail = await console.detail(id=row["id"])
        assert detail["request"]["params"]["arguments"] == {"text": "hello"}
        assert detail["response"]["result"]["content"] == [{"type": "text", "text": "hello"}]
        assert detail["row"] == row and detail["truncated"] is False


@ERAS
async def test_progress_and_logs_of_a_call_are_its_notices(tmp_path: Path, mode: str, version: str) -> None:
    async def progressed(progress: float, total: float | None, message: str | None) -> None: ...

    async with served(tmp_path) as relay, open_console(relay) as console, client_of(relay, mode) as client:
        await client.call_tool("counting", {}, progress_callback=progressed)
        detail = await console.detail(name="counting", state="done")
        said = [(notice["method"], notice["params"].get("message")) for notice in detail["notices"]]
        assert ("notifications/progress", "half") in said
        assert all(detail["row"]["started"] <= notice["at"] for notice in detail["notices"])


async def test_failures_have_a_reason_a_code_and_what_is_known_of_the_delivery(tmp_path: Path) -> None:
    async with served(tmp_path, call_deadline_s=0.5) as relay, open_console(relay) as console:
        await relay.call("notes", "broken")
        row = await console.row(name="broken", state="failed")
        assert row["error"]["reason"] == "tool_error" and row["code"] is None
        await relay.call("notes", "no_such_tool")
        row = await console.row(name="no_such_tool", state="failed")
        assert row["error"]["reason"] == "error" and row["code"] == -32602
        await relay.call("notes", "waiting")
        row = await console.row(name="waiting", state="failed")
        assert row["error"]["reason"] == "timeout" and row["code"] == -31012 and row["delivered"] == "unknown"
        assert "running" in console.states[row["id"]]
        detail = await console.detail(id=row["id"])
        assert detail["response"]["error"]["data"]["delivered"] == "unknown"


async def test_a_client_that_disconnects_cancels_its_row(tmp_path: Path) -> None:
    async with served(tmp_path) as relay, open_console(relay) as console:
        calling = asyncio.create_task(relay.call("notes", "waiting"))
        await console.row(name="waiting", state="running")
        calling.cancel()
        assert (await console.row(name="waiting", state="cancelled"))["error"]["reason"] == "cancelled"


async def test_a_call_that_waits_for_its_server_is_waiting_and_then_runs(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",), away_wait_s=60.0) as relay, open_console(relay) as console:
        calling = asyncio.create_task(relay.call("notes", "echo", {"text": "late"}))
        row = await console.row(name="echo", state="waiting")
        box = Toolbox()
        offer(box)
        async with CPythonWorker(relay.url, relay.token, "notes", box):
            assert (await calling).json()["result"]["content"][0]["text"] == "late"
            assert (await console.row(id=row["id"], state="done"))["peer"] == "browser"


async def test_secrets_in_arguments_results_and_headers_are_redacted(tmp_path: Path) -> None:
    async with served(tmp_path) as relay, open_console(relay) as console:
        body = relay.modern("tools/call", {"name": "echo", "arguments": {"text": relay.token, "password": "hunter22"}})
        body["headers"] |= {"X-Api-Key": "abcdefgh", "traceparent": TRACE}
        await relay.http.post("/notes", **body)
        detail = await console.detail(name="echo", state="done")
        assert detail["request"]["params"]["arguments"] == {"text": "[redacted]", "password": "[redacted]"}
        headers = detail["request"]["headers"]
        assert headers["authorization"] == headers["x-api-key"] == "[redacted]"
        assert headers["mcp-method"] == "tools/call" and detail["row"]["trace"] == TRACE.split("-")[1]
        assert relay.token not in str(detail)


async def test_a_long_request_is_cut_and_its_secrets_are_hidden_too(tmp_path: Path) -> None:
    async with served(tmp_path, console_entry=2000) as relay, open_console(relay) as console:
        await relay.call("notes", "echo", {"password": "hunter22", "text": "x" * 50_000})
        detail = await console.detail(name="echo", state="done")
        assert detail["truncated"] == {"request": True, "response": True} and detail["row"]["bytes_in"] > 50_000
        assert '"password":"[redacted]"' in detail["request"]["params"]["text"]
        assert "hunter22" not in detail["request"]["params"]["text"]
        assert len(detail["response"]["text"]) < 33_000


async def test_a_token_for_other_servers_reads_nothing_of_this_one(tmp_path: Path) -> None:
    async with served(tmp_path, inspect=True) as relay, open_console(relay) as console:
        token = relay.tokens.issue_named("reader", ["manage"], ["other"])
        await relay.call("notes", "echo", {"text": "x"})
        row = await console.row(name="echo", state="done")
        headers = {"Authorization": f"Bearer {token}"}
        assert (await relay.http.get(f"/-/console/calls/{row['id']}", headers=headers)).status_code == 404
        assert (await relay.http.get("/-/console/calls", headers=headers)).json() == {"rows": []}
        async with open_console(relay, "?since=0", token) as other:
            await relay.call("notes", "echo", {"text": "y"})
            await console.until(lambda: len(console.rows) == 2)
            assert other.rows == {}
        token = relay.tokens.issue_named("caller", ["call"], None)
        for path in ("events", "calls", f"calls/{row['id']}"):
            response = await relay.http.get(f"/-/console/{path}", headers={"Authorization": f"Bearer {token}"})
            assert response.status_code == 403


async def test_nothing_is_captured_until_a_console_opens_and_it_ends_after_the_last_one(tmp_path: Path) -> None:
    async with served(tmp_path, console_linger_s=0.1) as relay:
        await relay.call("notes", "echo", {"text": "before"})
        assert (await relay.http.get("/-/console/calls")).json() == {"rows": []}
        async with open_console(relay) as console:
            await relay.call("notes", "echo", {"text": "now"})
            await console.row(name="echo", state="done")
            rows = (await relay.http.get("/-/console/calls")).json()["rows"]
            assert [row["name"] for row in rows] == ["echo"]

        async def is_off() -> bool:
            return (await relay.http.get("/-/console/calls")).text == '{"rows":[]}'

        await until(is_off)


async def test_with_inspect_calls_are_captured_without_a_console(tmp_path: Path) -> None:
    async with served(tmp_path, inspect=True) as relay:
        for number in range(5):
            await relay.call("notes", "echo", {"text": str(number)})
        rows = (await relay.http.get("/-/console/calls?limit=3")).json()["rows"]
        assert len(rows) == 3 and rows[0]["seq"] == rows[2]["seq"] + 2
        older = (await relay.http.get(f"/-/console/calls?before={rows[2]['seq']}")).json()["rows"]
        assert [row["seq"] for row in older] == [2, 1]
        details = await relay.http.post("/-/console/details", json={"ids": [row["id"] for row in rows]})
        texts = [detail["request"]["params"]["arguments"]["text"] for detail in details.json()["details"]]
        assert texts == ["4", "3", "2"]
        async with open_console(relay, f"?since={rows[2]['seq']}") as console:
            await console.until(lambda: len(console.rows) == 2)
        assert (await relay.http.get("/-/console/calls/none")).status_code == 404


async def test_of_too_many_calls_a_part_is_captured_and_the_stream_reports_it(tmp_path: Path) -> None:
    async with served(tmp_path, console_rows_s=5) as relay, open_console(relay) as console:
        await asyncio.gather(*(relay.call("notes", "echo", {"text": "x"}) for _ in range(40)))
        sampled = await console.until(lambda: next((one for one in console.events if one["type"] == "sampled"), None))
        assert sampled["dropped"] > 0 and sampled["why"] == "load" and sampled["since"] > 0


async def test_the_ring_has_a_size_and_a_number_of_calls(tmp_path: Path) -> None:
    async with served(tmp_path, inspect=True, console_rows=3) as relay:
        for _ in range(6):
            await relay.call("notes", "echo", {"text": "x"})
        assert len((await relay.http.get("/-/console/calls")).json()["rows"]) == 3
    async with served(tmp_path, inspect=True, console_bytes=40_000) as relay:
        for _ in range(6):
            await relay.call("notes", "echo", {"text": "x" * 5000})
        rows = (await relay.http.get("/-/console/calls")).json()["rows"]
        assert 1 <= len(rows) <= 3 and rows[0]["seq"] == 6


async def test_servers_that_come_and_go_change_the_status(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path) as relay,
        open_console(relay) as console,
        CPythonWorker(relay.url, relay.token, "notes", Toolbox()),
    ):
        await console.until(lambda: {"type": "status"} in console.events)


async def test_the_number_of_streams_is_bounded_and_each_ends_with_the_relay(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, open_console(relay):
        streams = [open_console(relay) for _ in range(MAX_STREAMS - 1)]
        for stream in streams:
            await stream.__aenter__()
        async with relay.http.stream("GET", "/-/console/events") as refused:
            assert refused.status_code == 429
        for stream in streams:
            await stream.__aexit__(None, None, None)
        await relay.drain.run()
