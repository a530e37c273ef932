"""Tasks of a worker, in both eras: creation, status, questions, cancellation, results, time to live, bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tabserver import Context, Elicit, InputRequired, Refusal, ToolError
from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.mcp import task_questions
from tabserver.mcp.server import MAX_RUNNING
from tabserver.mcp.tasks import TaskTerms
from tabserver.wire.eras import TASKS
from tabserver.wire.frames import Caller, Kind
from tests.support.server_harness import MODERN, READY, CoreHarness
from tests.support.waiting import BOUND_S, pause, until

FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ALICE: dict[str, Any] = {"action": "accept", "content": {"name": "Alice"}}
ABLE = replace(MODERN, capabilities={"elicitation": {}, "extensions": {TASKS: {}}})
SESSION = replace(READY, version="2025-11-25", capabilities={"elicitation": {}})
OTHER = replace(ABLE, principal="token:other")


class Job:
    """A tool whose end the test decides."""

    def __init__(self) -> None:
        self.runs = 0
        self.is_cancelled = False
        self.go = asyncio.Event()
        self.context: Context | None = None
        self.box = Toolbox()

        @tool(toolbox=self.box, task=True)
        async def export(ctx: Context, rows: int = 3) -> str:
            self.runs += 1
            self.context = ctx
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.is_cancelled = True
                raise
            return f"exported {rows}"

        @tool(toolbox=self.box, task="required")
        async def fail(ctx: Context) -> str:
            await self.go.wait()
            raise ToolError("no disk")

        @tool(toolbox=self.box, task=True)
        async def refuse() -> str:
            await self.go.wait()
            raise Refusal(-32603, "broken")

        @tool(toolbox=self.box, task=True)
        async def greet(ctx: Context) -> str:
            first = await ctx.elicit("Name?", FORM, key="who")
            second = await ctx.elicit("Again?", FORM, key="who")
            return f"{first.data['name']} {second.data['name']}"

        @tool(toolbox=self.box, task=True)
        async def both(ctx: Context) -> str:
            first, second = await asyncio.gather(ctx.elicit("One?", FORM), ctx.elicit("Two?", FORM))
            return f"{first.data['name']} {second.data['name']}"

        @tool(toolbox=self.box, task=True)
        async def later(ctx: Context) -> Any:
            question: Elicit[Any] = Elicit("Name?", FORM)
            answer = ctx.answer("who", question)
            if answer is not None:
                return f"{answer.data['name']} {ctx.request_state}"
            await self.go.wait()
            return InputRequired({"who": question}, state=7)

        @tool(toolbox=self.box, task=True)
        async def curious(ctx: Context, times: int) -> str:
            asked = [asyncio.ensure_future(ctx.elicit("Really?", FORM)) for _ in range(times)]
            await asyncio.gather(*asked)
            return "enough"

        @tool(toolbox=self.box)
        def quick() -> str:
            return "at once"


async def begin(core: CoreHarness, name: str, channel: str = "t1", caller: Caller = ABLE, **arguments: Any) -> Any:
    return await core.ask(channel, "tools/call", {"name": name, "arguments": arguments}, caller)


class Client:
    """Sends requests, each on a new channel."""

    def __init__(self, core: CoreHarness, caller: Caller = ABLE) -> None:
        self.core, self.caller, self.number = core, caller, 0

    async def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        return await self.core.ask(f"{self.caller.principal}{self.number}", method, params, self.caller)

    async def get(self, id: str) -> Any:
        return await self.ask("tasks/get", taskId=id)

    async def state(self, id: str, status: str) -> Any:
        async with asyncio.timeout(BOUND_S):
            while (task := await self.get(id))["status"] != status:
                await pause()
        return task


@pytest.mark.requirement("tasks-modern")
async def test_a_call_that_takes_longer_is_answered_with_a_task_and_its_result_is_kept() -> None:
    job = Job()
    core = CoreHarness(job.box)
    made = await begin(core, "export", rows=9)
    assert (made["resultType"], made["status"], made["ttlMs"]) == ("task", "working", 3_600_000)
    client = Client(core)
    assert (await client.get(made["taskId"]))["status"] == "working"
    core.close("t1")  # the client is gone
    job.go.set()
    done = await client.state(made["taskId"], "completed")
    assert done["result"]["content"] == [{"type": "text", "text": "exported 9"}] and job.runs == 1
    assert (await client.get(made["taskId"]))["result"] == done["result"]


async def test_what_ends_at_once_is_no_task() -> None:
    job = Job()
    core = CoreHarness(job.box)
    job.go.set()
    assert (await begin(core, "export"))["content"][0]["text"] == "exported 3"
    assert (await begin(core, "quick", "t2"))["content"][0]["text"] == "at once"
    assert len(core.server.tasks) == 0


async def test_a_client_without_tasks_waits_unless_the_tool_requires_them() -> None:
    job = Job()
    core = CoreHarness(job.box)
    waiting = asyncio.ensure_future(begin(core, "export", "w", MODERN))
    error = await begin(core, "fail", "r", MODERN)
    assert error["code"] == -32021 and error["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
    job.go.set()
    assert (await waiting)["content"][0]["text"] == "exported 3"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_client_that_does_not_declare_the_extension_gets_an_error(method: str) -> None:
    core = CoreHarness(Job().box)
    error = await Client(core, MODERN).ask(method, taskId="x", inputResponses={})
    assert error["code"] == -32021


async def test_the_error_of_a_tool_completes_a_task_and_a_protocol_error_fails_it() -> None:
    job = Job()
    core = CoreHarness(job.box)
    client = Client(core)
    failing, refusing = await begin(core, "fail"), await begin(core, "refuse", "t2")
    job.go.set()
    done = await client.state(failing["taskId"], "completed")
    assert done["result"]["isError"] is True and done["result"]["content"][0]["text"] == "no disk"
    broken = await client.state(refusing["taskId"], "failed")
    assert broken["error"] == {"code": -32603, "message": "broken"} and "result" not in broken


async def test_a_task_asks_one_question_after_the_other_under_different_keys() -> None:
    core = CoreHarness(Job().box)
    client = Client(core)
    made = await begin(core, "greet")
    asking = await client.state(made["taskId"], "input_required")
    assert asking["inputRequests"]["who"]["params"]["message"] == "Name?"
    assert (await client.ask("tasks/update", taskId=made["taskId"], inputResponses={"x": {}, "who": ALICE})).keys() == {
        "resultType",
        "_meta",
    }
    asking = await client.state(made["taskId"], "input_required")
    assert list(asking["inputRequests"]) == ["who-2"]
    await client.ask("tasks/update", taskId=made["taskId"], inputResponses={"who": ALICE})
    assert (await client.get(made["taskId"]))["status"] == "input_required"
    await client.ask("tasks/update", taskId=made["taskId"], inputResponses={"who-2": ALICE})
    done = await client.state(made["taskId"], "completed")
    assert done["result"]["content"][0]["text"] == "Alice Alice"


async def test_questions_that_are_open_together_are_answered_one_by_one() -> None:
    core = CoreHarness(Job().box)
    client = Client(core)
    id = (await begin(core, "both"))["taskId"]
    first, second = (await client.state(id, "input_required"))["inputRequests"]
    await client.ask("tasks/update", taskId=id, inputResponses={second: ALICE})
    assert list((await client.get(id))["inputRequests"]) == [first]
    await client.ask("tasks/update", taskId=id, inputResponses={first: ALICE})
    assert (await client.state(id, "completed"))["result"]["content"][0]["text"] == "Alice Alice"


async def test_a_handler_that_returns_its_questions_is_run_again_with_the_answers() -> None:
    job = Job()
    core = CoreHarness(job.box)
    client = Client(core)
    id = (await begin(core, "later"))["taskId"]
    job.go.set()
    assert list((await client.state(id, "input_required"))["inputRequests"]) == ["who"]
    await client.ask("tasks/update", taskId=id, inputResponses={"who": ALICE})
    assert (await client.state(id, "completed"))["result"]["content"][0]["text"] == "Alice 7"


async def test_questions_before_the_task_begins_are_the_answer_to_the_request() -> None:
    job = Job()
    core = CoreHarness(job.box)
    job.go.set()
    asked = await begin(core, "later")
    assert asked["resultType"] == "input_required" and "taskId" not in asked
    more = {"name": "later", "inputResponses": {"who": ALICE}, "requestState": asked["requestState"], "arguments": {}}
    done = await core.ask("t2", "tools/call", more, ABLE)
    assert done["content"][0]["text"] == "Alice 7"


async def test_cancelling_stops_the_handler_and_is_answered_at_any_time() -> None:
    job = Job()
    core = CoreHarness(job.box)
    client = Client(core)
    id = (await begin(core, "export"))["taskId"]
    assert (await client.ask("tasks/cancel", taskId=id)).keys() == {"resultType", "_meta"}
    assert (await client.get(id))["status"] == "cancelled"
    await until(lambda: job.is_cancelled)
    assert (await client.ask("tasks/cancel", taskId=id)).keys() == {"resultType", "_meta"}
    assert (await client.get(id))["status"] == "cancelled"


async def test_another_principal_sees_no_task() -> None:
    job = Job()
    core = CoreHarness(job.box)
    mine, other = Client(core), Client(core, OTHER)
    id = (await begin(core, "export"))["taskId"]
    unknown = await other.get("no-such-task")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        assert await other.ask(method, taskId=id, inputResponses={}) == unknown
    assert unknown["code"] == -32602
    assert (await mine.get(id))["status"] == "working"
    listener = replace(OTHER)
    core.modern("subscriptions/listen", {"notifications": {"taskIds": [id]}}, channel="l", caller=listener)
    assert core.notes()[-1][1]["notifications"] == {}


async def test_progress_is_the_status_message() -> None:
    job = Job()
    core = CoreHarness(job.box)
    client = Client(core)
    id = (await begin(core, "export"))["taskId"]
    assert job.context is not None
    job.context.progress(1, 4, "reading")
    assert (await client.get(id))["statusMessage"] == "reading (1 of 4)"
    job.context.progress(2, 4)
    assert (await client.get(id))["statusMessage"] == "2 of 4"


@pytest.mark.requirement("tasks-notifications")
async def test_a_listener_gets_the_state_of_its_tasks_at_once_and_whenever_it_changes() -> None:
    job = Job()
    core = CoreHarness(job.box)
    id = (await begin(core, "export"))["taskId"]
    core.modern("subscriptions/listen", {"notifications": {"taskIds": [id, "x"]}}, channel="l", caller=ABLE)
    assert core.notes()[-2][1]["notifications"] == {"taskIds": [id]}
    job.go.set()
    notes = await core.until(Kind.NOTE, 3, "l")
    assert [note["params"].get("status") for note in notes] == [None, "working", "completed"]
    assert notes[-1]["params"]["result"]["content"][0]["text"] == "exported 3"
    error = core.modern("subscriptions/listen", {"notifications": {"taskIds": [id]}}, channel="n", caller=MODERN)
    assert error["error"]["code"] == -32021


async def test_a_task_that_runs_longer_than_its_time_to_live_fails_and_is_forgotten_later() -> None:
    job = Job()
    core = CoreHarness(job.box)
    core.server.tasks.terms = TaskTerms(ttl_ms=1000)
    client = Client(core)
    id = (await begin(core, "export"))["taskId"]
    core.now = 1.5
    failed = await client.state(id, "failed")
    assert "longer than its time to live of 1 s" in failed["error"]["message"]
    await until(lambda: job.is_cancelled)
    assert failed["ttlMs"] == 2500
    core.now = 2.4
    assert (await client.get(id))["status"] == "failed"
    core.now = 2.6
    await until(lambda: not len(core.server.tasks))
    assert (await client.get(id))["code"] == -32602


async def test_a_client_beyond_its_bound_waits_for_the_result_and_read_results_make_room() -> None:
    job = Job()
    core = CoreHarness(job.box)
    core.server.tasks.terms = TaskTerms(most_of_principal=2)
    client = Client(core)
    ids = [(await begin(core, "export", f"t{number}"))["taskId"] for number in range(2)]
    waiting = asyncio.ensure_future(begin(core, "export", "t3"))
    assert (await begin(core, "export", "o", OTHER))["resultType"] == "task"
    job.go.set()
    assert (await waiting)["resultType"] == "complete"
    job.go.clear()
    assert (await client.state(ids[1], "completed"))["status"] == "completed"
    assert (await begin(core, "export", "t4"))["resultType"] == "task"
    assert (await client.get(ids[1]))["code"] == -32602
    assert (await client.get(ids[0]))["status"] == "completed"


async def test_the_number_of_all_tasks_has_a_bound() -> None:
    core = CoreHarness(Job().box)
    core.server.tasks.terms = TaskTerms(most=1)
    assert (await begin(core, "export"))["resultType"] == "task"
    core.open(replace(SESSION, principal="token:other"), "s")
    error = core.request("tools/call", {"name": "export", "task": {}}, channel="s")["error"]
    assert error["data"]["reason"] == "busy" and "1 tasks already" in error["message"]


async def test_questions_of_a_task_are_bounded_at_a_time_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    core = CoreHarness(Job().box)
    client = Client(core)
    monkeypatch.setattr(task_questions, "MOST_OPEN", 3)
    id = (await begin(core, "curious", times=4))["taskId"]
    failed = (await client.state(id, "completed"))["result"]
    assert failed["isError"] and "3 questions of this task are open already" in failed["content"][0]["text"]
    monkeypatch.setattr(task_questions, "MOST_KEYS", 1)
    id = (await begin(core, "greet", "t2"))["taskId"]
    await client.state(id, "input_required")
    await client.ask("tasks/update", taskId=id, inputResponses={"who": ALICE})
    assert "at most 1 questions" in (await client.state(id, "completed"))["result"]["content"][0]["text"]


async def test_results_that_do_not_fit_fail_their_task() -> None:
    job = Job()
    core = CoreHarness(job.box)
    client = Client(core)
    ids = [(await begin(core, "export", f"t{number}"))["taskId"] for number in range(2)]
    core.server.tasks.terms = TaskTerms(results=100)
    job.go.set()
    assert (await client.state(ids[0], "completed"))["result"]
    assert (await client.state(ids[1], "failed"))["error"]["data"]["reason"] == "result_too_large"


async def test_requests_of_running_tasks_have_a_size_together() -> None:
    box, go = Toolbox(), asyncio.Event()

    @tool(toolbox=box, task=True)
    async def keep(text: str) -> str:
        await go.wait()
        return "kept"

    core = CoreHarness(box)
    core.server.tasks.terms = TaskTerms(results=2500)
    client = Client(core)
    first = (await begin(core, "keep", "t1", text="x" * 1500))["taskId"]
    core.open(SESSION, "s")
    asked = {"name": "keep", "arguments": {"text": "x" * 1500}, "task": {}}
    error = core.request("tools/call", asked, channel="s")["error"]
    assert error["data"]["reason"] == "busy" and "too large together" in error["message"]
    await client.ask("tasks/cancel", taskId=first)
    second = (await begin(core, "keep", "t2", text="x" * 1500))["taskId"]
    go.set()
    assert (await client.state(second, "completed"))["result"]
    go.clear()
    assert (await begin(core, "keep", "t3", text="x" * 1500))["resultType"] == "task"


# -- 2025-11-25 -------------------------------------------------------------------------------------------------------


class Session:
    """A session of 2025-11-25 on one channel."""

    def __init__(self, core: CoreHarness, caller: Caller = SESSION, channel: str = "s") -> None:
        self.core, self.channel, self.id = core, channel, 0
        core.open(caller, channel)

    def send(self, method: str, **params: Any) -> Any:
        self.id += 1
        answer = self.core.request(method, params, self.id, self.channel)
        return None if answer is None else answer.get("result", answer.get("error"))

    def begin(self, name: str, task: Any = None, **arguments: Any) -> Any:
        return self.send("tools/call", name=name, arguments=arguments, task=task or {})["task"]

    async def reply(self, id: int) -> Any:
        def found() -> list[Any]:
            return [m for c, k, m, i, _ in self.core.sent if k is Kind.RES and c == self.channel and i == id]

        await until(lambda: bool(found()))
        return found()[0].get("result", found()[0].get("error"))


@pytest.mark.requirement("tasks-handshake")
async def test_a_session_gets_a_task_when_it_asks_for_one_and_waits_for_its_result() -> None:
    job = Job()
    core = CoreHarness(job.box)
    session = Session(core)
    task = session.begin("export", {"ttl": 5000}, rows=2)
    assert (task["status"], task["ttl"]) == ("working", 5000)
    assert session.send("tasks/get", taskId=task["taskId"]) == task
    assert session.send("tasks/list") == {"tasks": [task]}
    assert session.send("tasks/result", taskId=task["taskId"]) is None
    waiting = session.id
    job.go.set()
    result = await session.reply(waiting)
    assert result["content"][0]["text"] == "exported 2"
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
    assert session.send("tasks/result", taskId=task["taskId"]) == result
    assert ("notifications/tasks/status", "completed") in [
        (method, params and params.get("status")) for method, params, _ in core.notes()
    ]


async def test_a_session_without_the_param_waits_unless_the_tool_requires_a_task() -> None:
    job = Job()
    core = CoreHarness(job.box)
    session = Session(core)
    assert session.send("tools/call", name="export", arguments={}) is None
    waiting = session.id
    assert session.send("tools/call", name="fail", arguments={})["code"] == -32601
    assert session.send("tools/call", name="quick", arguments={}, task={})["code"] == -32601
    assert session.send("tools/call", name="none", arguments={}, task={})["code"] == -32602
    assert session.send("tools/call", name="export", arguments={}, task={"ttl": "x"})["code"] == -32602
    job.go.set()
    assert (await session.reply(waiting))["content"][0]["text"] == "exported 3"


async def test_older_sessions_have_no_tasks() -> None:
    job = Job()
    core = CoreHarness(job.box)
    session = Session(core, READY)
    assert session.send("tasks/get", taskId="x")["code"] == -32601
    assert all("execution" not in tool for tool in session.send("tools/list")["tools"])
    job.go.set()
    assert session.send("tools/call", name="export", arguments={}, task={}) is None
    assert (await session.reply(session.id))["content"][0]["text"] == "exported 3"


async def test_a_session_gets_the_questions_of_a_task_while_it_waits_for_the_result() -> None:
    core = CoreHarness(Job().box)
    session = Session(core)
    id = session.begin("greet")["taskId"]
    await until(lambda: session.send("tasks/get", taskId=id)["status"] == "input_required")
    session.send("tasks/result", taskId=id)
    waiting = session.id
    for number in (1, 2):
        asked = (await core.until(Kind.REQ, number, "s"))[-1]
        assert asked["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
        core.answer(asked["id"], {"result": ALICE}, "s")
    assert (await session.reply(waiting))["content"][0]["text"] == "Alice Alice"


async def test_questions_of_a_session_that_leaves_go_to_the_next_one() -> None:
    core = CoreHarness(Job().box)
    first = Session(core)
    id = first.begin("both")["taskId"]
    first.send("tasks/result", taskId=id)
    await core.until(Kind.REQ, 2, "s")
    core.close("s")
    second = Session(core, SESSION, "s2")
    second.send("tasks/result", taskId=id)
    for asked in await core.until(Kind.REQ, 2, "s2"):
        core.answer(asked["id"], {"result": ALICE}, "s2")
    assert (await second.reply(second.id))["content"][0]["text"] == "Alice Alice"


async def test_a_bounded_number_of_requests_of_a_session_wait_for_results() -> None:
    core = CoreHarness(Job().box)
    session = Session(core)
    id = session.begin("export")["taskId"]
    for _ in range(MAX_RUNNING):
        assert session.send("tasks/result", taskId=id) is None
    assert session.send("tasks/result", taskId=id)["data"]["reason"] == "busy"
    assert session.send("tasks/get", taskId=id)["status"] == "working"


async def test_a_session_cancels_a_task_once_and_its_result_is_an_error() -> None:
    job = Job()
    core = CoreHarness(job.box)
    session = Session(core)
    id = session.begin("export")["taskId"]
    session.send("tasks/result", taskId=id)
    waiting = session.id
    await until(lambda: job.runs == 1)
    assert session.send("tasks/cancel", taskId=id)["status"] == "cancelled"
    assert (await session.reply(waiting))["code"] == -32600
    error = session.send("tasks/cancel", taskId=id)
    assert error["code"] == -32602 and "cancelled" in error["message"]
    await until(lambda: job.is_cancelled)


async def test_progress_and_logs_of_a_task_name_it_and_belong_to_no_request() -> None:
    job = Job()
    core = CoreHarness(job.box)
    session = Session(core)
    answer = session.send("tools/call", name="export", arguments={}, task={}, _meta={"progressToken": "p"})
    id = answer["task"]["taskId"]
    await until(lambda: job.context is not None)
    assert job.context is not None
    job.context.progress(1, 2)
    job.context.info("hello")
    notes = {method: (params, related) for method, params, related in core.notes()}
    about = {"io.modelcontextprotocol/related-task": {"taskId": id}}
    assert notes["notifications/progress"] == ({"progressToken": "p", "progress": 1, "total": 2, "_meta": about}, None)
    assert notes["notifications/message"] == ({"level": "info", "data": "hello", "_meta": about}, None)


async def test_both_eras_see_the_same_tasks_of_a_principal() -> None:
    job = Job()
    core = CoreHarness(job.box)
    session, client = Session(core), Client(core)
    mine, theirs = session.begin("export")["taskId"], (await begin(core, "fail"))["taskId"]
    job.go.set()
    assert (await client.state(mine, "completed"))["result"]["content"][0]["text"] == "exported 3"
    await client.state(theirs, "completed")
    assert session.send("tasks/get", taskId=theirs)["status"] == "failed"
    assert session.send("tasks/result", taskId=theirs)["isError"] is True
    assert [task["taskId"] for task in session.send("tasks/list")["tasks"]] == [mine, theirs]
    assert Session(core, replace(SESSION, principal="token:other"), "o").send("tasks/list") == {"tasks": []}


def test_each_era_gets_the_news_of_tasks_in_its_form() -> None:
    core = CoreHarness(Job().box)
    about = core.modern("server/discover", caller=ABLE)["result"]["capabilities"]
    assert about["extensions"][TASKS] == {} and "tasks" not in about
    listed = core.modern("tools/list", channel="l", caller=ABLE)["result"]["tools"]
    assert all("execution" not in one for one in listed)
    core.open(SESSION, "s")
    known = {tool["name"]: tool.get("execution") for tool in core.request("tools/list", channel="s")["result"]["tools"]}
    assert known["export"] == {"taskSupport": "optional"} and known["fail"] == {"taskSupport": "required"}
    assert known["quick"] is None
    new = replace(SESSION, ready=False)
    for version, has in (("2025-11-25", True), ("2025-06-18", False)):
        core.open(replace(new, version=version), version)
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        found = core.request("initialize", hello, channel=version)["result"]["capabilities"]
        assert ("tasks" in found) is has and TASKS not in found["extensions"]
