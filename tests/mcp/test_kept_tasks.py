"""Tasks whose worker has ended: the next worker repeats, fails or keeps them, each once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tabserver import Context
from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.mcp import kept_tasks
from tabserver.mcp.kept_tasks import MAX_TEXT, KeptTasks
from tabserver.mcp.tasks import TaskTerms
from tests.mcp.test_tasks import ABLE, ALICE, FORM, OTHER, Client, Session, begin
from tests.support.server_harness import CoreHarness
from tests.support.waiting import until


class Store:
    """Records by id, as the browser keeps them."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}

    def keep(self, id: str, expires_ms: int, text: str) -> None:
        assert expires_ms > 0
        self.rows[id] = text

    def drop(self, id: str) -> None:
        self.rows.pop(id, None)


class Worker:
    """A worker with one tool, which counts to three with a state and then waits."""

    def __init__(self, store: Store, *, saves: bool = True, now: float = 0.0, has_tool: bool = True) -> None:
        self.box, self.store = Toolbox(), store
        self.seen: list[Any] = []
        self.go = asyncio.Event()
        self.saves = saves
        if has_tool:
            self.offer()
        self.core = CoreHarness(self.box, store=store)
        self.core.now = now

    def offer(self) -> None:
        @tool(toolbox=self.box, task=True)
        async def count(ctx: Context, upto: int = 3, text: str = "") -> str:
            self.seen.append((ctx.saved, upto))
            if self.saves:
                ctx.save({"done": 3})
            await self.go.wait()
            return f"counted from {ctx.saved['done'] if ctx.saved else 0} to {upto} {text}"

        @tool(toolbox=self.box, task=True)
        async def order(ctx: Context) -> str:
            ctx.save("asked")
            answer = await ctx.elicit("Name?", FORM, key="who")
            return f"for {answer.data['name']}"

    def start(self, earlier: list[str]) -> KeptTasks:
        kept = self.core.server.tasks.kept
        assert kept is not None
        for row in earlier:
            kept.restore(row)
        return kept


async def test_a_task_goes_on_from_its_state_once_in_the_next_worker() -> None:
    store = Store()
    first = Worker(store)
    id = (await begin(first.core, "count", upto=9))["taskId"]
    second = Worker(store)
    second.start(list(store.rows.values()))
    client = Client(second.core)
    assert (await client.get(id))["status"] == "working"
    second.go.set()
    done = await client.state(id, "completed")
    assert done["result"]["content"][0]["text"] == "counted from 3 to 9 "
    assert second.seen == [({"done": 3}, 9)]
    assert (await Client(second.core, OTHER).get(id))["code"] == -32602
    # Its result is kept for a third worker.
    third = Worker(store)
    third.start(list(store.rows.values()))
    assert (await Client(third.core).get(id))["result"]["content"] == done["result"]["content"]
    assert third.seen == []


async def test_a_task_without_a_state_fails_with_the_reason_in_either_era() -> None:
    store = Store()
    first = Worker(store, saves=False)
    modern = (await begin(first.core, "count"))["taskId"]
    handshake = Session(first.core).begin("count")["taskId"]
    second = Worker(store)
    second.start(list(store.rows.values()))
    failed = await Client(second.core).get(modern)
    assert failed["status"] == "failed" and "its last page was closed or loaded again" in failed["error"]["message"]
    session = Session(second.core)
    assert session.send("tasks/get", taskId=handshake)["status"] == "failed"
    assert session.send("tasks/result", taskId=handshake)["data"]["reason"] == "browser_gone"
    assert second.seen == []


async def test_a_task_that_had_asked_asks_again() -> None:
    store = Store()
    first = Worker(store)
    id = (await begin(first.core, "order"))["taskId"]
    await Client(first.core).state(id, "input_required")
    second = Worker(store)
    second.start(list(store.rows.values()))
    client = Client(second.core)
    assert list((await client.state(id, "input_required"))["inputRequests"]) == ["who"]
    await client.ask("tasks/update", taskId=id, inputResponses={"who": ALICE})
    assert (await client.state(id, "completed"))["result"]["content"][0]["text"] == "for Alice"


