"""Requests that only the leader of a bus can answer, and their end when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tabrelay.bus.members import Membership
from tabrelay.faces.nodes.leader import LeaderProxy
from tabrelay.faces.nodes.node_requests import NodeRequests
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.waiting import BOUND_S, until


class HeldApplication:
    """An application that answers only when the test permits it."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.may_answer.wait()
        await PlainTextResponse("the answer of the eldest")(scope, receive, send)


class TwoNodes:
    """Two nodes on one bus. The first is the leader."""

    def __init__(self) -> None:
        self.hub = MemoryBroker()
        self.elder, self.younger = (Membership(MemoryBus(self.hub), b"key", beat_s=0.2) for _ in range(2))
        self.elder.since -= 10
        self.room = HeldApplication()
        self.requests = NodeRequests(self.room, self.elder)
        self.leader = LeaderProxy(self.room, self.requests)
        other = HeldApplication()
        self.face = LeaderProxy(other, NodeRequests(other, self.younger))

    async def ask(self) -> tuple[int, bytes]:
        """A request at the other node: status and body of the answer."""
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/-/ask", "headers": [], "query_string": b""}
        await self.face(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]


@pytest.fixture
async def nodes() -> AsyncIterator[TwoNodes]:
    nodes = TwoNodes()
    for node in (nodes.elder, nodes.younger):
        await node.start()
    await until(lambda: len(nodes.younger.nodes) == 1)
    yield nodes
    for node in (nodes.elder, nodes.younger):
        await node.stop()


async def test_the_eldest_answers_what_another_was_asked(nodes: TwoNodes) -> None:
    asking = asyncio.create_task(nodes.ask())
    await until(lambda: nodes.room.asked == 1)
    nodes.room.may_answer.set()
    assert await asking == (200, b"the answer of the eldest")


@pytest.mark.parametrize("fault", ["it stops", "the bus is lost"])
async def test_requests_to_the_leader_fail_at_once_when_it_is_gone(nodes: TwoNodes, fault: str) -> None:
    asking = asyncio.create_task(nodes.ask())
    await until(lambda: nodes.room.asked == 1)
    if fault == "it stops":
        await nodes.elder.stop()
    else:
        nodes.hub.cut()
    async with asyncio.timeout(60):
        status, body = await asking
    assert status == 503 and b"relay_unavailable" in body


async def test_a_leader_that_closes_ends_the_requests_of_others(nodes: TwoNodes) -> None:
    asking = asyncio.create_task(nodes.ask())
    await until(lambda: nodes.room.asked == 1)
    async with asyncio.timeout(BOUND_S):
        await nodes.requests.close()
    assert len(nodes.requests.tasks) == 0
    await nodes.elder.stop()
    assert (await asking)[0] == 503
