"""Tasks of a worker and of a tab in Chromium, with the official SDKs as clients.

One relay and one page for the whole file. A task of the worker survives its client, the relay and the page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import httpx2
import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, Result
from playwright.async_api import Browser, Page, expect
from pydantic import ConfigDict

from tests.behaviour.upstreams.test_eras import AnyRequest, AnyResult
from tests.e2e.test_page_api import OFFERED, text
from tests.support.demo import Demo
from tests.support.nodejs import NODE, ROOT, node
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S

SERVER = "jobs"
JOB_S = 20
TASKS = "io.modelcontextprotocol/tasks"
HERE = Path(__file__).parent

PAGE = """<!doctype html>
<title>Jobs</title>
<script type="module">
import * as tabrelay from "RELAY/-/client.js";
const connection = tabrelay.connect({
  server: "jobs", worker: "/worker.js", token: "TOKEN", modules: [new URL("/jobs.py", location.href).href],
  timing: { last_tab_return_ms: 60_000 }, // a busy machine takes long to load the page again
});
connection.offerTool({
  name: "draw", description: "Draw until the page is closed.", task: "optional",
  execute: (args, { progress }) => new Promise(() => progress(1, 3, "drawing")),
});
connection.offerTool({
  name: "copy", description: "Copy in steps.", task: "optional",
  async execute(args, { save, saved }) {
    if (saved) return `went on at ${saved.step}`;
    save({ step: 7 });
    return new Promise(() => {});
  },
});
Object.assign(globalThis, { connection });
</script>
"""
MODULE = """
import asyncio

from tabserver import Context, tool

runs = []


@tool(task=True)
async def export(seconds: float, ctx: Context) -> str:
    "Export rows, slowly."
    runs.append(seconds)
    for step in range(10):
        await asyncio.sleep(seconds / 10)
        ctx.progress(step + 1, 10, "exporting")
    return f"exported by run {runs.count(seconds)}"


@tool(task=True)
async def order(ctx: Context) -> str:
    "Ask how many."
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    answer = await ctx.elicit("How many?", schema)
    return f"ordered {answer.data['count']}" if answer.data else answer.action
"""


class Factory:
    """The page with the jobs, and clients of its server."""

    def __init__(self, relay: Demo, site: Site, page: Page) -> None:
        self.relay, self.site, self.page = relay, site, page

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.relay.port}/{SERVER}"

    async def sdk(self, *arguments: str) -> list[dict[str, Any]]:
        """What the TypeScript SDK's client printed."""
        ended = await node(HERE / "task_client.mjs", self.url, self.relay.token, *arguments, timeout_s=BOUND_S * 2)
        assert ended.code == 0, ended.err
        return [json.loads(line) for line in ended.out.splitlines()]


class TaskRequest(AnyRequest):
    """A request about a task, whose id is in a header too."""

    name_param = "taskId"


class NewTask(Result):
    """The answer to a call that has become a task."""

    model_config = ConfigDict(extra="allow")

    result_type: Literal["task"]
    task_id: str


class Tasks(ClientExtension):
    """Tasks as an extension of the official Python SDK: a call ends when its task does."""

    identifier = TASKS

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=NewTask, resolve=self._resolve)]

    async def _resolve(self, task: NewTask, context: ClaimContext) -> CallToolResult:
        self.begun.put_nowait(task.task_id)
        state = await self.until(context.session, task.task_id, "completed", "failed", "cancelled")
        if state["status"] != "completed":
            raise ToolFailed(state["status"], state.get("error"), state.get("statusMessage"))
        return CallToolResult.model_validate(state["result"])

    async def until(self, session: ClientSession, task: str, *statuses: str) -> dict[str, Any]:
        """The state of the task, once it has one of these."""
        async with asyncio.timeout(BOUND_S + JOB_S):
            while (state := await ask(session, "tasks/get", taskId=task))["status"] not in statuses:
                if state["status"] == "input_required":
                    answers = {key: {"action": "accept", "content": {"count": 4}} for key in state["inputRequests"]}
                    await ask(session, "tasks/update", taskId=task, inputResponses=answers)
                await asyncio.sleep(state["pollIntervalMs"] / 1000)
        return state


class ToolFailed(Exception):
    """The task ended without a result."""


async def ask(session: ClientSession, method: str, **params: Any) -> dict[str, Any]:
    return (
        await session.send_request(
            (TaskRequest if "taskId" in params else AnyRequest)(method=method, params=params), AnyResult
        )
    ).model_dump(by_alias=True)


