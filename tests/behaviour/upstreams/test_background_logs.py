"""Log messages that a server sends outside of any call: for all sessions, at the level of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.specs import HttpSpec
from tests.peers.upstreams.transports.test_http import TOOL
from tests.support.child_specs import child
from tests.support.fake_upstream import Reply, Upstream, result
from tests.support.running_relay import RunningRelay
from tests.support.upstream_relays import busy, client, text
from tests.support.waiting import pause, until

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, specs=[child("shared", is_shared=True)]) as relay:
        await relay.has_read("shared")
        yield relay


class Log:
    """What one client received."""

    def __init__(self) -> None:
        self.data: list[str] = []

    async def receive(self, params: Any) -> None:
        self.data.append(params.data)


async def test_each_session_receives_what_its_level_includes(relay: RunningRelay) -> None:
    everything, warnings, errors, unset = (Log() for _ in range(4))
    async with (
        client(relay, "shared", "legacy", logging_callback=everything.receive) as one,
        client(relay, "shared", "legacy", logging_callback=warnings.receive) as two,
        client(relay, "shared", "legacy", logging_callback=errors.receive) as three,
        client(relay, "shared", "legacy", logging_callback=unset.receive),
    ):
        for session, level in ((one, "debug"), (two, "warning"), (three, "error")):
            await session.set_logging_level(level)  # type: ignore[arg-type]
        await text(one, "chatter")
        await until(lambda: len(everything.data) >= 6 and len(warnings.data) >= 3 and len(unset.data) >= 3)
    assert set(everything.data) == {"debug", "warning"}
    assert set(warnings.data) == set(unset.data) == {"warning"}
    assert errors.data == []


async def test_a_modern_client_receives_none_on_its_listen_stream(relay: RunningRelay) -> None:
    """In 2026-07-28 a log message is sent on the response stream of a request that set a level, and on no other."""
    session, modern = Log(), Log()
    async with (
        client(relay, "shared", "legacy", logging_callback=session.receive) as one,
        client(relay, "shared", "2026-07-28", logging_callback=modern.receive, log_level="debug") as other,
        other.listen(tools_list_changed=True),
    ):
        await text(one, "chatter")
        await until(lambda: len(session.data) >= 4)
    assert modern.data == []


async def test_while_calls_of_two_callers_run_no_session_receives_any(relay: RunningRelay) -> None:
    """A message could be that of either call, and would disclose it to the other caller."""
    log = Log()
    async with client(relay, "shared", "legacy", logging_callback=log.receive) as listener:
        async with client(relay, "shared", "legacy") as one, client(relay, "shared", "legacy") as other:
            slow = [asyncio.create_task(text(caller, "slow")) for caller in (one, other)]
            await busy(relay, 2)
            await text(one, "chatter")
            while json.loads(await text(one, "count"))["chatter"] < 5:
                pass
            before = len(log.data)
            await text(other, "release")
            await asyncio.gather(*slow)
        await until(lambda: len(log.data) > before)
        assert before == 0
        assert await text(listener, "echo") == "{}"


async def test_a_long_message_is_replaced_by_a_note(relay: RunningRelay) -> None:
    log = Log()
    async with client(relay, "shared", "legacy", logging_callback=log.receive) as one:
        await text(one, "chatter", size=20_000)
        await until(lambda: bool(log.data))
    assert set(log.data) == {"A log message of more than 16,384 characters was left out."}


async def test_an_http_server_sends_them_on_its_stream(tmp_path: Path) -> None:
    async def initialize(reply: Reply) -> None:
        about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "u", "version": "1"}}
        await reply.result({**about, "capabilities": {"tools": {}, "logging": {}}}, Mcp_Session_Id="s-1")

    async def stream(reply: Reply) -> None:
        await reply.stream()
        params = {"level": "warning", "data": "from afar"}
        while not reply.is_gone.is_set():  # a client that connects receives the next one
            await reply.event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
            await pause()

    on: dict[str, Any] = {"GET": stream, "initialize": initialize, "tools/list": result({"tools": [TOOL]})}
    async with Upstream(on) as server:
        spec = HttpSpec("far", server.url, era="legacy", is_shared=True)
        async with RunningRelay(tmp_path, specs=[spec]) as relay:
            await relay.has_read("far")
            one, two = Log(), Log()
            async with (
                client(relay, "far", "legacy", logging_callback=one.receive),
                client(relay, "far", "legacy", logging_callback=two.receive),
            ):
                await until(lambda: "from afar" in one.data and "from afar" in two.data)
