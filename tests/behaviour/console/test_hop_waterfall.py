"""Waterfall of a captured call: its spans add up, and a delay of 50 ms at a hop shows in the span of that hop only."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.console import OpenConsole, open_console
from tests.support.cpython_worker import CPythonWorker
from tests.support.fake_port import FakePort
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

Row = dict[str, Any]
DELAY_S = 0.05
DELAY_MS = DELAY_S * 1000
# A machine that is busy delays other hops too: as often as this is tried for a call without such a delay.
ATTEMPTS = 30
CLOCK_ERROR_MS = 5
BROWSER_SPANS = ("admit", "send", "route", "post", "run", "return", "reply", "deliver", "answer")


class SlowPage(FakePort):
    """A page with the tool `echo`, which reports its times as the client library does."""

    def __init__(self, worker: CPythonWorker) -> None:
        super().__init__()
        self.post_s = self.run_s = self.return_s = 0.0
        self.decision = ""  # what its user answers
        self._worker = worker
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, message: Mapping[str, Any]) -> None:
        super().send(message)
        if message["t"] == "call":
            task = asyncio.create_task(self._run(dict(message)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif message["t"] == "approve":
            answer = {"t": "approval", "call": message["call"], "decision": self.decision}
            asyncio.get_running_loop().call_later(0.02, self._worker.hub.receive, self, answer)

    async def _run(self, message: Row) -> None:
        def now_ms() -> float:
            return asyncio.get_running_loop().time() * 1000

        hub, call = self._worker.hub, message["call"]
        await asyncio.sleep(self.post_s)
        began = now_ms()
        await asyncio.sleep(self.run_s)
        ended = now_ms()
        await asyncio.sleep(self.return_s)
        if message.get("timed"):
            hub.receive(self, {"t": "times", "call": call, "began": began, "ended": ended})
        hub.receive_result(self, call, json.dumps({"content": [{"type": "text", "text": "x"}]}), True)


class Rig:
    """`call` makes a call and returns its detail."""

    def __init__(self, relay: RunningRelay, worker: CPythonWorker, page: SlowPage, console: OpenConsole) -> None:
        self.relay, self.worker, self.page, self.console = relay, worker, page, console

    async def call(self, *, upload_s: float = 0.0, name: str = "echo") -> Row:
        known = set(self.console.rows)
        params = {"name": name, "arguments": {"text": "x"}}
        request = self.relay.modern("tools/call", params)
        body = json.dumps(request.pop("json")).encode()

        async def slowly() -> AsyncIterator[bytes]:
            yield body[:1]
            await asyncio.sleep(upload_s)
            yield body[1:]

        headers = request["headers"] | {"Content-Type": "application/json", "Content-Length": str(len(body))}
        content = slowly() if upload_s else body
        response = await self.relay.http.post("/notes", content=content, headers=headers)
        assert response.status_code == 200, response.text
        found = await self.console.until(
            lambda: next((id for id, row in self.console.rows.items() if id not in known and row["ms"] is not None), "")
        )
        async with asyncio.timeout(BOUND_S):
            while True:  # its last span ends when the response was written
                detail: Row = (await self.relay.http.get(f"/-/console/calls/{found}")).json()
                if detail["spans"][-1]["name"] == "answer":
                    return detail

    async def clean(self, slow: str, **how: Any) -> Row:
        """A call in which only the span `slow` took long. The clock of a busy worker is read with an error of half the
        time for which it was busy."""
        for _ in range(ATTEMPTS):
            detail = await self.call(**how)
            took = took_ms(detail)
            if took[slow] >= 0.9 * DELAY_MS and all(ms < 0.5 * DELAY_MS for name, ms in took.items() if name != slow):
                return detail
        raise AssertionError(f"not only {slow} took long, in any of the calls: {detail['spans']}")


def took_ms(detail: Row) -> dict[str, float]:
    found: dict[str, float] = {}
    for span in detail["spans"]:
        found[span["name"]] = found.get(span["name"], 0) + span["ms"]
    return found


@asynccontextmanager
async def rig_of(home: Path, **settings: Any) -> AsyncIterator[Rig]:
    box = Toolbox()

    @tool(toolbox=box)
    async def own(text: str) -> str:
        await asyncio.sleep(DELAY_S)
        return text

    async with (
        RunningRelay(home, **settings) as relay,
        CPythonWorker(relay.url, relay.token, "notes", box, reports_tabs=True) as worker,
    ):
        page = SlowPage(worker)
        worker.hub.attach(page, {"id": "t1", "title": "Tab", "url": "http://localhost/", "visible": True})
        worker.hub.receive(page, {"t": "offer", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        await relay.has_read("notes", lambda row: len(row["tools"]) > 1 and bool(row["tabs"]))
        async with open_console(relay) as console:
            rig = Rig(relay, worker, page, console)
            async with asyncio.timeout(BOUND_S):  # the clock is read with the first calls
                while ((await rig.call())["clock"] or {"error_ms": DELAY_MS})["error_ms"] > CLOCK_ERROR_MS:
                    pass
            yield rig


async def test_spans_are_in_order_and_add_up_to_the_total(tmp_path: Path) -> None:
    async with rig_of(tmp_path) as rig:
        detail = await rig.call()
        spans = detail["spans"]
        assert [span["name"] for span in spans] == list(BROWSER_SPANS)
        assert [span["hop"] for span in spans] == [
            *("relay", "link", "worker", "tab", "tab", "tab", "worker", "link", "relay")
        ]
        for one, other in itertools.pairwise(spans):
            assert other["at"] == pytest.approx(one["at"] + one["ms"], abs=0.01)
        whole = spans[-1]["at"] + spans[-1]["ms"] - spans[0]["at"]
        assert whole == pytest.approx(detail["total_ms"], abs=0.05)
        assert detail["row"]["ms"] <= detail["total_ms"] + 0.05
        row = detail["row"]
        assert (row["tab"], row["tab_title"], row["approval"]) == ("t1", "Tab", None)
        assert abs(detail["clock"]["offset_ms"]) <= detail["clock"]["error_ms"] + 1  # both clocks are one, here


@pytest.mark.parametrize(
    ("hop", "slow"),
    [
        ("upload", "receive"),
        ("down", "send"),
        ("post", "post"),
        ("run", "run"),
        ("return", "return"),
        ("up", "deliver"),
    ],
)
async def test_a_delay_shows_in_the_span_of_its_hop_only(tmp_path: Path, hop: str, slow: str) -> None:
    async with rig_of(tmp_path) as rig:
        for _ in range(8):  # until the clock is read every few seconds only: what follows must not be measured anew
            await rig.call()
        delay, page = rig.worker.dialer.delay, rig.page
        delay.up_s, delay.down_s = DELAY_S * (hop == "up"), DELAY_S * (hop == "down")
        page.post_s, page.run_s = DELAY_S * (hop == "post"), DELAY_S * (hop == "run")
        page.return_s = DELAY_S * (hop == "return")
        await rig.clean(slow, upload_s=DELAY_S if hop == "upload" else 0.0)


@pytest.mark.parametrize(("function", "slow"), [("_receive_request", "route"), ("outbox._reply", "reply")])
async def test_a_busy_worker_shows_in_its_own_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, slow: str
) -> None:
    async with rig_of(tmp_path) as rig:
        owner = rig.worker.core.outbox if "." in function else rig.worker.core
        name = function.rpartition(".")[2]
        usual = getattr(owner, name)

        def slowly(*args: Any) -> None:
            time.sleep(DELAY_S)
            usual(*args)

        monkeypatch.setattr(owner, name, slowly)
        await rig.clean(slow)


async def test_a_tool_of_the_worker_runs_in_the_worker(tmp_path: Path) -> None:
    async with rig_of(tmp_path) as rig:
        detail = await rig.clean("run", name="own")
        assert [span["hop"] for span in detail["spans"] if span["name"] == "run"] == ["worker"]
        assert detail["row"]["tab"] is None


@pytest.mark.parametrize(("decision", "approval"), [("once", "allowed"), ("deny", "not allowed")])
async def test_what_the_user_was_asked_is_in_the_row(tmp_path: Path, decision: str, approval: str) -> None:
    async with rig_of(tmp_path) as rig:
        rig.page.decision = decision
        schema = {"type": "object"}
        delete = {"name": "delete", "inputSchema": schema, "annotations": {"destructiveHint": True}}
        rig.worker.hub.receive(rig.page, {"t": "offer", "tools": [delete]})
        await rig.relay.has_read("notes", lambda row: "delete" in {one["name"] for one in row["tools"]})
        detail = await rig.call(name="delete")
        assert detail["row"]["approval"] == approval
        [hold] = [span for span in detail["spans"] if span["name"] == "hold"]
        assert hold["why"] == "The user is asked in the page."


async def test_a_wait_for_the_browser_has_its_reason_and_a_cut_is_an_event(tmp_path: Path) -> None:
    async with rig_of(tmp_path) as rig:
        await rig.worker.transport.close()
        async with asyncio.timeout(BOUND_S):
            state = "online"
            while state == "online":
                state = (await rig.relay.http.get("/-/status")).json()["servers"][0]["state"]
        calling = asyncio.create_task(rig.call())
        await rig.console.row(state="waiting", method="tools/call")
        await rig.worker.transport.start()
        detail = await calling
        [wait] = [span for span in detail["spans"] if span["name"] == "wait"]
        assert wait["why"] == "The server is not connected at the moment." and wait["hop"] == "relay"
        assert [event["kind"] for event in detail["events"]] == ["wait"]

        rig.page.run_s = 3600.0
        calling = asyncio.create_task(rig.call())
        await rig.page.until("call", len(rig.page.of("call")) + 1)
        rig.worker.dialer.cut()
        await rig.worker.until("waiting")
        rig.worker.transport.retry_now()
        await rig.worker.until("connected")
        call = rig.page.last("call")["call"]
        rig.worker.hub.receive_result(rig.page, call, '{"content":[]}', True)
        detail = await calling
        assert [event["kind"] for event in detail["events"]] == ["cut", "resumed"]
        assert [span["name"] for span in detail["spans"]].count("send") == 1


async def test_calls_are_not_timed_while_no_console_is_open(tmp_path: Path) -> None:
    async with rig_of(tmp_path, console_linger_s=0.0) as rig:
        assert all(message["timed"] for message in rig.page.of("call"))
        rig.console.close()
        async with asyncio.timeout(BOUND_S):
            while True:
                await rig.relay.call("notes", "echo", {})
                if "timed" not in rig.page.last("call"):
                    return
