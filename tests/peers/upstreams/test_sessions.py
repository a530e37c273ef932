"""Clients that can be asked get a separate session with a server of the handshake era."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.specs import StdioSpec
from tabrelay.peers.upstreams import pool, sessions
from tests.support import waiting
from tests.support.child_specs import CHILD, child, is_alive, until
from tests.support.running_relay import RunningRelay
from tests.support.upstream_relays import MODES, busy, client, named, text


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, specs=[child("kept")]) as relay:
        await relay.has_read("kept")
        yield relay


async def count(relay: RunningRelay, server: str = "kept") -> int:
    """The number of the relay's sessions with a server, from its status."""
    servers = (await relay.http.get("/-/status")).json()["servers"]
    return next(int(row["sessions"]) for row in servers if row["name"] == server)


@pytest.mark.parametrize("mode", MODES)
async def test_two_callers_that_are_asked_at_the_same_time_each_answer_for_themselves(
    relay: RunningRelay, mode: str
) -> None:
    """The same client twice: one process, and a question on the pipe does not name its call."""
    async with client(relay, "kept", mode, **named("Ada")) as ada, client(relay, "kept", mode, **named("Bob")) as bob:
        for _ in range(3):
            assert await asyncio.gather(*(text(one, "ask") for one in (ada, bob))) == ["Ada", "Bob"]
        assert await text(ada, "pid") == await text(bob, "pid")
    assert await count(relay) == 2


async def test_clients_of_both_eras_are_asked_at_the_same_time(relay: RunningRelay) -> None:
    async with (
        client(relay, "kept", "legacy", **named("Ada")) as ada,
        client(relay, "kept", "2026-07-28", **named("Bob")) as bob,
    ):
        assert await asyncio.gather(*(text(one, "ask") for one in (ada, bob, ada, bob))) == ["Ada", "Bob"] * 2


async def test_a_server_receives_the_name_and_capabilities_of_its_client(relay: RunningRelay) -> None:
    async with client(relay, "kept", "2026-07-28", **named("Ada")) as ada, client(relay, "kept", "legacy") as mute:
        told = json.loads(await text(ada, "introduction"))
        assert told["capabilities"].keys() == {"elicitation"}
        assert told["clientInfo"]["name"] != "tabrelay"
        told = json.loads(await text(mute, "introduction"))
        assert (told["capabilities"], told["clientInfo"]["name"]) == ({}, "tabrelay")


async def test_those_that_can_not_be_asked_share_a_session(relay: RunningRelay) -> None:
    async with client(relay, "kept", "legacy") as one, client(relay, "kept", "2026-07-28") as other:
        assert await text(one, "pid") == await text(other, "pid")
    assert await count(relay) == 1


async def test_calls_that_wait_for_their_clients_answer_have_a_bound_and_a_deadline(tmp_path: Path) -> None:
    able: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}

    async def asked(relay: RunningRelay) -> bool:
        """Is the client of one more call asked, or its server refused?"""
        result = (await relay.call("kept", "ask", _meta=able)).json()["result"]
        return bool(result["resultType"] == "input_required")

    specs = [child("kept", is_shared=True)]
    async with RunningRelay(tmp_path / "one", specs=specs, park_caller=1) as relay:
        await relay.has_read("kept")
        assert await asked(relay) and not await asked(relay)
    async with RunningRelay(tmp_path / "other", specs=specs, park_caller=1, park_s=0.2) as relay:
        await relay.has_read("kept")
        assert await asked(relay)
        await waiting.until(lambda: asked(relay))


