"""One task per upstream, on a clock that the test moves and with a transport that fails when the test decides."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage

from tabrelay.config.settings import Settings
from tabrelay.errors import ServerOffline
from tabrelay.peers.upstreams.connection import UpstreamConnection
from tabrelay.peers.upstreams.dispatcher import Report, Streams
from tabrelay.peers.upstreams.faults import ConnectionFault, Redactor, UpstreamFault
from tabrelay.peers.upstreams.handshake import ServerAbout
from tabrelay.peers.upstreams.retry_policy import RetryPolicy
from tabrelay.peers.upstreams.supervisor import Supervisor
from tabrelay.routing.question_limits import limits_of
from tabserver.wire.eras import Era
from tests.support.child_specs import until
from tests.support.fake_clock import JUMPS_S, Clock, settle


class ScriptedTransport:
    """Opens as long as `is_there`; `cut` ends the connection that is open."""

    def __init__(self) -> None:
        self.has_call_context = False
        self.is_there = True
        self.opened = 0
        self.open_now = 0
        self.adapts = False
        self.is_stuck = False
        self._report: Report | None = None

    def adapt(self, fault: UpstreamFault) -> bool:
        adapts, self.adapts = self.adapts, False
        return adapts

    @asynccontextmanager
    async def open(self, report: Report) -> AsyncIterator[Streams]:
        self.opened += 1
        if not self.is_there:
            raise ExceptionGroup(
                "as task groups do", [ConnectionFault(UpstreamFault("no server is there, hunter22", "no"))]
            )
        if self.is_stuck:
            await asyncio.Event().wait()
        self._report = report
        self.open_now += 1
        incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        with incoming, outgoing:
            try:
                yield read, write
            finally:
                self.open_now -= 1

    def cut(self) -> None:
        assert self._report is not None
        self._report(None, UpstreamFault("the wire was cut", ends_connection=True))


class NoOwner:
    def announced(self, connection: UpstreamConnection, message: dict[str, Any]) -> None: ...

    def logged(self, connection: UpstreamConnection, params: dict[str, Any]) -> None: ...

    def tools_changed(self) -> None: ...

    def wants_log(self, channel: str, params: object) -> bool:
        return False

    def roots(self) -> list[dict[str, Any]]:
        return []


class SupervisorHarness:
    """A supervisor under a test's control; `news` records connects and disconnects."""

    def __init__(self, *, probes: bool = False) -> None:
        self.clock = Clock()
        self.transport = ScriptedTransport()
        self.news: list[str] = []
        self.supervisor = Supervisor(
            "files",
            transport=self.transport,
            retry_policy=RetryPolicy(probes=probes),
            redact=Redactor(["hunter22"]),
            new_connection=lambda: UpstreamConnection(NoOwner(), "integer", limits_of(Settings())),
            negotiate=self._greet,
            start_s=60,
            on_up=lambda connection: self.news.append("up"),
            on_away=lambda: self.news.append("away"),
            clock=self.clock,
            call_later=self.clock.call_later,
        )

    async def _greet(self, connection: UpstreamConnection) -> ServerAbout:
        return ServerAbout(Era.LEGACY, "2025-11-25", {})

    @property
    def state(self) -> str:
        return self.supervisor.status.state

    async def reconnect_often(self) -> None:
        self.transport.cut()
        await settle()


@pytest.fixture
async def stage() -> AsyncIterator[SupervisorHarness]:
    stage = SupervisorHarness()
    yield stage
    await stage.supervisor.stop()
    assert stage.transport.open_now == 0


@pytest.fixture
async def remote() -> AsyncIterator[SupervisorHarness]:
    stage = SupervisorHarness(probes=True)
    yield stage
    await stage.supervisor.stop()


async def test_a_lost_connection_is_made_again_at_once(stage: SupervisorHarness) -> None:
    stage.supervisor.start()
    await stage.supervisor.wait_for_start()
    await stage.reconnect_often()
    assert stage.news == ["up", "away", "up"]
    assert stage.transport.opened == 2


async def test_attempts_come_after_500_1000_2000_and_4000_ms_and_then_no_more(stage: SupervisorHarness) -> None:
    stage.supervisor.start()
    await stage.supervisor.wait_for_start()
    stage.transport.is_there = False
    await stage.reconnect_often()
    for pause, opened in ((0.5, 3), (1.0, 4), (2.0, 5), (4.0, 6)):
        assert stage.transport.opened == opened - 1
        assert stage.state == "connecting"
        assert stage.supervisor.status.retry_at == pytest.approx(stage.clock() + pause)
        await stage.clock.advance(pause - 0.01)
        assert stage.transport.opened == opened - 1
        await stage.clock.advance(0.01)
    assert stage.transport.opened == 6
    assert (stage.state, stage.supervisor.status.attempts) == ("failed", 5)
    assert stage.supervisor.status.error == "no server is there, [redacted]"
    await stage.clock.advance(3600)
    assert stage.transport.opened == 6


