"""The errors that callers see, with their real causes, in every client of the matrix.

HTTP 200 carries code and data; other statuses carry a text, as far as the client shows it. All clients meet one cause
at the same time, because most causes take longer to produce than a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.clients.clients import CLIENTS, BridgeClient, Failure, McpClient, Outcome
from tests.behaviour.clients.tools import NAMES, Tools
from tests.support.chaos_proxy import ChaosProxy
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay

INSPECTORS = ("inspector-legacy", "inspector-modern")


@asynccontextmanager
async def all_clients(relay: RunningRelay) -> AsyncIterator[dict[str, BridgeClient]]:
    """Every client, connected. (The Inspector and curl connect with each command.)

    Assert outside: an exception raised inside is wrapped in a group for each client.
    """
    async with AsyncExitStack() as stack:
        talks = {}
        for client in CLIENTS:
            talk = await stack.enter_async_context(client.connect(f"{relay.url}/notes", relay.token))
            talks[client.name] = talk
        yield talks


async def call_all(talks: dict[str, BridgeClient], tool: str, **arguments: Any) -> dict[str, Outcome]:
    found = await asyncio.gather(*(talk.call(tool, **arguments) for talk in talks.values()))
    return dict(zip(talks, found, strict=True))


def check(outcomes: dict[str, Outcome], code: int, words: str, **data: Any) -> None:
    """Check code and data. The Inspector shows only the message."""
    assert len(outcomes) == len(CLIENTS)
    for name, outcome in outcomes.items():
        if name in INSPECTORS:
            assert words in outcome["failure"].replace("\\", ""), (name, outcome)
            continue
        error = outcome.get("error", outcome)
        assert (error.get("code"), error.get("data")) == (code, data), (name, outcome)
        assert words in error["message"], (name, outcome)


@pytest.mark.requirement("errors")
async def test_a_browser_that_leaves_in_the_middle_of_a_call_and_does_not_come_back(tmp_path: Path) -> None:
    tools = Tools()
    async with RunningRelay(tmp_path, grace_s=0.3) as relay, AsyncExitStack() as browser:
        worker = CPythonWorker(relay.url, relay.token, "notes", tools)
        await browser.enter_async_context(worker)
        async with all_clients(relay) as talks:
            calling = asyncio.create_task(call_all(talks, "hang"))
            await tools.until(lambda: tools.hanging == len(CLIENTS))
            await browser.aclose()
            outcomes = await calling
    words = 'The browser that offers "notes" left while it had the call'
    told = {"reason": "browser_gone", "delivered": "unknown", "retryable": False, "server": "notes", "help": "TR102"}
    check(outcomes, -31011, words, **told)


@pytest.mark.requirement("errors")
async def test_a_call_that_takes_too_long(tmp_path: Path) -> None:
    tools = Tools()
    async with (
        RunningRelay(tmp_path, call_deadline_s=1.0) as relay,
        CPythonWorker(relay.url, relay.token, "notes", tools),
        all_clients(relay) as talks,
    ):
        outcomes = await call_all(talks, "hang")
        # The calls were cancelled at the browser.
        await tools.until(lambda: tools.cancelled == len(CLIENTS))
    told = {"reason": "timeout", "delivered": "unknown", "retryable": False, "server": "notes", "help": "TR103"}
    check(outcomes, -31012, 'did not answer "tools/call" within 1 s', **told)


@pytest.mark.requirement("errors")
async def test_a_server_that_has_as_many_calls_as_it_may(tmp_path: Path) -> None:
    tools = Tools()
    async with (
        RunningRelay(tmp_path, in_flight_server=1) as relay,
        CPythonWorker(relay.url, relay.token, "notes", tools),
    ):
        await relay.has_read("notes")
        holding = asyncio.create_task(relay.call("notes", "hang"))
        await tools.until(lambda: tools.hanging == 1)
        # New clients can still connect and list, in their own era: discovery does not count as a call.
        async with all_clients(relay) as talks:
            listed = [await talk.tools() for talk in talks.values()]
            outcomes = await call_all(talks, "echo")
        holding.cancel()
    assert listed == [NAMES] * len(CLIENTS)
    told = {
        "reason": "busy",
        "delivered": "no",
        "retryable": True,
        "server": "notes",
        "retry_after_ms": 1000,
        "help": "TR104",
    }
    # The discovery of another client may be counted at that moment too.
    check(outcomes, -31013, "calls in flight already. Try again in a moment.", **told)


@pytest.mark.requirement("errors")
async def test_a_result_that_is_too_large(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, max_message=100_000, max_part=50_000) as relay,
        CPythonWorker(relay.url, relay.token, "notes", Tools()),
        all_clients(relay) as talks,
    ):
        outcomes = await call_all(talks, "big")
        after = await call_all(talks, "echo", text="after")
    told = {
        "reason": "result_too_large",
        "delivered": "unknown",
        "retryable": False,
        "server": "notes",
        "help": "TR105",
    }
    check(outcomes, -31014, "The result is too large", **told)
    assert {outcome["text"] for outcome in after.values()} == {"after"}


@pytest.mark.requirement("errors")
async def test_a_relay_that_is_about_to_stop(tmp_path: Path) -> None:
    tools = Tools()
    async with (
        RunningRelay(tmp_path) as relay,
        CPythonWorker(relay.url, relay.token, "notes", tools),
        all_clients(relay) as talks,
    ):
        holding = asyncio.create_task(relay.call("notes", "hang"))
        await tools.until(lambda: tools.hanging == 1)
        draining = asyncio.create_task(relay.drain.run())
        outcomes = await call_all(talks, "echo")
        holding.cancel()
        await draining
    # Its stream was its session, which has ended.
    assert "The relay is stopping" in outcomes["typescript-v1-sse"]["failure"]
    outcomes["typescript-v1-sse"] = outcomes["typescript-v1-legacy"]
    told = {"reason": "relay_unavailable", "delivered": "no", "retryable": True, "server": "notes", "help": "TR106"}
    check(outcomes, -31015, "The relay is stopping", **told, retry_after_ms=2000)


@pytest.mark.requirement("errors")
async def test_a_tool_that_raises_and_a_tool_that_is_not_there(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path) as relay,
        CPythonWorker(relay.url, relay.token, "notes", Tools()),
        all_clients(relay) as talks,
    ):
        raised = await call_all(talks, "fail")
        unknown = await call_all(talks, "ecko")
    for name, outcome in raised.items():
        if name in INSPECTORS:
            assert "ValueError: the milk is sour" in outcome["failure"]
        else:
            assert (outcome["text"], outcome["is_error"]) == ("ValueError: the milk is sour", True)
    for name in INSPECTORS:  # it reads the list first, and has its own message
        assert "Tool 'ecko' not found" in unknown[name]["failure"]
        unknown[name] = {"failure": 'Unknown tool "ecko". Did you mean "echo"?'}
    told = {"reason": "invalid_params", "delivered": "no", "retryable": False, "server": "notes", "help": "TR143"}
    check(unknown, -32602, 'Unknown tool "ecko". Did you mean "echo"?', **told)


# -- refused before the call: the text that a user reads ---------------------------------------------------------------

# Clients that replace the server's message, with their replacements.
OWN_WORDS = {
    ("unknown", "typescript-v1-sse"): "Non-200 status code (404)",
    ("unknown", "inspector-modern"): "did not offer pinned protocol version",
    ("unauthorized", "typescript-v1-sse"): "Non-200 status code (401)",
    ("unauthorized", "typescript-v2-auto"): "the server requires authorization (HTTP 401)",
    ("unauthorized", "inspector-legacy"): "auth_required",
    ("unauthorized", "inspector-modern"): "auth_required",
    ("forbidden", "typescript-v1-sse"): "Non-200 status code (403)",
    ("forbidden", "typescript-v2-legacy"): 'Insufficient scope: required "call"',
    ("forbidden", "typescript-v2-auto"): 'Insufficient scope: required "call"',
    ("forbidden", "inspector-legacy"): 'Insufficient scope: required "call"',
    ("forbidden", "inspector-modern"): 'Insufficient scope: required "call"',
    ("host", "typescript-v1-sse"): "Non-200 status code (421)",
    ("too often", "inspector-modern"): "did not offer pinned protocol version",
    ("host", "inspector-modern"): "did not offer pinned protocol version",
}


async def read_by(client: McpClient, url: str, token: str, **arguments: Any) -> str:
    """The text that a user reads after trying to call a tool."""
    try:
        async with client.connect(url, token) as talk:
            outcome = await talk.call("echo", **arguments)
    except Failure as failure:
        return str(failure)
    assert "text" not in outcome, (client.name, outcome)
    return str(outcome["error"]["message"] if "error" in outcome else outcome["failure"])


async def check_words(row: str, words: str, url: str, token: str, **arguments: Any) -> None:
    read = await asyncio.gather(*(read_by(client, url, token, **arguments) for client in CLIENTS))
    for client, text in zip(CLIENTS, read, strict=True):
        assert OWN_WORDS.get((row, client.name), words) in text.replace("\\", ""), (client.name, text)


@pytest.mark.requirement("errors")
async def test_refusals_are_read_in_words(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, max_body=4000) as relay,
        CPythonWorker(relay.url, relay.token, "notes", Tools()),
        ChaosProxy() as stranger,
    ):
        await relay.has_read("notes")
        url = f"{relay.url}/notes"
        await check_words("unknown", "serve unknown", f"{relay.url}/unknown", relay.token)
        await check_words("unauthorized", "`tabrelay token` prints it", url, "tr_" + "x" * 43)
        await check_words("forbidden", 'and "call" is needed', url, relay.tokens.issue_for_page(None, None, ("serve",)))
        await check_words("too large", "The body is larger than 4,000 bytes", url, relay.token, text="x" * 5000)
        # An address outside the relay's list of hosts, as behind a forwarded port.
        stranger.target = ("127.0.0.1", relay.port)
        await check_words("host", "allow-host", f"{stranger.origin}/notes", relay.token)


@pytest.mark.requirement("errors")
async def test_a_token_that_asks_too_often(tmp_path: Path) -> None:
    """The limit is reached after the clients have connected; a command of the Inspector connects first."""
    async with (
        RunningRelay(tmp_path, rate_s=0.001, rate_burst=200) as relay,
        CPythonWorker(relay.url, relay.token, "notes", Tools()),
        all_clients(relay) as talks,
    ):
        while (last := await relay.http.post("/notes", **relay.modern("tools/list"))).status_code == 200:
            pass
        outcomes = await call_all(talks, "echo")
    assert (last.status_code, int(last.headers["retry-after"]) > 0) == (429, True)
    error = last.json()["error"]
    wait_ms = error["data"].pop("retry_after_ms")
    told = {"reason": "rate_limited", "delivered": "no", "retryable": True, "server": "notes", "help": "TR203"}
    assert (error["code"], error["data"], wait_ms > 0) == (-31013, told, True)
    for name, outcome in outcomes.items():
        text = outcome["error"]["message"] if "error" in outcome else outcome.get("failure", "")
        words = OWN_WORDS.get(("too often", name), "Too many requests with this token. Try again in")
        assert words in text, (name, outcome)
