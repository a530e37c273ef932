"""Time that jumps by 0.1 s to a day, in a worker: its connection, and its checks of tabs."""

from __future__ import annotations

import random

import pytest

from tabserver.tabs.liveness import LivenessCheck
from tabserver.timing import DEFAULTS, steady_ms
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.fake_clock import JUMPS_S, Clock, WallClock, settle
from tests.support.transport_harness import ONE_REQUEST, TransportHarness


async def step(bench: TransportHarness, chance: random.Random) -> None:
    """One event of the network, the relay or the computer."""
    dial, relay = bench.dialer.last, bench.relay
    what = chance.randrange(6)
    if what == 0 and not dial.outcome.done():
        socket = dial.open()
        await settle()
        if socket.closed is None:
            relay.link.disconnected(bench.clock())
            if not relay.link.is_over:
                relay.accept(socket)
    elif what == 1 and bench.is_connected():
        relay.drop(chance.choice([1006, 1001, 1012]))
    elif what == 2 and not dial.outcome.done():
        dial.fail()
    elif what == 3 and bench.is_connected():
        relay.link.send("c", Kind.NOTE, "{}", bench.clock(), caller=ONE_REQUEST)
        relay.exchange()
    elif what == 4 and bench.is_connected():
        relay.link.handle_timer(bench.clock())
        relay.exchange()
    await settle()


@pytest.mark.parametrize("seed", range(60))
async def test_the_connection_comes_back_however_time_jumps(seed: int) -> None:
    bench, chance = TransportHarness(), random.Random(seed)
    await bench.start()
    for _ in range(80):
        await step(bench, chance)
        await bench.clock.jump(chance.choice(JUMPS_S), chance)
        # It is connected, or a dial or a timer is pending.
        assert bench.is_connected() or not bench.dialer.last.outcome.done() or bench.clock.pending
        assert bench.clock.pending
        if bench.relay.link.is_over:
            bench = await another(bench)
    await bench.clock.jump(60, chance)
    await bench.clock.advance(20)
    for _ in range(5):
        if not bench.is_connected() and not bench.dialer.last.outcome.done():
            bench.relay.link.disconnected(bench.clock())
            await bench.connect()
        await bench.clock.advance(4)
    assert bench.is_connected()
    bench.relay.link.send("after", Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST)
    bench.relay.exchange()
    assert [one.id for one in bench.messages() if isinstance(one, Received) and one.channel == "after"] == [1]
    await bench.transport.close()


async def another(bench: TransportHarness) -> TransportHarness:
    """The relay has ended the session, which has its own tests: start again."""
    await bench.transport.close()
    bench = TransportHarness()
    await bench.start()
    return bench


class Tabs:
    """The tab checks of a worker on a clock that jumps. Tabs answer at once, except the dead ones."""

    def __init__(self, wall: WallClock) -> None:
        self.clock = Clock()
        self.dead: set[str] = set()
        self.lost: list[str] = []
        self.unread: list[str] = []
        now_ms = steady_ms(wall() * 1000, self.clock)
        self.pulse: LivenessCheck[str] = LivenessCheck(
            now_ms=now_ms,
            later=lambda delay_ms, ring: void(self.clock.call_later(delay_ms / 1000, ring)),
            ask=self.unread.append,
            lost=self.lost.append,
        )
        self.now_ms = now_ms

    def read(self) -> None:
        """The worker reads the tabs' answers."""
        for tab in self.unread:
            if tab not in self.dead:
                self.pulse.received(tab)
        self.unread.clear()


def void(value: object) -> None:
    """Timers of this kind are never cancelled."""


@pytest.mark.parametrize("seed", range(40))
async def test_a_live_tab_is_never_lost_and_a_dead_one_always_however_time_jumps(seed: int) -> None:
    wall, chance = WallClock(), random.Random(seed)
    tabs = Tabs(wall)
    for tab in ("a", "b", "c"):
        tabs.pulse.watch(tab, tabs.now_ms())
    tabs.dead = {"b"}
    for _ in range(20):
        wall.now += chance.choice([-86_400, 0, 86_400])
        await tabs.clock.jump(chance.choice(JUMPS_S), chance)
        tabs.read()
    for _ in range(100):
        await tabs.clock.advance(1)
        tabs.read()
    assert tabs.lost == ["b"]


def test_the_worker_counts_time_evenly_while_the_time_of_day_is_set() -> None:
    clock, wall = Clock(), WallClock()
    now_ms = steady_ms(wall() * 1000, clock)
    began_ms = now_ms()
    wall.now -= 86_400
    clock.now += DEFAULTS.tab_quiet_s
    assert now_ms() - began_ms == pytest.approx(DEFAULTS.tab_quiet_s * 1000)