async def test_a_task_waits_for_the_page_with_its_tool_and_then_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    first = Worker(store)
    ids = [(await begin(first.core, "count", f"t{number}"))["taskId"] for number in range(2)]
    rows = list(store.rows.values())
    second = Worker(store, has_tool=False)
    second.start(rows[:1])
    client = Client(second.core)
    assert (await client.get(ids[0]))["status"] == "working"
    second.offer()
    second.core.server.catalogue_changed()
    second.go.set()
    assert (await client.state(ids[0], "completed"))["result"]
    monkeypatch.setattr(kept_tasks, "TOOL_WAIT_S", 0.05)
    third = Worker(Store(), has_tool=False)
    third.start(rows[1:])
    assert "no page offers its tool" in (await Client(third.core).state(ids[1], "failed"))["error"]["message"]


async def test_a_cancelled_task_stays_cancelled_and_a_forgotten_one_leaves_no_record() -> None:
    store = Store()
    first = Worker(store)
    first.core.server.tasks.terms = TaskTerms(ttl_ms=1000)
    id = (await begin(first.core, "count"))["taskId"]
    await Client(first.core).ask("tasks/cancel", taskId=id)
    second = Worker(store)
    second.start(list(store.rows.values()))
    assert (await Client(second.core).get(id))["status"] == "cancelled" and second.seen == []
    first.core.now = 5.0
    await until(lambda: not store.rows)
    late = Worker(store, now=5.0)
    late.start([json.dumps({**RECORD, "ttl_ms": 1000})])
    assert len(late.core.server.tasks) == 0


async def test_what_is_too_large_for_a_record_fails_its_task() -> None:
    store = Store()
    first = Worker(store)
    large = "x" * MAX_TEXT
    running = (await begin(first.core, "count", text=large))["taskId"]
    second = Worker(store)
    second.start(list(store.rows.values()))
    assert (await Client(second.core).get(running))["status"] == "failed"
    first.go.set()
    await Client(first.core).state(running, "completed")
    third = Worker(Store())
    third.start([store.rows[running]])
    assert "too large to be kept" in (await Client(third.core).get(running))["error"]["message"]


async def test_restored_tasks_have_the_bounds_of_all_tasks() -> None:
    worker = Worker(Store())
    worker.core.server.tasks.terms = TaskTerms(most=2)
    worker.start([json.dumps({**RECORD, "id": f"t{number}"}) for number in range(5)])
    assert len(worker.core.server.tasks) == 2


RECORD: dict[str, Any] = {
    "id": "t",
    "principal": ABLE.principal,
    "tool": "count",
    "caller_key": "k",
    "message": "",
    "is_error": False,
    "created_ms": 0,
    "updated_ms": 0,
    "ttl_ms": 60_000,
    "status": "working",
}


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        "{}",
        "null",
        *(
            json.dumps({**RECORD, **odd})
            for odd in (
                {"id": 5},
                {"created_ms": "0"},
                {"ttl_ms": True},
                {"status": "unknown"},
                {"status": "failed"},
                {"status": "failed", "error": 5},
                {"saved": 1},
                {"saved": 1, "payload": "[]", "caller": {}},
                {"saved": 1, "payload": '{"params": {}}', "caller": {"era": "none"}},
                {"saved": 1, "payload": "no json", "caller": {}},
            )
        ),
    ],
)
async def test_a_record_of_another_form_is_dropped(text: str) -> None:
    worker = Worker(Store())
    worker.start([text])
    assert len(worker.core.server.tasks) == 0


async def test_a_short_time_to_live_ends_before_a_longer_one_that_began_earlier() -> None:
    worker = Worker(Store())
    await begin(worker.core, "count")
    session = Session(worker.core)
    id = session.begin("count", {"ttl": 1000})["taskId"]
    worker.core.now = 1.5
    async with asyncio.timeout(10):
        await Client(worker.core).state(id, "failed")
