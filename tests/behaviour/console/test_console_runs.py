"""Calls that a console runs: try, resend, answer questions, cancel; each is a captured row of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tabrelay.faces.web.console_runs import MAX_RUNS
from tabserver.handlers.context import Context
from tabserver.handlers.toolbox import Toolbox, prompt, resource, tool
from tests.support.console import OpenConsole, open_console
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

Row = dict[str, Any]


class Served:
    """`seen`: what the tool `echo` got; `stopped`: the tool `slow` was cancelled."""

    def __init__(self, relay: RunningRelay, console: OpenConsole, seen: list[Row], stopped: asyncio.Event) -> None:
        self.relay, self.console, self.seen, self.stopped = relay, console, seen, stopped

    async def run(self, status: int = 202, **body: Any) -> Row:
        response = await self.relay.http.post("/-/console/run", json=body)
        assert response.status_code == status, response.text
        found: Row = response.json()
        return found

    async def tool(self, name: str, arguments: Row | None = None, **more: Any) -> Row:
        params = {"name": name, "arguments": arguments or {}}
        return await self.run(server="notes", method="tools/call", params=params, **more)

    async def detail(self, started: Row) -> Row:
        """Of a call that has ended."""
        await self.console.until(lambda: self.console.rows.get(started["id"], {}).get("ms") is not None)
        found: Row = (await self.relay.http.get(f"/-/console/calls/{started['id']}")).json()
        return found


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[Served]:
    box, stopped = Toolbox(), asyncio.Event()
    seen: list[Row] = []

    @tool(toolbox=box)
    def echo(text: str, password: str = "") -> str:
        seen.append({"text": text, "password": password})
        return text

    @tool(toolbox=box)
    async def slow(ctx: Context) -> str:
        ctx.progress(1, 2, "half")
        ctx.log("info", "it runs")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "never"

    @tool(toolbox=box)
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", {"type": "object", "properties": {"count": {"type": "integer"}}})
        return f"{answer.action} {answer.content}"

    @tool(toolbox=box, visibility=["app"])
    def for_apps() -> str:
        return "for apps"

    @resource("notes://all", toolbox=box)
    def notes() -> str:
        return "all notes"

    @prompt(toolbox=box)
    def greet(name: str) -> str:
        return f"Hello {name}"

    async with RunningRelay(home) as relay, CPythonWorker(relay.url, relay.token, "notes", box):
        await relay.has_read("notes", lambda row: len(row["tools"]) == 4)
        async with open_console(relay) as console:
            yield Served(relay, console, seen, stopped)


async def test_tools_resources_and_prompts_run_as_calls_of_the_console(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        detail = await notes.detail(await notes.tool("echo", {"text": "hello"}))
        row = detail["row"]
        assert row["by"] == "console" and row["client"]["name"] == "Tabrelay console" and row["state"] == "done"
        assert row["name"] == "echo" and row["kind"] == "call" and row["group"] == row["id"]
        assert detail["response"]["result"]["content"] == [{"type": "text", "text": "hello"}]
        read = await notes.run(server="notes", method="resources/read", params={"uri": "notes://all"})
        assert (await notes.detail(read))["response"]["result"]["contents"][0]["text"] == "all notes"
        got = await notes.run(
            server="notes", method="prompts/get", params={"name": "greet", "arguments": {"name": "Ada"}}
        )
        assert (await notes.detail(got))["response"]["result"]["messages"][0]["content"]["text"] == "Hello Ada"
        listed = await notes.run(server="notes", method="tools/list")
        assert len((await notes.detail(listed))["response"]["result"]["tools"]) == 3


async def test_progress_and_logs_are_notices_and_a_cancelled_call_is_stopped(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        started = await notes.tool("slow")
        async with asyncio.timeout(BOUND_S):
            said: list[str] = []
            while len(said) < 2:
                detail = (await notes.relay.http.get(f"/-/console/calls/{started['id']}")).json()
                said = [notice["method"] for notice in detail["notices"]]
        assert said == ["notifications/progress", "notifications/message"]
        response = await notes.relay.http.post(f"/-/console/calls/{started['id']}/cancel")
        assert response.status_code == 204
        detail = await notes.detail(started)
        assert detail["row"]["state"] == "cancelled"
        async with asyncio.timeout(BOUND_S):
            await notes.stopped.wait()
        again = await notes.relay.http.post(f"/-/console/calls/{started['id']}/cancel")
        assert again.status_code == 404 and again.json()["error"] == "unknown_call"


async def test_the_page_of_an_app_gets_the_response_itself_and_tools_for_apps(tmp_path: Path) -> None:
    """What is captured is redacted, and of a long text only the beginning is kept."""
    async with served(tmp_path) as notes:
        http = notes.relay.http
        text = "x" * (notes.relay.settings.console_entry + 1)
        params = {"name": "echo", "arguments": {"text": text, "password": "secret-4712"}}
        response = await http.post("/-/console/app", json={"server": "notes", "method": "tools/call", "params": params})
        assert response.status_code == 200 and response.headers["cache-control"] == "no-store"
        assert response.json()["result"]["content"][0]["text"] == text
        row = await notes.console.row(method="tools/call", by="console", state="done")
        detail = await notes.detail(row)
        assert detail["truncated"] == {"request": True, "response": True} and "secret-4712" not in str(detail)
        assert notes.seen[-1]["password"] == "secret-4712"
        listed = (await http.post("/-/console/app", json={"server": "notes", "method": "tools/list"})).json()["result"]
        assert "for_apps" in [tool["name"] for tool in listed["tools"]]
        unknown = await http.post("/-/console/app", json={"server": "none", "method": "tools/list"})
        assert unknown.status_code == 404 and unknown.json()["error"] == "unknown_server"
        broken = {"server": "notes", "method": "tools/call", "params": {"name": "no_such_tool"}}
        assert (await http.post("/-/console/app", json=broken)).json()["error"]["code"] == -32602


async def test_a_call_of_an_app_ends_with_its_page(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        body = {"server": "notes", "method": "tools/call", "params": {"name": "slow"}}
        asked = asyncio.create_task(notes.relay.http.post("/-/console/app", json=body))
        await notes.console.row(name="slow", state="running")
        asked.cancel()
        async with asyncio.timeout(BOUND_S):
            await notes.stopped.wait()
        await notes.console.row(name="slow", state="cancelled")


async def test_a_captured_call_is_sent_again_once_with_its_hidden_values(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        await notes.relay.call("notes", "echo", {"text": "one", "password": "secret-4711"})
        row = await notes.console.row(method="tools/call", state="done", by="client")
        first = await notes.detail(row)
        assert first["request"]["params"]["arguments"] == {"text": "one", "password": "[redacted]"}
        await notes.detail(await notes.run(of=row["id"]))
        edited = first["request"]["params"]
        edited["arguments"]["text"] = "two"
        detail = await notes.detail(await notes.run(of=row["id"], params=edited))
        assert notes.seen == [{"text": text, "password": "secret-4711"} for text in ("one", "one", "two")]
        assert detail["request"]["params"]["arguments"] == {"text": "two", "password": "[redacted]"}
        assert "secret-4711" not in str(detail) and detail["row"]["by"] == "console"


async def test_questions_are_answered_by_hand_in_rounds_of_one_group(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        first = await notes.detail(await notes.tool("order"))
        result = first["response"]["result"]
        assert result["resultType"] == "input_required" and first["row"]["error"] is None
        [(key, question)] = result["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        answer = {key: {"action": "accept", "content": {"count": 3}}}
        second = await notes.detail(await notes.run(of=first["row"]["id"], responses=answer))
        assert second["row"]["group"] == first["row"]["id"]
        assert second["response"]["result"]["content"][0]["text"] == "accept {'count': 3}"
        refused = await notes.run(409, of=second["row"]["id"], responses=answer)
        assert refused["error"] == "not_asked"


async def test_rounds_of_a_plain_client_are_one_group(tmp_path: Path) -> None:
    meta: Row = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with served(tmp_path) as notes:
        asked = [(await notes.relay.call("notes", "order", _meta=meta)).json()["result"] for _ in range(2)]
        for count, result in enumerate(asked):
            [key] = result["inputRequests"]
            answers = {key: {"action": "accept", "content": {"count": count}}}
            state = {"requestState": result["requestState"]}
            again = await notes.relay.call("notes", "order", _meta=meta, inputResponses=answers, **state)
            assert again.json()["result"]["content"][0]["text"] == f"accept {{'count': {count}}}"
        unknown = await notes.relay.call("notes", "order", _meta=meta, inputResponses=answers, requestState="other")
        assert "result" not in unknown.json() or unknown.json()["result"]["resultType"] == "input_required"
        await notes.console.until(
            lambda: len([row for row in notes.console.rows.values() if row["ms"] is not None]) >= 5
        )
        rows = sorted(notes.console.rows.values(), key=lambda row: row["seq"])
        rows = [row for row in rows if row["name"] == "order"]
        firsts = [row["id"] for row in rows[:2]]
        assert [row["group"] for row in rows] == [*firsts, *firsts, rows[4]["id"]]
        assert [row["rounds"] for row in rows] == [1, 1, 2, 2, 1]


async def test_what_can_not_be_run_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        assert (await notes.run(400, server="notes"))["error"] == "invalid_request"
        assert (await notes.run(400, server="notes", method="initialize"))["error"] == "invalid_request"
        assert (await notes.run(400, server="notes", method="tools/call", params=[]))["error"] == "invalid_request"
        assert (await notes.run(404, server="absent", method="tools/list"))["error"] == "unknown_server"
        assert (await notes.run(404, of="0-0"))["error"] == "unknown_call"
        failed = await notes.detail(await notes.tool("no_such_tool"))
        assert failed["row"]["state"] == "failed" and failed["row"]["code"] == -32602
        for _ in range(MAX_RUNS):
            await notes.tool("slow")
        assert (await notes.tool("echo", status=429))["error"] == "too_many"


async def test_nothing_runs_for_a_token_of_other_servers_or_of_another_scope(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        tokens = notes.relay.tokens
        body: Row = {"server": "notes", "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}}
        row = await notes.detail(await notes.run(**body))
        for token, status in (
            (tokens.issue_named("other", ["manage"], ["other"]), 404),
            (tokens.issue_named("caller", ["call"], None), 403),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            for asked in (body, {"of": row["row"]["id"]}):
                response = await notes.relay.http.post("/-/console/run", json=asked, headers=headers)
                assert response.status_code == status, response.text
        assert len(notes.seen) == 1


async def test_without_an_open_stream_nothing_runs(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        response = await relay.http.post("/-/console/run", json={"server": "notes", "method": "tools/list"})
        assert response.status_code == 409 and response.json()["error"] == "not_capturing"
