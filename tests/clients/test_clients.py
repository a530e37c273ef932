"""The client matrix: whatever client somebody has, it works. The browser's own Python answers, without a browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabserver import Context
from tabserver.toolbox import Toolbox, tool
from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.clients.clients import CLIENTS, INSPECTORS, McpClient
from tests.support.cpython_worker import CPythonWorker
from tests.support.relay import ACCEPT, RunningRelay, events, modern
from tests.support.worker import SyntheticWorker

EVERY = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
INSPECTOR = pytest.mark.parametrize("client", INSPECTORS, ids=lambda client: client.name)


class Tools(Toolbox):
    """Three tools, and a note of who was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = asyncio.Event()

        @tool(toolbox=self)
        def echo(text: str = "") -> str:
            """Say it again."""
            return text

        @tool(toolbox=self)
        async def steps(context: Context) -> str:
            """Take three steps."""
            for step in (1, 2, 3):
                context.progress(step, 3)
                # The TypeScript clients lose progress that comes in one piece with the answer.
                await asyncio.sleep(0.02)
            return "done"

        @tool(toolbox=self)
        async def hang(context: Context) -> str:
            """Run until cancelled."""
            context.progress(1)
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.3, grace_s=0.2) as relay:
        yield relay


def url(relay: RunningRelay) -> str:
    return f"{relay.url}/notes"


@EVERY
@pytest.mark.requirement("client-matrix")
async def test_a_client_lists_calls_hears_of_progress_and_cancels(relay: RunningRelay, client: McpClient) -> None:
    tools = Tools()
    async with CPythonWorker(relay.url, relay.token, "notes", tools):
        outcome = await client.work(url(relay), relay.token)
        assert outcome == {
            "version": client.version,
            "tools": ["echo", "steps", "hang"],
            "text": "hello",
            "progress": [1, 2, 3],
            "cancelled": True,
            "after": "after",
        }
        async with asyncio.timeout(10):
            await tools.cancelled.wait()


@INSPECTOR
@pytest.mark.requirement("client-matrix")
async def test_the_inspector_lists_and_calls(relay: RunningRelay, client: McpClient) -> None:
    async with CPythonWorker(relay.url, relay.token, "notes", Tools()):
        outcome = await client.work(url(relay), relay.token)
        assert outcome == {"tools": ["echo", "steps", "hang"], "text": "hello"}


@EVERY
@pytest.mark.requirement("client-matrix")
async def test_while_the_browser_is_away_a_client_stays_in_its_era_and_is_told(
    relay: RunningRelay, client: McpClient
) -> None:
    async with CPythonWorker(relay.url, relay.token, "notes", Tools()):
        await relay.has_read("notes")
    outcome = await client.call(url(relay), relay.token, "echo")
    assert outcome["version"] == client.version
    assert outcome["tools"] == ["echo", "steps", "hang"]
    assert outcome["error"]["code"] == -31010
    assert 'Server "notes" is not connected' in outcome["error"]["message"]
    data = outcome["error"]["data"]
    assert (data["reason"], data["delivered"], data["retryable"]) == ("server_offline", "no", True)


@INSPECTOR
@pytest.mark.requirement("client-matrix")
async def test_the_inspector_says_that_the_browser_is_away(relay: RunningRelay, client: McpClient) -> None:
    async with CPythonWorker(relay.url, relay.token, "notes", Tools()):
        await relay.has_read("notes")
    outcome = await client.call(url(relay), relay.token, "echo")
    assert outcome["tools"] == ["echo", "steps", "hang"]
    assert 'Server "notes" is not connected' in outcome["failure"].replace("\\", "")


