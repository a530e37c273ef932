"""A client at one relay and a browser at another, in both eras: every kind of call behaves as at one relay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabserver import Context, resource, resource_updated, tool
from tabserver.handlers.toolbox import Toolbox
from tests.support.cpython_worker import CPythonWorker
from tests.support.link_worker import SyntheticWorker
from tests.support.relay_pair import Pair, Stream, meeting, open_session, request
from tests.support.running_relay import RunningRelay, modern
from tests.support.waiting import until

# The result contains it twice: as text and as a value.
LARGE = 8 * 1024 * 1024 - 4096


class Client:
    """One client of an era, at one relay."""

    def __init__(self, relay: RunningRelay, session: dict[str, str] | None) -> None:
        self.relay = relay
        self.session = session

    def start(self, method: str, params: dict[str, Any], id: int = 7) -> Stream:
        if self.session is None:
            return Stream(self.relay, "POST", "notes", **modern(method, params, id=id))
        return Stream(self.relay, "POST", "notes", json=request(method, params, id=id), headers=self.session)

    def call(self, tool: str, **arguments: Any) -> Stream:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}}
        return self.start("tools/call", params)

    async def cancel(self, stream: Stream, id: int = 7) -> None:
        if self.session is None:
            await stream.leave()
            return
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}}
        assert (await self.relay.http.post("/notes", json=note, headers=self.session)).status_code == 202


async def client(era: str, relay: RunningRelay) -> Client:
    return Client(relay, await open_session(relay, "notes") if era == "legacy" else None)


both_eras = pytest.mark.parametrize("era", ["modern", "legacy"])


class Box:
    """The offers of the browser at the other relay, with a record of their calls."""

    def __init__(self) -> None:
        self.toolbox = Toolbox()
        self.began = 0
        self.cancelled = 0
        self.opened = asyncio.Event()

        @tool(toolbox=self.toolbox)
        async def work(ctx: Context) -> str:
            for step in (1, 2, 3):
                ctx.progress(step, 3, f"step {step}")
            return "done"

        @tool(toolbox=self.toolbox)
        async def wait() -> str:
            self.began += 1
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return "done"

        @tool(toolbox=self.toolbox)
        async def large(text: str, size: int) -> str:
            return f"{len(text)} " + "x" * size

        @tool(toolbox=self.toolbox)
        async def broken() -> str:
            raise RuntimeError("a fault")

        @resource("note://one", toolbox=self.toolbox)
        def note() -> str:
            return "text"


@pytest.fixture
async def box(pair: Pair) -> AsyncIterator[Box]:
    box = Box()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", box.toolbox):
        await pair.a.has_found("notes")
        yield box


@both_eras
async def test_progress_comes_in_order_before_the_result(pair: Pair, box: Box, era: str) -> None:
    stream = (await client(era, pair.a)).call("work")
    result = (await stream.end())["result"]
    said = [message["params"] for message in stream.said[:-1]]
    assert [(one["progressToken"], one["progress"], one["message"]) for one in said] == [
        ("p", step, f"step {step}") for step in (1, 2, 3)
    ]
    assert result["content"][0]["text"] == "done"


@both_eras
async def test_a_call_that_is_cancelled_stops_in_the_browser(pair: Pair, box: Box, era: str) -> None:
    caller = await client(era, pair.a)
    stream = caller.call("wait")
    await until(lambda: box.began == 1)
    await caller.cancel(stream)
    await until(lambda: box.cancelled == 1)


async def test_a_session_cancels_at_another_relay_what_it_began_at_the_first(pair: Pair, box: Box) -> None:
    caller = await client("legacy", pair.a)
    stream = caller.call("wait")
    await until(lambda: box.began == 1)
    await Client(pair.b, caller.session).cancel(stream)
    await until(lambda: box.cancelled == 1)


@both_eras
async def test_sixteen_megabytes_come_whole(pair: Pair, box: Box, era: str) -> None:
    text = "ü" * 2_000_000
    result = (await (await client(era, pair.a)).call("large", text=text, size=LARGE).end(60))["result"]
    assert result["content"][0]["text"] == f"{len(text)} " + "x" * LARGE


@both_eras
async def test_an_error_that_a_tool_reports_is_its_result(pair: Pair, box: Box, era: str) -> None:
    result = (await (await client(era, pair.a)).call("broken").end())["result"]
    assert result["isError"] is True and "a fault" in result["content"][0]["text"]


@both_eras
async def test_an_error_of_the_server_is_passed_on_as_it_is(pair: Pair, box: Box, era: str) -> None:
    here = (await (await client(era, pair.b)).start("prompts/get", {"name": "no such prompt"}).end())["error"]
    there = (await (await client(era, pair.a)).start("prompts/get", {"name": "no such prompt"}).end())["error"]
    assert there == here


@both_eras
async def test_lists_are_those_of_the_browser(pair: Pair, box: Box, era: str) -> None:
    caller = await client(era, pair.a)
    tools = (await caller.start("tools/list", {}).end())["result"]["tools"]
    assert [one["name"] for one in tools] == ["work", "wait", "large", "broken"]
    resources = (await caller.start("resources/list", {}).end())["result"]["resources"]
    assert [one["uri"] for one in resources] == ["note://one"]
    contents = (await caller.start("resources/read", {"uri": "note://one"}).end())["result"]["contents"]
    assert contents[0]["text"] == "text"


async def test_a_modern_listener_is_notified_of_lists_and_resources(pair: Pair, box: Box) -> None:
    caller = await client("modern", pair.a)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}
    stream = caller.start("subscriptions/listen", {"notifications": wanted})
    await until(lambda: "notifications/subscriptions/acknowledged" in stream.methods())
    resource_updated("note://one", toolbox=box.toolbox)
    await until(lambda: "notifications/resources/updated" in stream.methods())
    tool(toolbox=box.toolbox, name="new")(lambda: "new")
    await until(lambda: "notifications/tools/list_changed" in stream.methods())
    await stream.leave()


@pytest.mark.parametrize("reads_at", ["a", "b"])
async def test_a_session_is_notified_of_lists_and_resources_wherever_it_subscribed(
    pair: Pair, box: Box, reads_at: str
) -> None:
    caller = await client("legacy", pair.a)
    assert caller.session is not None
    stream = Stream(getattr(pair, reads_at), "GET", "notes", headers=caller.session)
    await until(lambda: stream.status == 200)
    assert (await caller.start("resources/subscribe", {"uri": "note://one"}).end())["result"] == {}

    async def is_received() -> bool:  # the other relay has to receive the subscription first
        resource_updated("note://one", toolbox=box.toolbox)
        return "notifications/resources/updated" in stream.methods()

    await until(is_received)
    tool(toolbox=box.toolbox, name="new")(lambda: "new")
    await until(lambda: "notifications/tools/list_changed" in stream.methods())
    await stream.leave()


# -- errors, and whether the call was delivered ------------------------------------------------------------------------


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Pair]:
    """Relays that do not wait for browsers, with room for one call per server."""
    async with meeting(tmp_path, in_flight_server=1, away_wait_s=0.1, call_deadline_s=2.0) as pair:
        yield pair


async def outcome(stream: Stream) -> tuple[str, str, bool]:
    data = (await stream.end())["error"]["data"]
    return data["reason"], data["delivered"], data["retryable"]


@both_eras
async def test_errors_say_whether_anything_was_delivered(strict: Pair, era: str) -> None:
    async with strict.worker(strict.b, "notes") as worker:
        await strict.a.has_found("notes")
        caller, other = await client(era, strict.a), await client(era, strict.a)
        worker.on_call = lambda *_: None
        first = caller.call("echo")
        await until(lambda: len(worker.calls) == 1)
        assert await outcome(other.call("echo")) == ("busy", "no", True)
        assert await outcome(first) == ("timeout", "unknown", False)
        assert len(worker.calls) == 1
    await until(lambda: worker.close_code is not None)

    async def is_offline() -> bool:
        return await outcome(caller.call("echo")) == ("server_offline", "no", True)

    await until(is_offline)
    strict.hub.cut()
    assert await outcome(caller.call("echo")) == ("relay_unavailable", "no", True)


@both_eras
async def test_a_call_whose_browser_another_one_displaced_is_unknown(pair: Pair, era: str) -> None:
    async with pair.worker(pair.b, "notes") as worker:
        await pair.a.has_found("notes")
        worker.on_call = lambda *_: None
        stream = (await client(era, pair.a)).call("echo")
        await until(lambda: len(worker.calls) == 1)
        async with SyntheticWorker(pair.b.url, pair.b.token, "notes", inst="w2"):
            assert await outcome(stream) == ("browser_gone", "unknown", False)
