"""Memory of finished calls: a finished call and its messages are freed at once.

Memory that only the garbage collector frees is not covered by any limit: the collector counts objects, not their
size.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.server import ServerProtocol

from tabrelay.calls.calls import Call
from tabrelay.peers.browsers.writer import SocketWriter
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol
from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

SLOW_S = 0.15  # longer than the relay holds a response back before it starts a stream


class Stage:
    """A relay with a browser, while the garbage collector is off."""

    def __init__(self, relay: RunningRelay, worker: SyntheticWorker, session: dict[str, str]) -> None:
        self.relay = relay
        self.worker = worker
        self.session = session
        self._before = calls()  # left over by other tests, if they failed

    async def is_nothing_left(self) -> None:
        await until(lambda: calls() <= self._before)  # the call log keeps each call for a moment longer

    async def legacy(self) -> None:
        body = jsonrpc.request(7, "tools/call", {"name": "echo", "arguments": {}})
        await self.relay.http.post("/notes", json=body, headers=self.session)

    async def hang_up(self, request: dict[str, Any]) -> None:
        received = len(self.worker.seen)
        asked = asyncio.create_task(self.relay.http.post("/notes", **request))
        await self.worker.until(lambda: len(self.worker.seen) > received)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """Without the fast path, unless a test asks for it: the logs of a test keep what leaves that path."""
    settings: dict[str, Any] = {"away_wait_s": 0.1, "call_deadline_s": 0.3, "servers": ("away",)}
    async with (
        RunningRelay(tmp_path, fast_lane=getattr(request, "param", False), **settings) as relay,  # style: ok, a setting
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        _, session = await relay.initialize("notes")
        await relay.has_read("notes")
        gc.collect()
        gc.disable()
        try:
            yield Stage(relay, worker, session)
        finally:
            gc.enable()


def calls() -> int:
    return sum(type(each) is Call for each in gc.get_objects())


def sockets() -> int:
    return sum(type(each) in (WebSocketProtocol, ServerProtocol, SocketWriter) for each in gc.get_objects())


def slowly(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    def answer() -> None:
        worker.answer(event, {"content": []})
        tasks.append(asyncio.create_task(worker.flush()))

    tasks: list[asyncio.Task[None]] = []
    asyncio.get_running_loop().call_later(SLOW_S, answer)


def never(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    """Sends nothing."""


def badly(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    worker.send_text(event, Kind.RES, "{}")


@pytest.mark.parametrize("stage", [False, True], indirect=True, ids=["ordinary", "lane"])
async def test_a_call_that_was_answered_is_gone(stage: Stage) -> None:
    for _ in range(3):
        await stage.relay.call("notes", "echo")
        await stage.legacy()
    await stage.is_nothing_left()


@pytest.mark.parametrize("answer", [slowly, never, badly])
async def test_a_call_that_was_answered_late_or_badly_or_not_is_gone(stage: Stage, answer: Any) -> None:
    stage.worker.on_call = answer
    for _ in range(3):
        await stage.relay.call("notes", "echo")
        await stage.legacy()
    await stage.is_nothing_left()


async def test_a_call_whose_client_left_is_gone(stage: Stage) -> None:
    stage.worker.on_call = never
    for _ in range(3):
        await stage.hang_up(stage.relay.modern("tools/call", {"name": "echo", "arguments": {}}))
        await stage.hang_up(stage.relay.modern("subscriptions/listen", {"notifications": {}}))
    await stage.is_nothing_left()


async def test_a_call_to_an_unknown_server_is_freed(stage: Stage) -> None:
    for _ in range(3):
        await stage.relay.call("away", "echo")
    await stage.is_nothing_left()


@pytest.mark.parametrize("end", [SyntheticWorker.cut, SyntheticWorker.hang_up])
async def test_a_socket_that_was_lost_or_closed_is_gone(stage: Stage, end: Any) -> None:
    before = sockets()
    for _ in range(3):
        await end(stage.worker)
        await stage.worker.dial()
        await stage.worker.until(lambda: stage.worker.link.is_up)
    await until(lambda: sockets() <= before)