class Misbehaving:
    """What a browser does wrong, by the name of the error that a caller must get for it."""

    @staticmethod
    def bad_answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.say(event, Kind.RES, '{"jsonrpc":"2.0","id":"another","result":{}}')

    @staticmethod
    def timeout(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        """Never answers."""

    @staticmethod
    def browser_gone(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        worker.link.close(event.channel, "the tab crashed", asyncio.get_running_loop().time())

    @staticmethod
    def busy(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        """The browser's own limit; the relay's has the same code and data."""
        data = {"reason": "busy", "delivered": "no", "retryable": True, "server": "notes"}
        worker.send(event, Kind.RES, jsonrpc.error_message(message["id"], -31013, "64 calls are running", data))


ROWS = {
    "bad_answer": (-32603, "unknown", False),
    "timeout": (-31012, "unknown", False),
    "browser_gone": (-31011, "unknown", False),
    "busy": (-31013, "no", True),
}


@pytest.mark.parametrize("reason", ROWS)
@EVERY
@pytest.mark.requirement("errors")
async def test_code_and_data_of_every_error_arrive(tmp_path: Path, client: McpClient, reason: str) -> None:
    deadline_s = 0.5 if reason == "timeout" else 60
    async with (
        RunningRelay(tmp_path, call_deadline_s=deadline_s, in_flight_server=8) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        await relay.has_read("notes")
        worker.on_call = getattr(Misbehaving, reason)
        outcome = await client.call(url(relay), relay.token, "echo")
    error = outcome["error"]
    assert (error["code"], error["data"]["delivered"], error["data"]["retryable"]) == ROWS[reason]
    assert error["data"]["reason"] == reason


@pytest.mark.parametrize("client", (*CLIENTS, *INSPECTORS), ids=lambda client: client.name)
@pytest.mark.requirement("errors")
async def test_an_unknown_name_and_a_wrong_token_are_told_in_words(relay: RunningRelay, client: McpClient) -> None:
    unknown = json.dumps(await client.call(f"{relay.url}/nobody", relay.token, "echo"))
    # A client that insists on an era says only that it was not offered.
    assert any(word in unknown for word in ("tabrelay serve nobody", "404", "Version negotiation failed")), unknown
    stranger = json.dumps(await client.call(f"{relay.url}/nobody", "tr_" + "x" * 43, "echo"))
    assert any(word in stranger for word in ("tabrelay token", "401", "nauthorized", "auth_required")), stranger


# -- by hand ----------------------------------------------------------------------------------------------------------


async def curl(relay: RunningRelay, request: dict[str, Any], *flags: str) -> asyncio.subprocess.Process:
    """One modern request, as somebody types it."""
    headers = {"Authorization": f"Bearer {relay.token}", "Accept": ACCEPT, "Content-Type": "application/json"}
    lines = [part for name, value in (headers | request["headers"]).items() for part in ("-H", f"{name}: {value}")]
    return await asyncio.create_subprocess_exec(
        "curl",
        *("-sSN", "--noproxy", "*", *flags, *lines, "-d", json.dumps(request["json"]), url(relay)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def said(process: asyncio.subprocess.Process) -> str:
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode()


@pytest.mark.requirement("client-matrix")
async def test_curl_is_enough(relay: RunningRelay) -> None:
    tools = Tools()
    token = {"_meta": {"progressToken": "t"}}
    async with CPythonWorker(relay.url, relay.token, "notes", tools):
        await relay.has_read("notes")
        listed = json.loads(await said(await curl(relay, modern("tools/list"))))
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["echo", "steps", "hang"]
        echo = modern("tools/call", {"name": "echo", "arguments": {"text": "hello"}})
        assert json.loads(await said(await curl(relay, echo)))["result"]["content"][0]["text"] == "hello"
        stream = await said(await curl(relay, modern("tools/call", {"name": "steps", **token})))
        messages = [json.loads(data) for data in events(stream)]
        assert [message["params"]["progress"] for message in messages[:-1]] == [1, 2, 3]
        hanging = await curl(relay, modern("tools/call", {"name": "hang", **token}))
        assert hanging.stdout is not None
        async with asyncio.timeout(10):
            assert b"event: message" in await hanging.stdout.readline()
        hanging.terminate()
        await hanging.communicate()
        async with asyncio.timeout(10):
            await tools.cancelled.wait()
    error = json.loads(await said(await curl(relay, echo, "--fail-with-body")))["error"]
    assert (error["code"], error["data"]["reason"]) == (-31010, "server_offline")
