"""Large request bodies: their share of the budget, and how many are parsed at a time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tabrelay.config.settings import Settings
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.faces.mcp.body import LARGE, PARSED_AT_ONCE, BodyReader
from tabrelay.http.exchange import Exchange
from tests.support.waiting import BOUND_S

BODY = json.dumps({"text": "x" * (2 * LARGE)}).encode()


def exchange_with(body: bytes) -> Exchange:
    """A request whose body arrives in two pieces."""
    pieces = [body[:LARGE], body[LARGE:]]

    async def receive() -> dict[str, Any]:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    return Exchange({"type": "http", "method": "POST", "headers": []}, receive, send)


async def test_large_bodies_count_until_their_message_is_handed_over_and_few_are_parsed_at_a_time(
    tmp_path: Path,
) -> None:
    reader = BodyReader(Settings(home=tmp_path), AcpSessions())
    tasks = [asyncio.create_task(reader.read(exchange_with(BODY))) for _ in range(3 * PARSED_AT_ONCE)]
    before = 0
    async with asyncio.timeout(BOUND_S):
        while before < len(tasks):
            await asyncio.sleep(0)
            done = sum(task.done() for task in tasks)
            assert reader.budget.used == (len(tasks) - done) * len(BODY)
            assert done - before <= PARSED_AT_ONCE
            before = done
    assert [len(task.result()["text"]) for task in tasks] == [2 * LARGE] * len(tasks)


async def test_a_large_body_that_is_refused_makes_room_for_the_next(tmp_path: Path) -> None:
    reader = BodyReader(Settings(home=tmp_path), AcpSessions())
    broken = BODY[:-2]
    tasks = [asyncio.create_task(reader.read(exchange_with(broken))) for _ in range(2 * PARSED_AT_ONCE)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, Exception) for outcome in outcomes)
    assert reader.budget.used == 0
    assert await reader.read(exchange_with(BODY)) == json.loads(BODY)
