"""Log messages that a server sends outside of any call: for all sessions, at the level of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.child_specs import child
from tests.support.running_relay import RunningRelay
from tests.support.upstream_relays import busy, client, text
from tests.support.waiting import until

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
