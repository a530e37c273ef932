"""Clients of every era at servers of every era, with the official client and a real server process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from mcp_types import Request, Result
from pydantic import ConfigDict

from tabserver.wire.extensions import APPS
from tests.support.child_specs import child
from tests.support.running_relay import RunningRelay
from tests.support.upstream_relays import MODES, client, named, text
from tests.support.waiting import BOUND_S, pause

ERAS = ("legacy", "modern")


class AnyRequest(Request[dict[str, Any], str]):
    """A request of an extension."""


class AnyResult(Result):
    """A result of an extension, with all its members."""

    model_config = ConfigDict(extra="allow")


everywhere = pytest.mark.parametrize(("mode", "era"), [(mode, era) for mode in MODES for era in ERAS])


@pytest.fixture(scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningRelay]:
    specs = [child(era, era) for era in ERAS]
    async with RunningRelay(tmp_path_factory.mktemp("home"), specs=specs) as relay:
        yield relay


@everywhere
async def test_a_client_lists_and_calls(relay: RunningRelay, mode: str, era: str) -> None:
    async with client(relay, era, mode) as one:
        assert one.protocol_version == ("2025-11-25" if mode == "legacy" else mode)
        names = [tool.name for tool in (await one.list_tools()).tools]
        assert names == sorted(names) and "echo" in names
        assert await text(one, "echo", word="hi") == '{"word": "hi"}'


@everywhere
async def test_tools_for_apps_are_listed_for_clients_that_show_apps(relay: RunningRelay, mode: str, era: str) -> None:
    for more, is_listed in (({}, False), ({"extensions": [advertise(APPS)]}, True)):
        async with client(relay, era, mode, **more) as one:
            names = [tool.name for tool in (await one.list_tools()).tools]
            assert ("for_page" in names) is is_listed and "echo" in names
            assert await text(one, "for_page") == "for_page"


@everywhere
async def test_an_error_of_the_server_is_passed_on(relay: RunningRelay, mode: str, era: str) -> None:
    async with client(relay, era, mode) as one:
        with pytest.raises(MCPError, match="Unknown tool: nothing") as raised:
            await one.call_tool("nothing", {})
        assert raised.value.code == -32602


@everywhere
async def test_a_method_that_the_server_does_not_know_is_an_error_of_its(
    relay: RunningRelay, mode: str, era: str
) -> None:
    async with client(relay, era, mode) as one:
        with pytest.raises(MCPError) as raised:
            await one.list_prompts()
        assert raised.value.code == -32601


@everywhere
async def test_progress_reaches_its_call(relay: RunningRelay, mode: str, era: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def receive(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async with client(relay, era, mode) as one:
        await one.call_tool("progress", {"word": "on"}, progress_callback=receive)
    assert seen == [(1, "on"), (2, "on")]


@everywhere
async def test_a_question_in_the_middle_of_a_call_is_asked_and_answered(
    relay: RunningRelay, mode: str, era: str
) -> None:
    async with client(relay, era, mode, **named("Ada")) as one:
        assert await text(one, "ask") == "Ada"


@everywhere
async def test_a_client_that_cannot_be_asked_is_not(relay: RunningRelay, mode: str, era: str) -> None:
    async with client(relay, era, mode) as one:
        try:
            answer = await text(one, "ask")
        except MCPError as error:
            answer = error.message
        assert "can't" in answer or "not support" in answer or "InputRequired" in answer or "elicitation" in answer


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@everywhere
async def test_a_log_message_reaches_the_caller_who_wants_it(relay: RunningRelay, mode: str, era: str) -> None:
    seen: list[Any] = []

    async def receive(params: Any) -> None:
        seen.append((params.level, params.data))

    level = {"log_level": "info"} if mode != "legacy" else {}
    async with client(relay, era, mode, logging_callback=receive, **level) as one:
        if mode == "legacy":
            await one.set_logging_level("info")
        await one.call_tool("log", {"word": "loud"})
        await one.call_tool("log", {"word": "quiet", "level": "debug"})
        await one.call_tool("log", {"word": "louder", "level": "error"})
    # The modern server of these tests ignores the level.
    wanted = [entry for entry in seen if entry[1] != "quiet" or era == "legacy"]
    assert wanted == [("info", "loud"), ("error", "louder")]


@everywhere
async def test_listeners_are_notified_of_a_list_that_changed(relay: RunningRelay, mode: str, era: str) -> None:
    received = asyncio.Event()

    async def noticed(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            received.set()

    async with client(relay, era, mode, message_handler=noticed) as one:
        if mode == "legacy":
            await poke(one, received)
        else:
            async with one.listen(tools_list_changed=True) as changes:
                await text(one, "change")
                async with asyncio.timeout(BOUND_S):
                    await anext(aiter(changes))


async def poke(one: Client, received: asyncio.Event) -> None:
    """The stream of a session opens a moment after its handshake, and the relay subscribes a moment after that."""
    async with asyncio.timeout(BOUND_S):
        while not received.is_set():
            await text(one, "change")


@everywhere
async def test_a_cancelled_call_is_cancelled_at_the_server(relay: RunningRelay, mode: str, era: str) -> None:
    async with client(relay, era, mode) as one:
        slow = asyncio.create_task(one.call_tool("slow", {}))
        async with asyncio.timeout(BOUND_S):
            while not await in_flight(relay, era):
                await pause()
            slow.cancel()
            while await in_flight(relay, era):
                await pause()
        assert await text(one, "echo") == "{}"


async def in_flight(relay: RunningRelay, server: str) -> int:
    rows = (await relay.http.get("/-/status")).json()["servers"]
    return int(next(row["in_flight"] for row in rows if row["name"] == server))


@everywhere
async def test_skills_are_passed_on_with_their_digests(relay: RunningRelay, mode: str, era: str) -> None:
    async with client(relay, era, mode) as one:

        async def ask(method: str, **params: Any) -> dict[str, Any]:
            return (await one.session.send_request(AnyRequest(method=method, params=params), AnyResult)).model_dump()

        about = one.server_capabilities.model_dump() if mode == "legacy" else await ask("server/discover")
        declared = about.get("capabilities", about)["extensions"]
        assert declared["io.modelcontextprotocol/skills"] == {"directoryRead": True}
        [skill] = (await ask("skills/list"))["skills"]
        assert skill["frontmatter"]["name"] == "echoes" and skill["resources"][0]["digest"].startswith("sha256:")
        got = await ask("skills/get", uri=skill["uri"])
        assert got["skill"] == skill and (got.get("ttlMs") is not None) is (mode != "legacy")
        assert len((await ask("resources/directory/read", uri="skill://echoes"))["resources"]) == 1
        with pytest.raises(MCPError) as raised:
            await ask("skills/get", uri="skill://none/SKILL.md")
        assert raised.value.code == -32602
