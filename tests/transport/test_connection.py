"""Half-open connections: nothing is forwarded, and the two ends notice at different times. No call may be lost for it.

The worker is the real transport on a simulated clock. The relay is the real link, which loses its socket when the test
decides: at once, or when pings would have found out.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tabrelay.config.settings import Settings
from tabserver.timing import DEFAULTS as TIMING
from tabserver.wire.events import Expired, Received
from tabserver.wire.frames import Kind, Terms
from tabserver.wire.limits import Limits, least_grace_s, redial_s, watchdog_s
from tabserver.wire.link import Link
from tests.support.fake_clock import settle
from tests.support.fake_sockets import FakeRelay
from tests.support.transport_harness import ONE_REQUEST, TransportHarness

STEP_S: Final = 0.25
SETTINGS: Final = Settings()


class Outage:
    """From `begin` on nothing is forwarded; dials that begin after `ends_s` succeed, after `dial_s`."""

    def __init__(self, limits: Limits, *, ends_s: float, relay_notices_s: float, dial_s: float) -> None:
        self.bench = TransportHarness(Limits(watchdog_s=limits.watchdog_s))
        terms = Terms("s1", "e1", "b", round(limits.grace_s * 1000), round(limits.heartbeat_s * 1000))
        self.bench.relay = FakeRelay(self.bench.clock)
        self.bench.relay.link = Link.accepter(terms, limits)
        self.ends_s, self.relay_notices_s, self.dial_s = ends_s, relay_notices_s, dial_s
        self.events: list[Any] = []

    async def run(self) -> None:
        bench, link = self.bench, self.bench.relay.link
        await bench.start()
        await bench.connect()
        link.send("c", Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST)
        bench.relay.exchange()
        began, has_resumed = bench.clock(), False
        dials: dict[int, float] = {}
        bench.transport.session.send("c", Kind.RES, '{"jsonrpc":"2.0","id":1,"result":{}}', id=1)  # never delivered
        while not has_resumed and not link.is_over:
            await bench.clock.advance(STEP_S)
            passed_s = bench.clock() - began
            if passed_s >= self.relay_notices_s:
                link.disconnected(bench.clock())  # the first time counts
            due = link.next_timer()
            if due is not None and due <= bench.clock():
                link.handle_timer(bench.clock())
                link.frames()
            self.events += link.events()
            dial = bench.dialer.last
            started_s = dials.setdefault(id(dial), passed_s - STEP_S)
            if not dial.outcome.done() and self.ends_s <= started_s <= passed_s - self.dial_s:
                link.disconnected(bench.clock())
                bench.relay.accept(await self._open(dial))
                has_resumed = True
        self.events += bench.relay.events
        await bench.transport.close()

    async def _open(self, dial: Any) -> Any:
        socket = dial.open()
        await settle()
        return socket

    @property
    def has_answer(self) -> bool:
        answers = [event for event in self.events if isinstance(event, Received) and event.kind is Kind.RES]
        return len(answers) == 1 and Expired() not in self.events


def limits_of(settings: Settings) -> Limits:
    return Limits(heartbeat_s=settings.heartbeat_s, grace_s=settings.grace_s)


@pytest.mark.parametrize("relay_notices_s", [0.0, 10.0, 15.0, 22.0, 31.0])
@pytest.mark.parametrize("ends_s", [0.0, 20.0, 38.0, 40.0, 42.5, 45.0])
@pytest.mark.parametrize("dial_s", [0.0, 4.0])
async def test_no_outage_of_45_s_loses_a_call(ends_s: float, relay_notices_s: float, dial_s: float) -> None:
    outage = Outage(limits_of(SETTINGS), ends_s=ends_s, relay_notices_s=relay_notices_s, dial_s=dial_s)
    await outage.run()
    assert outage.has_answer


@pytest.mark.parametrize("ends_s", [45.0, 55.0, 60.0])
async def test_where_pings_find_it_an_outage_of_a_minute_loses_no_call(ends_s: float) -> None:
    noticed_s = SETTINGS.ping_timeout_s
    assert ends_s <= noticed_s + SETTINGS.grace_s - redial_s()
    outage = Outage(limits_of(SETTINGS), ends_s=ends_s, relay_notices_s=noticed_s, dial_s=4.0)
    await outage.run()
    assert outage.has_answer


async def test_times_that_do_not_follow_from_each_other_lose_calls() -> None:
    """The model detects lost calls: a watchdog of 50 s with a grace of 30 s."""
    earlier = Limits(heartbeat_s=20.0, watchdog_s=50.0, grace_s=30.0)
    outage = Outage(earlier, ends_s=40.0, relay_notices_s=15.0, dial_s=0.0)
    await outage.run()
    assert not outage.has_answer


def test_the_grace_is_longer_than_a_worker_needs_to_notice_and_to_reconnect() -> None:
    for limits in (Limits(), limits_of(SETTINGS)):
        assert limits.grace_s >= least_grace_s(limits.heartbeat_s)
        assert watchdog_s(limits.heartbeat_s) > 2 * limits.heartbeat_s
    assert least_grace_s(15.0) == pytest.approx(37.5 + 1 + redial_s())
    assert redial_s(TIMING.connect_s, TIMING.longest_delay_s) == redial_s()
    assert Terms("s", "e", "b").grace_ms == SETTINGS.grace_s * 1000
    assert Terms("s", "e", "b").beat_ms == SETTINGS.heartbeat_s * 1000


@pytest.mark.parametrize(
    ("settings", "is_warned"), [({}, False), ({"grace_s": 30.0}, True), ({"heartbeat_s": 60.0}, True)]
)
def test_settings_that_may_lose_calls_are_warned_about(settings: dict[str, float], is_warned: bool) -> None:
    warnings = Settings(**settings).warnings()  # type: ignore[arg-type]
    assert bool(warnings) is is_warned
    assert all("grace_s" in warning and "heartbeat_s" in warning for warning in warnings)


async def test_a_worker_waits_for_the_heartbeat_that_its_relay_announces() -> None:
    bench = TransportHarness()
    bench.relay.link = Link.accepter(Terms("s1", "e1", "b", beat_ms=2000), Limits(heartbeat_s=2.0))
    await bench.start()
    socket = await bench.connect()
    await bench.clock.advance(5.5)
    assert bench.is_connected()
    await bench.clock.advance(1)
    assert not bench.is_connected() and socket.closed is not None
    await bench.transport.close()