@pytest.fixture(scope="module")
async def factory(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Factory]:
    folder = tmp_path_factory.mktemp("site")
    site = Site(folder)
    async with Demo(tmp_path_factory.mktemp("home"), SERVER, "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        (folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
        (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        (folder / "jobs.py").write_text(MODULE)
        context = await browser.new_context()
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(OFFERED, arg="order", timeout=settings.BOOT_TIMEOUT_MS)
            yield Factory(relay, site, page)
        await context.close()


async def test_a_job_of_20_s_survives_its_client_the_relay_and_the_page_and_runs_once(factory: Factory) -> None:
    script = ROOT / "tests" / "e2e" / "task_client.mjs"
    arguments = (factory.url, factory.relay.token, "v1", "export", json.dumps({"seconds": JOB_S}))
    process = await asyncio.create_subprocess_exec(NODE, script, *arguments, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        created = json.loads(await process.stdout.readline())
    process.kill()
    await process.wait()
    assert created["type"] == "taskCreated"
    await factory.relay.stop()
    await factory.relay.start()
    await factory.page.reload()
    await factory.page.wait_for_function("connection.state.state === 'connected'", timeout=BOUND_S * 1000)
    tasks = Tasks()
    async with factory.relay.client("auto", extensions=[tasks]) as client:
        assert (await ask(client.session, "tasks/get", taskId=created["task"]))["status"] == "working"
        state = await tasks.until(client.session, created["task"], "completed", "failed")
        assert state["result"]["content"][0]["text"] == "exported by run 1", state


async def test_the_python_sdk_is_a_client_of_tasks(factory: Factory) -> None:

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        raise AssertionError("a task has its questions in its state")

    async with factory.relay.client("auto", extensions=[Tasks()], elicitation_callback=answer) as client:
        assert text(await client.call_tool("export", {"seconds": 0.9})) == "exported by run 1"
        assert text(await client.call_tool("order", {})) == "ordered 4"


@pytest.mark.parametrize("sdk", ["v1", "legacy", "modern"])
async def test_the_typescript_sdk_is_a_client_of_tasks(factory: Factory, sdk: str) -> None:
    seconds = {"v1": 0.6, "legacy": 0.7, "modern": 0.8}[sdk]
    *before, last = await factory.sdk(sdk, "export", json.dumps({"seconds": seconds}))
    assert (last["type"], last["text"]) == ("result", "exported by run 1")
    if sdk == "v1":
        assert before[0]["type"] == "taskCreated"
        assert (await factory.sdk(sdk, "order", "{}"))[-1]["text"] == "ordered 4"


async def test_the_task_of_a_tab_fails_with_a_reason_when_its_tab_is_closed(factory: Factory) -> None:
    other = await factory.page.context.new_page()
    await other.goto(factory.page.url)
    await other.wait_for_function("connection.catalogue?.tabs === 2")
    await other.bring_to_front()
    tasks = Tasks()
    async with factory.relay.client("auto", extensions=[tasks]) as client:
        call = asyncio.create_task(client.call_tool("draw", {"_tab": await other.evaluate("connection.tab.id")}))
        async with asyncio.timeout(BOUND_S):
            await tasks.begun.get()
        await other.close()
        async with asyncio.timeout(BOUND_S):
            try:
                failure = text(await call)
            except ToolFailed as failed:
                failure = str(failed)
    assert "tab" in failure and "left" in failure, failure


async def test_a_task_that_saved_its_state_goes_on_after_a_reload_of_its_page(factory: Factory) -> None:
    tasks = Tasks()
    async with factory.relay.client("auto", extensions=[tasks]) as client:
        call = asyncio.create_task(client.call_tool("copy", {}))
        async with asyncio.timeout(BOUND_S):
            task = await tasks.begun.get()
        await factory.page.reload()
        async with asyncio.timeout(BOUND_S):
            assert text(await call) == "went on at 7"
        [row] = [row for row in (await factory.relay.status())["servers"][0]["tasks"] if row["id"] == task]
        assert (row["tool"], row["status"]) == ("copy", "completed")
        await shows_in_console(factory, task)


async def shows_in_console(factory: Factory, task: str) -> None:
    address = httpx2.URL(await factory.relay.pair())
    console = await factory.page.context.new_page()
    await console.goto(str(address.copy_with(path="/", query=f"server={SERVER}&part=tasks".encode())))
    line = console.locator(f"[data-task='{task}']")
    await expect(line).to_contain_text("copy")
    await expect(line).to_have_attribute("data-status", "completed")
    await console.close()