async def test_a_shared_server_has_one_process_and_its_callers_are_still_distinguished(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("one", is_shared=True)]) as relay:
        await relay.has_read("one")
        async with (
            client(relay, "one", "legacy", **named("Ada")) as ada,
            client(relay, "one", "2026-07-28", **named("Bob")) as bob,
            client(relay, "one", "legacy") as mute,
        ):
            assert await asyncio.gather(*(text(one, "ask") for one in (ada, bob))) == ["Ada", "Bob"]
            assert len({await text(one, "pid") for one in (ada, bob, mute)}) == 1
            # To the server, all clients can be asked; the relay answers for one that can't.
            assert "can't do elicitation/create" in await text(mute, "ask")
        assert await count(relay, "one") == 1


async def test_a_server_that_can_not_be_started_twice_is_used_by_all(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    once = f"os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL)"
    code = f"import os, runpy; {once}; runpy.run_path({str(CHILD)!r}, run_name='__main__')"
    spec = StdioSpec("one", sys.executable, ("-I", "-S", "-c", code, "legacy"))
    async with RunningRelay(tmp_path / "home", specs=[spec]) as relay:
        await relay.has_read("one")
        for mode in MODES:
            async with client(relay, "one", mode, **named("Ada")) as ada:
                assert await text(ada, "echo", n=1) == '{"n": 1}'
        assert await count(relay, "one") == 1


async def test_more_sessions_than_a_server_may_have_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle sessions make room; if there is none, the first one is shared."""
    monkeypatch.setattr(pool, "MAX_CHILDREN", 1)
    async with RunningRelay(tmp_path, specs=[child("few")]) as relay:
        await relay.has_read("few")
        first = await ask(relay, "few", "a", "pid")
        second = await ask(relay, "few", "b", "pid")
        assert first != second
        await until(lambda: not is_alive(int(first)))
        slow = asyncio.create_task(ask(relay, "few", "b", "slow"))
        await busy(relay, 1)
        assert await ask(relay, "few", "c", "pid") not in (first, second)
        assert is_alive(int(second))
        await ask(relay, "few", "b", "release")
        assert await slow == "released"


async def test_a_session_that_is_not_used_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "IDLE_S", 0.0)
    monkeypatch.setattr(sessions, "SWEEP_S", 0.05)
    async with RunningRelay(tmp_path, specs=[child("kept")]) as relay:
        await relay.has_read("kept")
        async with client(relay, "kept", "legacy", **named("Ada")) as ada:
            pid = int(await text(ada, "pid"))
            gone = int(await ask(relay, "kept", "other", "pid"))
            await until(lambda: not is_alive(gone))
            assert is_alive(pid)  # its client is still connected
        await until(lambda: not is_alive(pid))
        async with client(relay, "kept", "legacy", **named("Ada")) as ada:
            assert await text(ada, "ask") == "Ada"


async def test_a_session_that_is_lost_is_made_again_and_touches_no_other(relay: RunningRelay) -> None:
    async with client(relay, "kept", "2026-07-28") as mute, client(relay, "kept", "2026-07-28", **named("Ada")) as ada:
        shared = await text(mute, "pid")
        lost = await ask(relay, "kept", "other", "die")
        assert "lost" in lost
        assert await text(ada, "ask") == "Ada"
        assert await text(mute, "pid") == shared
        assert await ask(relay, "kept", "other", "echo") == "{}"


async def test_no_session_outlives_the_relay(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("kept")]) as relay:
        await relay.has_read("kept")
        pids = [int(await ask(relay, "kept", name, "pid")) for name in ("a", "b", "c")]
    assert len(set(pids)) == 3
    await until(lambda: not any(map(is_alive, pids)))


async def ask(relay: RunningRelay, server: str, name: str, tool: str) -> str:
    """A modern call of a client with this name, which can be asked for names."""
    prefix = "io.modelcontextprotocol/"
    meta: dict[str, Any] = {
        f"{prefix}clientInfo": {"name": name, "version": "1"},
        f"{prefix}clientCapabilities": {"elicitation": {}},
    }
    answer = (await relay.call(server, tool, _meta=meta)).json()
    if "error" in answer:
        return str(answer["error"]["message"])
    return str(answer["result"]["content"][0]["text"])
