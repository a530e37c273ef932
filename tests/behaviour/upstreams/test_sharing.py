"""Many callers of one child process: answers, progress, questions and logs reach the right caller, or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult

from tests.support.child_specs import child
from tests.support.running_relay import RunningRelay
from tests.support.upstream_relays import MODES, busy, client, named, text


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, specs=[child("shared", is_shared=True)]) as relay:
        await relay.has_read("shared")  # the relay's own calls count too
        yield relay


async def test_answers_of_calls_that_overlap_are_not_mixed_up(relay: RunningRelay) -> None:
    async def one(number: int) -> bool:
        async with client(relay, "shared", MODES[number % 2]) as caller:
            words = [await text(caller, "echo", n=number, step=step) for step in range(10)]
        return words == [f'{{"n": {number}, "step": {step}}}' for step in range(10)]

    assert all(await asyncio.gather(*(one(number) for number in range(8))))


async def test_the_same_progress_token_of_two_callers_is_two(relay: RunningRelay) -> None:
    """Clients number their tokens from the same start."""

    async def one(word: str) -> set[str | None]:
        seen: set[str | None] = set()

        async def receive(progress: float, total: float | None, message: str | None) -> None:
            seen.add(message)

        async with client(relay, "shared", "legacy") as caller:
            for _ in range(10):
                await caller.call_tool("progress", {"word": word}, progress_callback=receive)
        return seen

    words = [f"word-{number}" for number in range(6)]
    assert await asyncio.gather(*map(one, words)) == [{word} for word in words]


async def test_a_question_waits_until_its_caller_is_known(relay: RunningRelay) -> None:
    """Two callers have calls in flight, and one of the calls asked: when the other call ends, the asker is known."""
    async with client(relay, "shared", "legacy") as other, client(relay, "shared", "legacy", **named("Ada")) as one:
        slow = asyncio.create_task(text(other, "slow"))
        await busy(relay, 1)
        asked = asyncio.create_task(text(one, "ask"))
        await busy(relay, 2)
        assert not asked.done()
        async with client(relay, "shared", "legacy") as third:
            # A call that began later can't be the one that asked.
            await text(third, "release")
        assert await slow == "released"
        assert await asked == "Ada"


async def test_an_ambiguous_question_is_asked_to_neither_caller(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabrelay.peers.upstreams.connection.ATTRIBUTE_S", 0.2)
    asked: list[str] = []

    def user(name: str) -> dict[str, Any]:
        async def elicit(context: object, params: object) -> ElicitResult:
            asked.append(name)
            return ElicitResult(action="accept", content={"name": name})

        return {"elicitation_callback": elicit}

    async with (
        client(relay, "shared", "legacy", **user("other")) as other,
        client(relay, "shared", "2026-07-28", **user("one")) as one,
    ):
        slow = asyncio.create_task(text(other, "slow"))
        await busy(relay, 1)
        assert "No client can be asked" in await text(one, "ask")
        await text(one, "release")
        assert await slow == "released"
    assert asked == []


async def test_what_is_logged_while_two_callers_work_is_given_to_neither(relay: RunningRelay) -> None:
    received: list[Any] = []

    async def log(params: Any) -> None:
        received.append(params.data)

    async with client(relay, "shared", "legacy", logging_callback=log) as one:
        async with client(relay, "shared", "legacy", logging_callback=log) as other:
            slow = asyncio.create_task(text(other, "slow"))
            await busy(relay, 1)
            await text(one, "log", word="whose?")
            await text(one, "release")
            await slow
        await text(one, "log", word="mine")
    assert received == ["mine"]


async def test_a_caller_that_leaves_ends_its_calls(relay: RunningRelay) -> None:
    _, headers = await relay.initialize("shared")
    body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}
    slow = asyncio.create_task(relay.http.post("/shared", json=body, headers=headers))
    await busy(relay, 1)
    assert (await relay.http.delete("/shared", headers=headers)).status_code == 204
    await busy(relay, 0)
    assert (await slow).json()["error"]["data"]["reason"] == "session_not_found"
    assert (await relay.call("shared", "release")).json()["result"]["content"][0]["text"] != "[]"


async def test_more_calls_than_a_server_may_have_are_refused(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("shared")], in_flight_server=2) as relay:
        await relay.has_read("shared")
        slow = [asyncio.create_task(relay.call("shared", "slow")) for _ in range(2)]
        await busy(relay, 2)
        error = (await relay.call("shared", "echo")).json()["error"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == ("busy", "no")
        for task in slow:
            task.cancel()
