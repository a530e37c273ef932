"""Servers of the official SDKs as upstreams, over every transport, for clients of both eras."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CreateMessageResult, TextContent

from tabrelay.config.specs import HttpSpec, Spec, StdioSpec
from tests.support.nodejs import MODULES, NODE
from tests.support.paths import SUPPORT
from tests.support.running_relay import RunningRelay
from tests.support.upstream_relays import MODES, client, named, text
from tests.support.waiting import until

OFFICIAL = SUPPORT / "sdk_server.py"
EXAMPLES = MODULES / "@modelcontextprotocol" / "sdk" / "dist" / "esm" / "examples" / "server"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running(*command: str | Path, **env: str) -> AsyncIterator[str]:
    """A program, and the first line of its output: empty if it ended before."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            first = await process.stdout.readline()
        rest = asyncio.create_task(process.stdout.read())  # or it would block on its full output pipe
        yield first.decode()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    await rest


@asynccontextmanager
async def official(transport: str) -> AsyncIterator[int]:
    """The server made with the Python SDK; returns its port."""
    async with running(sys.executable, "-P", OFFICIAL, transport) as said:
        yield int(said)


@asynccontextmanager
async def example(name: str) -> AsyncIterator[int]:
    """An example of the TypeScript SDK, which needs a port; tries another one if the port was taken meanwhile."""
    is_up = False
    while not is_up:
        port = free_port()
        async with running(NODE, EXAMPLES / name, MCP_PORT=str(port)) as said:
            is_up = f"listening on port {port}" in said
            if is_up:
                yield port


@pytest.fixture(scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningRelay]:
    async with AsyncExitStack() as stack:
        programs = official("http"), official("sse"), example("simpleStreamableHttp.js")
        py_http, py_sse, ts_http = await asyncio.gather(*map(stack.enter_async_context, programs))
        specs: list[Spec] = [
            StdioSpec("py-stdio", sys.executable, ("-P", str(OFFICIAL), "stdio")),
            StdioSpec("py-old", sys.executable, ("-P", str(OFFICIAL), "stdio"), era="legacy"),
            HttpSpec("py-http", f"http://127.0.0.1:{py_http}/mcp"),
            HttpSpec("py-http-old", f"http://127.0.0.1:{py_http}/mcp", era="legacy"),
            HttpSpec("py-sse-old", f"http://127.0.0.1:{py_sse}/sse", era="legacy"),
            HttpSpec("py-sse", f"http://127.0.0.1:{py_sse}/sse"),
            HttpSpec("ts-http", f"http://127.0.0.1:{ts_http}/mcp", transport="http"),
            StdioSpec("ts-weather", str(NODE), (str(EXAMPLES / "mcpServerOutputSchema.js"),)),
            StdioSpec("ts-sampling", str(NODE), (str(EXAMPLES / "toolWithSampleServer.js"),)),
        ]
        async with RunningRelay(tmp_path_factory.mktemp("home"), specs=specs, away_wait_s=30) as relay:
            yield relay


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("server", ["py-stdio", "py-old", "py-http", "py-sse"])
async def test_a_server_of_the_python_sdk_is_listed_called_and_read(
    relay: RunningRelay, server: str, mode: str
) -> None:
    seen: list[float] = []

    async def receive(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with client(relay, server, mode) as one:
        assert [tool.name for tool in (await one.list_tools()).tools] == ["add", "ask", "chatter", "count"]
        result = await one.call_tool("add", {"a": 1, "b": 2})
        assert (result.structured_content, result.is_error) == ({"result": 3}, False)
        await one.call_tool("count", {"to": 3}, progress_callback=receive)
        read: Any = (await one.read_resource("text://greeting")).contents[0]
        assert read.text == "hello"
    assert seen == [1, 2, 3]


async def test_each_server_is_spoken_to_in_its_own_era(relay: RunningRelay) -> None:
    expected = {
        "py-stdio": ("stdio", "modern"),
        "py-old": ("stdio", "legacy"),
        "py-http": ("http", "modern"),
        "py-http-old": ("http", "legacy"),
        "py-sse-old": ("http", "legacy"),
        # The old transport; the server supports both eras, and the relay uses the newer one.
        "py-sse": ("http", "modern"),
        "ts-http": ("http", "legacy"),
        "ts-weather": ("stdio", "legacy"),
        "ts-sampling": ("stdio", "legacy"),
    }
    for server in expected:
        await relay.has_read(server)
    rows = (await relay.http.get("/-/status")).json()["servers"]
    assert {row["name"]: (row["kind"], row["era"]) for row in rows} == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("server", ["py-old"])
async def test_a_question_pushed_over_a_pipe_is_answered(relay: RunningRelay, server: str, mode: str) -> None:
    async with client(relay, server, mode, **named("Ada")) as one:
        assert await text(one, "ask") == "accept: Ada"


@pytest.mark.parametrize("server", ["py-old", "py-http-old", "py-sse-old"])
async def test_log_messages_outside_of_calls_reach_all_sessions(relay: RunningRelay, server: str) -> None:
    received: dict[str, list[Any]] = {"one": [], "other": []}

    def logs(name: str) -> dict[str, Any]:
        async def receive(params: Any) -> None:
            received[name].append(params.data)

        return {"logging_callback": receive}

    listener, talker = (client(relay, server, "legacy", **logs(name)) for name in received)
    async with listener, talker as one:
        assert await text(one, "chatter") == "chatting"
        await until(lambda: all(len(seen) >= 3 for seen in received.values()))
    assert all(seen == sorted(seen) for seen in received.values())


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_of_the_typescript_sdk_over_http(relay: RunningRelay, mode: str) -> None:
    async with client(relay, "ts-http", mode, **named("Ada")) as one:
        assert await text(one, "greet", name="Bern") == "Hello, Bern!"
        result = await one.call_tool("collect-user-info", {"infoType": "feedback"})
        assert "feedback" in str(result.content)
        prompt: Any = (await one.get_prompt("greeting-template", {"name": "Bern"})).messages[0].content
        assert "Bern" in prompt.text
        assert len((await one.list_resources()).resources) > 1


async def test_callers_of_one_http_server_are_asked_only_what_is_theirs(relay: RunningRelay) -> None:
    """Calls of many callers overlap, each asks, and the caller of each call answers its question."""

    async def one(name: str, mode: str) -> str:
        async with client(relay, "ts-http", mode, **named(name)) as caller:
            return str((await caller.call_tool("collect-user-info", {"infoType": "contact"})).content)

    names = [f"caller-{number}" for number in range(8)]
    said = await asyncio.gather(*(one(name, MODES[index % 2]) for index, name in enumerate(names)))
    assert all(name in answer for name, answer in zip(names, said, strict=True)), said


@pytest.mark.parametrize("mode", MODES)
async def test_sampling_of_a_server_of_the_typescript_sdk(relay: RunningRelay, mode: str) -> None:
    async def sample(context: object, params: Any) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="short"), model="m")

    async with client(relay, "ts-sampling", mode, sampling_callback=sample) as one:
        assert await text(one, "summarize", text="long") == "short"


@pytest.mark.parametrize("mode", MODES)
async def test_structured_results_keep_their_form(relay: RunningRelay, mode: str) -> None:
    async with client(relay, "ts-weather", mode) as one:
        result: Any = await one.call_tool("get_weather", {"city": "Bern", "country": "CH"})
        assert set(result.structured_content) == {"temperature", "conditions", "humidity", "wind"}