async def test_a_server_at_an_address_is_probed_until_it_is_there(remote: SupervisorHarness) -> None:
    remote.transport.is_there = False
    remote.supervisor.start()
    await remote.clock.advance(7.5)
    assert (remote.transport.opened, remote.state) == (5, "waiting")
    for pause in (15, 30, 60, 120, 240, 300):
        await remote.clock.advance(pause - 1)
        before = remote.transport.opened
        await remote.clock.advance(1)
        assert remote.transport.opened == before + 1
    remote.transport.is_there = True
    await remote.clock.advance(300)
    assert (remote.news, remote.state) == (["up"], "connected")


async def test_all_waiting_calls_share_one_attempt(stage: SupervisorHarness) -> None:
    stage.transport.is_there = False
    stage.supervisor.start()
    await stage.clock.advance(7.5)
    assert (stage.state, stage.transport.opened) == ("failed", 5)
    stage.transport.is_there = True
    await asyncio.gather(*(stage.supervisor.wait_for_start() for _ in range(20)))
    assert stage.transport.opened == 6
    assert stage.news == ["up"]


async def test_waiting_calls_get_an_error_when_the_round_is_over(stage: SupervisorHarness) -> None:
    stage.transport.is_there = False
    stage.supervisor.start()
    waiting = [asyncio.create_task(stage.supervisor.wait_for_start()) for _ in range(3)]
    await settle()
    waiting[0].cancel()
    await stage.clock.advance(7.4)
    assert not waiting[1].done()
    await stage.clock.advance(0.1)
    for task in waiting[1:]:
        with pytest.raises(ServerOffline, match="no server is there"):
            await task


async def test_a_server_that_comes_and_goes_too_often_is_suspended_until_a_reconnect_is_requested(
    stage: SupervisorHarness,
) -> None:
    stage.supervisor.start()
    await stage.supervisor.wait_for_start()
    for _ in range(5):
        await stage.reconnect_often()
        await stage.clock.advance(1)
    assert stage.state == "connected"
    await stage.reconnect_often()
    assert stage.state == "suspended"
    opened = stage.transport.opened
    with pytest.raises(ServerOffline, match="tabrelay reconnect files"):
        await stage.supervisor.wait_for_start()
    await stage.clock.advance(3600)
    assert stage.transport.opened == opened
    stage.supervisor.reconnect()
    await stage.supervisor.wait_for_start()
    assert stage.state == "connected"
    await stage.reconnect_often()
    assert stage.state == "connected"


async def test_reconnect_replaces_a_connection_that_seems_to_work(stage: SupervisorHarness) -> None:
    stage.supervisor.start()
    await stage.supervisor.wait_for_start()
    stage.supervisor.reconnect()
    await settle()
    assert stage.news == ["up", "away", "up"]


async def test_a_stop_ends_a_pause_and_frees_those_who_wait(stage: SupervisorHarness) -> None:
    stage.transport.is_there = False
    stage.supervisor.start()
    waiting = asyncio.create_task(stage.supervisor.wait_for_start())
    await settle()
    await stage.supervisor.stop()
    with pytest.raises(ServerOffline):
        await waiting
    assert stage.state == "stopped"
    await stage.clock.advance(100)
    assert stage.transport.opened == 1


async def test_another_way_is_tried_at_once_where_a_transport_knows_one(stage: SupervisorHarness) -> None:
    stage.transport.is_there = False
    stage.transport.adapts = True
    stage.supervisor.start()
    await settle()
    assert stage.transport.opened == 2
    assert stage.supervisor.status.attempts == 1


async def test_a_transport_that_never_opens_can_be_stopped(stage: SupervisorHarness) -> None:
    stage.transport.is_stuck = True
    stage.supervisor.start()
    await settle()
    assert stage.transport.opened == 1
    async with asyncio.timeout(60):
        await stage.supervisor.stop()
    assert stage.state == "stopped"


async def test_a_transport_that_never_opens_is_given_up_after_a_while(stage: SupervisorHarness) -> None:
    stage.transport.is_stuck = True
    stage.supervisor._start_s = 0.01
    stage.supervisor.start()
    await until(lambda: stage.supervisor.status.error is not None)
    assert "could not be reached within" in str(stage.supervisor.status.error)


@pytest.mark.parametrize("seed", range(20))
async def test_a_server_that_comes_and_goes_is_connected_again_however_time_jumps(seed: int) -> None:
    stage, chance = SupervisorHarness(probes=True), random.Random(seed)
    stage.supervisor.start()
    for _ in range(30):
        stage.transport.is_there = chance.random() < 0.5
        if stage.transport.open_now and chance.random() < 0.3:
            await stage.reconnect_often()
        await stage.clock.jump(chance.choice(JUMPS_S), chance)
        assert stage.state in ("connected", "connecting", "waiting", "suspended")
        if stage.state == "suspended":
            stage.supervisor.reconnect()
    stage.transport.is_there = True
    await stage.clock.jump(86_400, chance)
    if stage.state != "connected":
        stage.supervisor.reconnect()
        await settle()
    assert stage.state == "connected"
    assert stage.news.count("up") - stage.news.count("away") == 1
    await stage.supervisor.stop()
    assert stage.transport.open_now == 0
