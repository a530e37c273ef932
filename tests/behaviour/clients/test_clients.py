"""The client matrix: every client works in its own era, against the worker's Python without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.behaviour.clients.clients import (
    BRIDGED,
    CLIENTS,
    LEGACY,
    MODERN,
    BridgeClient,
    InspectorTalk,
    McpClient,
    NodeTalk,
)
from tests.behaviour.clients.tools import NAMES, Tools
from tests.support.cpython_worker import CPythonWorker
from tests.support.recorder import Asked
from tests.support.running_relay import RunningRelay

EVERY = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)

BOTH_WAYS = pytest.mark.parametrize("client", (*CLIENTS, *BRIDGED), ids=lambda client: client.name)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.3, grace_s=0.2) as relay:
        yield relay


def check_era(asked: list[Asked], client: McpClient) -> None:
    """The era that a client really used: what it sent to the relay, not what it reports."""
    posts = [one for one in asked if one.verb == "POST"]
    assert posts, "it sent no request"
    if client.version == MODERN:
        assert {(one.envelope, one.header) for one in posts if one.method} == {(MODERN, MODERN)}
        assert "initialize" not in {one.method for one in posts}
        assert (len(posts), {one.session for one in asked}) == (len(asked), {False})
        return
    assert {one.envelope for one in asked} == {""}
    opened = [one for one in posts if one.method == "initialize"]
    assert opened and not any(one.session for one in opened if one.path == "/notes")
    rest = [one for one in asked if one.method != "initialize" and one.path == "/notes"]
    assert {(one.header, one.session) for one in rest} <= {(LEGACY, True)}
    is_pipe = client.name == "typescript-v1-sse"
    assert {one.path for one in asked} == ({"/notes/sse", "/notes/messages"} if is_pipe else {"/notes"})


async def steps(relay: RunningRelay, talk: BridgeClient) -> list[float]:
    """The progress of a call. The TypeScript clients lose progress that arrives together with the answer, which happens
    on a busy machine, so they may try again."""
    for _ in range(10):
        sent = relay.recorder.notes["notifications/progress"]
        stepped = await talk.call("steps")
        assert stepped["text"] == "done"
        assert relay.recorder.notes["notifications/progress"] == sent + 3
        if isinstance(talk, InspectorTalk):
            return [1, 2, 3]  # it can't display progress; the recorded stream has it before the result
        if stepped["progress"] == [1, 2, 3] or not isinstance(talk, NodeTalk):
            break
    return list(stepped["progress"])


@BOTH_WAYS
@pytest.mark.requirement("client-matrix")
async def test_a_client_lists_calls_receives_progress_and_cancels_in_its_own_era(
    relay: RunningRelay, client: McpClient
) -> None:
    tools = Tools()
    async with CPythonWorker(relay.url, relay.token, "notes", tools):
        await relay.has_read("notes")
        async with client.connect(f"{relay.url}/notes", relay.token) as talk:
            assert talk.version in (client.version, None)
            assert await talk.tools() == NAMES
            assert (await talk.call("echo", text="hello"))["text"] == "hello"
            assert await steps(relay, talk) == [1, 2, 3]
            assert await talk.cancel("hang")
            await tools.until(lambda: tools.cancelled > 0)
            assert (await talk.call("echo", text="after"))["text"] == "after"
    check_era(relay.recorder.asked, client)


@EVERY
@pytest.mark.requirement("client-matrix")
async def test_while_the_browser_is_away_a_client_stays_in_its_era_and_gets_an_error(
    relay: RunningRelay, client: McpClient
) -> None:
    async with CPythonWorker(relay.url, relay.token, "notes", Tools()):
        await relay.has_read("notes")
    async with client.connect(f"{relay.url}/notes", relay.token) as talk:
        assert talk.version in (client.version, None)
        assert await talk.tools() == NAMES
        outcome = await talk.call("echo")
    check_era(relay.recorder.asked, client)
    if "inspector" in client.name:
        assert 'Server "notes" is not connected' in outcome["failure"].replace("\\", "")
        return
    error = outcome["error"]
    assert error["code"] == -31010
    assert 'Server "notes" is not connected' in error["message"]
    told = {"reason": "server_offline", "delivered": "no", "retryable": True, "server": "notes", "help": "TR101"}
    assert error["data"] == told | {"retry_after_ms": 3000}


@pytest.mark.requirement("client-matrix")
async def test_a_modern_inspector_that_is_stopped_cancels_its_call(relay: RunningRelay) -> None:
    """Ctrl+C ends its process and its stream. In the handshake era that cancels nothing, because it sends no
    notification."""
    tools = Tools()
    async with CPythonWorker(relay.url, relay.token, "notes", tools):
        talk = InspectorTalk("modern", f"{relay.url}/notes", relay.token)
        calling = asyncio.create_task(talk.call("hang"))
        await tools.until(lambda: tools.hanging == 1)
        calling.cancel()
        await tools.until(lambda: tools.cancelled == 1)
